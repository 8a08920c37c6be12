"""Every network by its name: QUARTET, and those that the paper compares it with."""

from __future__ import annotations

from quartet.config import ModelConfig
from quartet.nn.hgt import HGT
from quartet.nn.model import Quartet
from quartet.nn.parts import ModelSchema, PartModel
from quartet.nn.relgt import RelGT
from quartet.nn.rgp import RGP
from quartet.nn.sage import GraphSAGE

NETWORKS: dict[str, type[PartModel]] = {
    "quartet": Quartet,
    "relgt": RelGT,
    "rgp": RGP,
    "hgt": HGT,
    "sage": GraphSAGE,
}


def build_model(config: ModelConfig, schema: ModelSchema) -> PartModel:
    """A network of the configured architecture, with random weights."""
    return NETWORKS[config.architecture](config, schema)
