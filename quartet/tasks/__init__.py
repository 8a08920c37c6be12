"""Tasks: what to predict, for whom, when, and how it is split; labels, the test vault, and lint."""

from quartet.tasks.export import write_relbench
from quartet.tasks.labels import LabelColumns, early_text, read_labels
from quartet.tasks.past_labels import TABLE, past_label_findings, with_past_labels
from quartet.tasks.record import TaskRecord
from quartet.tasks.sandbox import run_task_sql
from quartet.tasks.seeds import Seeds, joined
from quartet.tasks.spec import TaskSpec, TaskType
from quartet.tasks.splits import SPLITS, Split, Splits, forecast_times
from quartet.tasks.task import Task, check_labels, task_names
from quartet.tasks.vault import balance

__all__ = [
    "SPLITS",
    "TABLE",
    "LabelColumns",
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
    "joined",
    "past_label_findings",
    "read_labels",
    "run_task_sql",
    "task_names",
    "with_past_labels",
    "write_relbench",
]
