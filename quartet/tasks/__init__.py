"""Tasks: what to predict, for whom, when, and how it is split; labels, the test vault, and checks."""

from quartet.tasks.binding import early_text
from quartet.tasks.checks import check_labels, lint
from quartet.tasks.classes import class_codes
from quartet.tasks.export import task_yaml, write_relbench
from quartet.tasks.labels import LabelColumns, label_times, labels_at, read_labels
from quartet.tasks.late_columns import tell_alone
from quartet.tasks.past_labels import KNOWN_LABELS, LABEL, past_label_findings
from quartet.tasks.population import EVERYONE, Population, population_at
from quartet.tasks.query import Reading, is_query, read_query, selected_keys
from quartet.tasks.record import TaskRecord
from quartet.tasks.sandbox import run_task_sql
from quartet.tasks.seeds import Links, Seeds
from quartet.tasks.spec import TYPES, TaskSpec, TaskType
from quartet.tasks.splits import SPLITS, Split, Splits, forecast_times
from quartet.tasks.task import Task, task_names
from quartet.tasks.vault import balance

__all__ = [
    "EVERYONE",
    "KNOWN_LABELS",
    "LABEL",
    "SPLITS",
    "TYPES",
    "LabelColumns",
    "Links",
    "Population",
    "Reading",
    "Seeds",
    "Split",
    "Splits",
    "Task",
    "TaskRecord",
    "TaskSpec",
    "TaskType",
    "balance",
    "check_labels",
    "class_codes",
    "early_text",
    "forecast_times",
    "is_query",
    "label_times",
    "labels_at",
    "lint",
    "past_label_findings",
    "population_at",
    "read_labels",
    "read_query",
    "run_task_sql",
    "selected_keys",
    "task_names",
    "task_yaml",
    "tell_alone",
    "write_relbench",
]
