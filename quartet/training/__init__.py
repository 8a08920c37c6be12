"""How a model learns: its data, what its outputs mean, the loop that trains a network, and what that costs.

`Model` is the protocol that networks and trees follow. Shapes are written with these letters: B seeds in the batch,
b seeds in a group, K local tokens, C global tokens of a seed, R distinct rows, P distinct global tokens, T distinct
times, N tables, A archetypes, Z latents, D width, H heads, M the width inside a mix.
"""

from quartet.training.accumulate import backward_by_group
from quartet.training.adam import Adam, flat
from quartet.training.cost import duration
from quartet.training.data import TrainingData, View, graph_of, held, wait_limit
from quartet.training.logits import context_logits
from quartet.training.masks import counted_masks, next_mask
from quartet.training.memory import step_tensor_bytes, weight_bytes
from quartet.training.model import Epoch, Fitted, Member, Model, Training
from quartet.training.network import Encoded, ModelSchema, Network
from quartet.training.outputs import (
    BinaryOutput,
    Output,
    RankingOutput,
    RegressionOutput,
    fit_output,
    output_from_dict,
    output_to_dict,
)
from quartet.training.trainer import Trainer

__all__ = [
    "Adam",
    "BinaryOutput",
    "Encoded",
    "Epoch",
    "Fitted",
    "Member",
    "Model",
    "ModelSchema",
    "Network",
    "Output",
    "RankingOutput",
    "RegressionOutput",
    "Trainer",
    "Training",
    "TrainingData",
    "View",
    "backward_by_group",
    "context_logits",
    "counted_masks",
    "duration",
    "fit_output",
    "flat",
    "graph_of",
    "held",
    "next_mask",
    "output_from_dict",
    "output_to_dict",
    "step_tensor_bytes",
    "wait_limit",
    "weight_bytes",
]
