"""What only reproduces or submits the paper."""

from quartet.paper.arms import Result, Study
from quartet.paper.connectivity import MEASURES, ConnectivityRow, connectivity_study
from quartet.paper.efficiency import efficiency_study
from quartet.paper.efficiency_table import LEGEND, efficiency_sheet
from quartet.paper.figures import study_figures
from quartet.paper.runner import Job, Plan, jobs_of, results_of, run_study
from quartet.paper.submit import check_submission, summary, write_submission
from quartet.paper.tables import sheets_markdown, sheets_view, study_markdown, study_view
from quartet.paper.tune import Cell, StageName, Trial, open_study

__all__ = [
    "LEGEND",
    "MEASURES",
    "Cell",
    "ConnectivityRow",
    "Job",
    "Plan",
    "Result",
    "StageName",
    "Study",
    "Trial",
    "check_submission",
    "connectivity_study",
    "efficiency_sheet",
    "efficiency_study",
    "jobs_of",
    "open_study",
    "results_of",
    "run_study",
    "sheets_markdown",
    "sheets_view",
    "study_figures",
    "study_markdown",
    "study_view",
    "summary",
    "write_submission",
]
