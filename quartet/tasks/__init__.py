"""Tasks: what to predict, for whom, when, and how it is split; labels, the test vault, and checks."""

from quartet.tasks.binding import early_text
from quartet.tasks.checks import check_labels, lint
from quartet.tasks.export import write_relbench
from quartet.tasks.labels import LabelColumns, labels_at, read_labels
from quartet.tasks.late_columns import tell_alone
from quartet.tasks.past_labels import KNOWN_LABELS, past_label_findings
from quartet.tasks.record import TaskRecord
from quartet.tasks.sandbox import run_task_sql
from quartet.tasks.seeds import Links, Seeds
from quartet.tasks.spec import TaskSpec, TaskType
from quartet.tasks.splits import SPLITS, Split, Splits, forecast_times
from quartet.tasks.task import Task, task_names
from quartet.tasks.vault import balance

__all__ = [
    "KNOWN_LABELS",
    "SPLITS",
    "LabelColumns",
    "Links",
    "Seeds",
    "Split",
    "Splits",
    "Task",
    "TaskRecord",
    "TaskSpec",
    "TaskType",
    "balance",
    "check_labels",
    "early_text",
    "forecast_times",
    "labels_at",
    "lint",
    "past_label_findings",
    "read_labels",
    "run_task_sql",
    "task_names",
    "tell_alone",
    "write_relbench",
]
