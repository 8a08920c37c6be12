"""Configuration: the one page where the paper's symbol, our name, the default and the unit meet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import yaml

from quartet.causal import TimeRule
from quartet.errors import UsageError, did_you_mean

Branch = Literal["feature", "topology", "temporal", "collab"]
Architecture = Literal["quartet", "relgt", "rgp", "hgt", "sage", "lightgbm"]
ARCHITECTURES: tuple[Architecture, ...] = ("quartet", "relgt", "rgp", "hgt", "sage", "lightgbm")
BRANCHES: tuple[Branch, ...] = ("feature", "topology", "temporal", "collab")


@dataclass(frozen=True)
class SamplerConfig:
    """How contexts are gathered (section 2.2 and appendix A.1). Defaults are the paper's.

    A budget counts tokens: `local_budget` includes the seed. `max_recent=None` is the ablation
    without hub truncation, `restart_prob=0` the one without restart.
    """

    sampler: Literal["walk", "bfs"] = "walk"  # CRW, or the two-hop baseline BFS2
    local: bool = True  # False is the ablation without a local context: the seed alone
    num_walks: int = 100  # W
    walk_length: int = 10  # L
    restart_prob: float = 0.15  # p
    max_recent: int | None = 50  # M
    truncation: Literal["recent", "random"] = "recent"  # which M of a node's visible neighbours
    local_budget: int = 300  # K
    branches: tuple[Branch, ...] = BRANCHES  # contexts of absent branches are not sampled
    temporal_unit: Literal["rows", "links"] = "rows"  # the newest rows of tables, or RGP's newest links
    temporal_budget: int = 300  # K_temp, of rows
    lookback_days: int = 365  # Δt, of rows
    recent_links: int = 10  # RGP's k, of each foreign key
    collab_budget: int = 300  # K_collab
    collab_hops: Literal[2, 4] = 2  # the paper's probe, or look-alikes of the seed's own table
    first_fanout: int = 50  # M1
    second_fanout: int = 50  # M2
    fallback: Literal["visible", "null"] = (
        "visible"  # for seeds without history: random visible rows, or none
    )
    time_rule: TimeRule = "<="
    rng_seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "num_walks",
            "walk_length",
            "temporal_budget",
            "lookback_days",
            "recent_links",
            "collab_budget",
        ):
            _check_range(name, getattr(self, name), 1)
        for name in ("first_fanout", "second_fanout", "max_recent"):
            if getattr(self, name) is not None:
                _check_range(name, getattr(self, name), 1)
        _check_range("local_budget", self.local_budget, 2, 2**15)
        _check_range("walk_length", self.walk_length, 1, 254)
        if not isinstance(self.restart_prob, (int, float)) or not 0 <= self.restart_prob < 1:
            raise UsageError("C02", f"restart_prob is {self.restart_prob}", "give a number from 0 to below 1")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                got = getattr(self, name)
                raise UsageError("C02", f"{name} is {got!r}", f"say one of {', '.join(map(str, allowed))}")
        _check_branches(self.branches)

    @property
    def num_hops(self) -> int:
        """How many hop bins there are, the fallback's included."""
        return self.fallback_hop + 1

    @property
    def fallback_hop(self) -> int:
        """The hop bin of rows that were drawn for a seed without history."""
        return max(self.walk_length, 2) + 1  # BFS2 has two hops, however short the walks

    def has(self, branch: Branch) -> bool:
        return branch in self.branches

    def changed(self, **words: Any) -> SamplerConfig:
        """This configuration with some fields changed; an unknown field is refused with a suggestion."""
        _check_known(self, words)
        return replace(self, **words)

    def digest(self) -> str:
        """A digest of all fields: equal configurations, equal digests."""
        words = asdict(self) | {"branches": sorted(self.branches)}
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the network (sections 2.3 to 2.6). Defaults are the paper's.

    Every ablation of the paper is a value here: fewer `branches`, `local=False` (no local module),
    `perceiver=False` (the seed attends to its global contexts directly). Those of the samplers are in
    `SamplerConfig`, which `sampler()` brings into line.
    """

    architecture: Architecture = "quartet"  # or a baseline, which reads the fields that it has a use for
    width: int = 512  # d
    heads: int = 4  # H
    local: bool = True
    local_layers: int = 1  # L_local
    branches: tuple[Branch, ...] = BRANCHES
    num_archetypes: int = 512  # R
    perceiver: bool = True
    num_latents: int = 32  # Z, the paper's L_perc
    latent_layers: int = 4  # L_sa
    conv_layers: int = 2  # of message passing in HGT and GraphSAGE: how many links far a seed sees
    dropout: float = 0.3  # of what attention and feed-forward layers add
    attention_dropout: float | None = None  # of attention weights; None: as above, the paper's tie
    mix: Literal["mlp", "linear"] = "mlp"
    time: Literal["sinusoid", "linear"] = "sinusoid"
    num_frequencies: int = 32  # of the sinusoid, from 1 to 1e-4 radians a day
    position_layers: int = 4  # of the GIN, a quarter as wide as the model
    encoder_width: int = 128  # of the table encoders, as in PyTorch Frame's ResNet
    encoder_layers: int = 4
    encoder_dropout: float = 0.2
    number_scale: float = 0.01  # deviation of the first weights of numbers; categories have 1

    def __post_init__(self) -> None:
        for name in (
            "width", "heads", "local_layers", "num_archetypes", "num_latents", "latent_layers",
            "conv_layers", "num_frequencies", "position_layers", "encoder_width", "encoder_layers",
        ):  # fmt: skip
            _check_range(name, getattr(self, name), 1)
        if self.width % (4 * self.heads):
            raise UsageError(
                "C03",
                f"width {self.width} cannot be cut into {self.heads} heads and a quarter for positions",
                f"give a multiple of {4 * self.heads}",
            )
        for name in ("dropout", "attention_dropout", "encoder_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise UsageError("C02", f"{name} is {getattr(self, name)}", "give a number from 0 to below 1")
        if not self.number_scale > 0:
            raise UsageError("C02", f"number_scale is {self.number_scale!r}", "give a number above 0")
        for name, allowed in _MODEL_CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError("C02", f"{name} is {getattr(self, name)!r}", f"say {' or '.join(allowed)}")
        _check_branches(self.branches)

    @property
    def dropouts(self) -> tuple[float, float]:
        """Of what layers add, and of attention weights."""
        weights = self.dropout if self.attention_dropout is None else self.attention_dropout
        return self.dropout, weights

    def has(self, branch: Branch) -> bool:
        return branch in self.branches

    def sampler(self, sampler: SamplerConfig | None = None) -> SamplerConfig:
        """The samplers' configuration that gathers what this model reads, and nothing else."""
        return replace(sampler or SamplerConfig(), branches=self.branches, local=self.local)

    def changed(self, **words: Any) -> ModelConfig:
        """This configuration with some fields changed; an unknown field is refused with a suggestion."""
        _check_known(self, words)
        return replace(self, **words)


_CHOICES: dict[str, tuple[object, ...]] = {
    "sampler": ("walk", "bfs"),
    "local": (True, False),
    "truncation": ("recent", "random"),
    "temporal_unit": ("rows", "links"),
    "collab_hops": (2, 4),
    "fallback": ("visible", "null"),
    "time_rule": ("<=", "<"),
}


_MODEL_CHOICES = {
    "architecture": ARCHITECTURES,
    "mix": ("mlp", "linear"),
    "time": ("sinusoid", "linear"),
}


def _check_known(config: SamplerConfig | ModelConfig, words: dict[str, Any]) -> None:
    known = {field.name for field in fields(config)}
    for word in words:
        if word not in known:
            raise UsageError("C01", f'unknown field "{word}"' + did_you_mean(word, known))


def _check_branches(branches: tuple[str, ...]) -> None:
    for name in sorted(set(branches) - set(BRANCHES)):
        raise UsageError("C02", f'there is no branch "{name}"' + did_you_mean(name, BRANCHES))


def _check_range(name: str, value: object, low: int, high: int = 2**31 - 1) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise UsageError("C02", f"{name} is {value!r}", f"give a whole number from {low} to {high:,}")


def with_tuples(words: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as they were before JSON or TOML made lists of their tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}


def changes_from_text(words: list[str]) -> dict[str, Any]:
    """Changed fields from `field=value` texts; a value is plain YAML, or names with commas between."""
    changes: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise UsageError("C01", f'"{word}" is not of the form field=value')
        value = _number(yaml.safe_load(text))
        is_list = name == "branches"
        changes[name] = tuple(filter(None, (part.strip() for part in text.split(",")))) if is_list else value
    return changes


def _number(value: Any) -> Any:
    """Numbers such as 1e-3, which YAML takes for text, as numbers."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
