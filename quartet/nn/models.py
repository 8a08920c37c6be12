"""Every network by its name: QUARTET, and those that the paper compares it with."""

from __future__ import annotations

from quartet.config import ModelConfig
from quartet.nn.model import Quartet
from quartet.nn.parts import ModelSchema, PartModel
from quartet.nn.relgt import RelGT

NETWORKS: dict[str, type[PartModel]] = {"quartet": Quartet, "relgt": RelGT}


def build_model(config: ModelConfig, schema: ModelSchema) -> PartModel:
    """A network of the configured architecture, with random weights."""
    return NETWORKS[config.architecture](config, schema)
