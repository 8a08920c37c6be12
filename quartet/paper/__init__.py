"""What only reproduces or submits the paper: its studies, its search for recipes, the RelBench board."""

from quartet.paper.arms import STUDIES, StudyName, arms_of
from quartet.paper.connectivity import connectivity_sheet, connectivity_study, connectivity_svg
from quartet.paper.efficiency import EFFICIENCY_LEGEND, efficiency_sheet, efficiency_study
from quartet.paper.figures import study_figures
from quartet.paper.results import Result
from quartet.paper.runner import Failure, Study, chosen_jobs, dataset_name, first_jobs, run_study
from quartet.paper.submit import check_submission, summary, write_submission
from quartet.paper.tables import Sheet, sheets_markdown, sheets_view, study_sheets
from quartet.paper.tuning import Search, Trial, shown

__all__ = [
    "EFFICIENCY_LEGEND",
    "STUDIES",
    "Failure",
    "Result",
    "Search",
    "Sheet",
    "Study",
    "StudyName",
    "Trial",
    "arms_of",
    "check_submission",
    "chosen_jobs",
    "connectivity_sheet",
    "connectivity_study",
    "connectivity_svg",
    "dataset_name",
    "efficiency_sheet",
    "efficiency_study",
    "first_jobs",
    "run_study",
    "sheets_markdown",
    "sheets_view",
    "shown",
    "study_figures",
    "study_sheets",
    "summary",
    "write_submission",
]
