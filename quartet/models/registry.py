"""Every network by its name: QUARTET, and those that the paper compares it with."""

from __future__ import annotations

from quartet.config import ModelConfig
from quartet.models.hgt import HGT
from quartet.models.quartet import Quartet
from quartet.models.relgt import RelGT
from quartet.models.rgp import RGP
from quartet.models.sage import GraphSAGE
from quartet.training import ModelSchema, PartModel

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
