"""How a model is trained."""

from quartet.training.accumulate import backward_in_parts
from quartet.training.cost import Cost, measured_cost
from quartet.training.memory import step_tensor_bytes, weight_bytes
from quartet.training.network import ModelSchema, PartModel, RowShared, Shared
from quartet.training.outputs import RegressionOutput, Target, fit_output, output_from_dict, output_to_dict
from quartet.training.trainer import Epoch, Material, Trainer, prepare, recipe_task

__all__ = [
    "Cost",
    "Epoch",
    "Material",
    "ModelSchema",
    "PartModel",
    "RegressionOutput",
    "RowShared",
    "Shared",
    "Target",
    "Trainer",
    "backward_in_parts",
    "fit_output",
    "measured_cost",
    "output_from_dict",
    "output_to_dict",
    "prepare",
    "recipe_task",
    "step_tensor_bytes",
    "weight_bytes",
]
