"""Tasks: what to predict, for whom, when, and how it is split; labels, the test vault, and lint."""

from quartet.splits import Splits
from quartet.tasks.lint import lint
from quartet.tasks.seeds import Links, Seeds
from quartet.tasks.spec import TaskSpec, TaskType
from quartet.tasks.task import Task, task_names

__all__ = ["Links", "Seeds", "Splits", "Task", "TaskSpec", "TaskType", "lint", "task_names"]
