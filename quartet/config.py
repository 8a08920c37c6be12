"""Every setting on one page: what is sampled, the shape of the network, how it is trained, and `Recipe`, all of them.

The paper's symbol, our name, the default, the unit and the meaning of a setting stand in one line; ranges are checked
from there, and `quartet recipe` shows it. A preset is a TOML file, one of `recipes/` or your own: fields side by side,
under `[tasks."dataset/task"]` those that differ for one task, and under `[models.name]` those that differ for one model
(and for a task of it, under its own `tasks`). As TOML has no null, None is "none".
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self, get_args

from quartet.causal import TimeRule
from quartet.errors import UsageError, did_you_mean
from quartet.machine import Precision
from quartet.registry import MODELS, model_row
from quartet.times import SECOND, parse_length

Protocol = Literal["auto", "frozen", "rolling", "clamped"]
Branch = Literal["feature", "topology", "temporal", "collab"]
BRANCHES: tuple[Branch, ...] = ("feature", "topology", "temporal", "collab")
PRESETS = ("small", "paper", "paper-val")
_NONE = "none"
_LARGEST = 2**31 - 1


def _whole(default: int | None, meaning: str, low: int = 1, high: int = _LARGEST) -> Any:
    fix = f"give a whole number from {low} to {high:,}"
    return _setting(default, meaning, lambda v: type(v) is int and low <= v <= high, fix)


def _number(default: float | None, meaning: str, fix: str, low: float, below: float = math.inf) -> Any:
    """Returns a setting from `low` to below `below`; above `low` where the message says so."""
    is_open = "above 0" in fix
    return _setting(
        default, meaning, lambda v: _is_number(v) and low <= v < below and not (is_open and v == low), fix
    )


def _choice(default: Any, meaning: str, *allowed: Any) -> Any:
    fix = f"say one of {', '.join(str(a).lower() if isinstance(a, bool) else str(a) for a in allowed)}"
    return _setting(default, meaning, lambda v: v in allowed and type(v) in map(type, allowed), fix, allowed)


def _flag(default: bool, meaning: str) -> Any:
    return _setting(default, meaning, lambda v: isinstance(v, bool), "say true or false", (True, False))


def _setting(default: Any, meaning: str, is_right: Any, fix: str, allowed: tuple[Any, ...] = ()) -> Any:
    about = {"meaning": meaning, "is_right": is_right, "fix": fix, "allowed": allowed}
    return field(default=default, metadata=about)


def _is_number(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


class _Settings:
    """Fields that check themselves by what their line says."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            value, about = getattr(self, each.name), each.metadata
            if about and not (value is None and _is_optional(each)) and not about["is_right"](value):
                raise UsageError("C02", f"{each.name} is {value!r}", about["fix"])

    def changed(self, **changes: Any) -> Self:
        """Returns these settings with some fields changed; an unknown field is refused with a suggestion."""
        known = {each.name for each in fields(self)}  # type: ignore[arg-type]
        for name in changes:
            if name not in known:
                raise UsageError("C01", f'unknown field "{name}"' + did_you_mean(name, known))
        return replace(self, **changes)  # type: ignore[type-var]


def _is_optional(each: Field[Any]) -> bool:
    return "None" in str(each.type)


def _check_branches(branches: object) -> None:
    if not isinstance(branches, tuple) or not all(isinstance(name, str) for name in branches):
        raise UsageError("C02", f"branches is {branches!r}", f"give some of {', '.join(BRANCHES)}")
    for name in sorted(set(branches) - set(BRANCHES)):
        raise UsageError("C02", f'there is no branch "{name}"' + did_you_mean(name, BRANCHES))


@dataclass(frozen=True)
class SamplingConfig(_Settings):
    """How contexts are gathered (section 2.2 and appendix A.1). Defaults are the paper's.

    A budget counts tokens: `local_budget` includes the seed.
    """

    local_sampler: Literal["walk", "bfs", "uniform"] = _choice(
        "walk",
        "CRW; BFS2, uniform rows within two links; or RelBench's uniform neighbours of each relation",
        "walk",
        "bfs",
        "uniform",
    )
    local: bool = _flag(True, "whether there is a local context; without, the seed stands alone")
    num_walks: int = _whole(100, "W: restart walks of a seed")
    walk_length: int = _whole(10, "L: steps of a walk", high=254)
    restart_prob: float = _number(
        0.15, "p: the chance that a step goes back to the seed", "give a number from 0 to below 1", 0, 1
    )
    max_recent: int | None = _whole(
        50, "M: a walk chooses among a row's M newest visible neighbours; none: all"
    )
    truncation: Literal["recent", "random"] = _choice("recent", "which M of them", "recent", "random")
    local_budget: int = _whole(300, "K: rows of a local context, the seed included", 2, 2**15)
    branches: tuple[Branch, ...] = BRANCHES  # contexts of absent branches are not sampled
    temporal_unit: Literal["rows", "links"] = _choice(
        "rows", "the newest rows of tables, or RGP's newest links", "rows", "links"
    )
    temporal_budget: int = _whole(300, "K_temp: the newest rows, where the unit is rows")
    lookback_days: int = _whole(365, "Δt: how far back they reach, in days")
    recent_links: int = _whole(10, "RGP's k: the newest links of each foreign key, where the unit is links")
    collab_budget: int = _whole(300, "K_collab: look-alikes of a seed")
    collab_hops: Literal[2, 4] = _choice(2, "links to a look-alike: the paper's two, or four", 2, 4)
    first_fanout: int = _whole(
        50, "M1: neighbours that are followed from the seed, by `uniform` for each relation"
    )
    second_fanout: int = _whole(50, "M2: neighbours that are followed from each of those, likewise")
    fallback: Literal["visible", "null"] = _choice(
        "visible", "what a seed without history sees: random visible rows, or none", "visible", "null"
    )
    time_rule: TimeRule = _choice("<=", "a row is visible at its time, or only after it", "<=", "<")
    late_seeds: Literal["own", "held"] = _choice(
        "own",
        "seeds longer after the newest row than any of training: at their own time, or held to where the data end",
        "own",
        "held",
    )
    rng_seed: int = _whole(0, "what the draws are keyed by", 0, 2**63)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_branches(self.branches)

    @property
    def num_hops(self) -> int:
        """Returns how many hop bins there are, the fallback's included."""
        return self.fallback_hop + 1

    @property
    def fallback_hop(self) -> int:
        """Returns the hop bin of rows that were drawn for a seed without history."""
        return max(self.walk_length, 2) + 1  # BFS2 has two hops, however short the walks

    def has(self, branch: Branch) -> bool:
        return branch in self.branches

    def digest(self) -> str:
        """Returns a digest of all that decides the context of a seed: equal settings, equal digests."""
        values = asdict(self) | {"branches": sorted(self.branches)}
        del values["late_seeds"]  # which moves seeds, and samples them as ever
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ModelConfig(_Settings):
    """The shape of the network (sections 2.3 to 2.6). Defaults are the paper's.

    Every ablation of the paper is a value here or in `SamplingConfig`: fewer `branches`, `local=False`,
    `perceiver=False`, `max_recent=None`, `restart_prob=0`. A model reads the fields that it has a use for.
    """

    architecture: str = _setting(
        "quartet", "which model", lambda v: v in tuple(MODELS), f"say one of {', '.join(MODELS)}"
    )
    width: int = _whole(512, "d: numbers of a token")
    heads: int = _whole(4, "H: attention heads")
    local: bool = _flag(True, "whether there is a local module")
    local_layers: int = _whole(1, "L_local: layers of the local transformer")
    branches: tuple[Branch, ...] = BRANCHES
    num_archetypes: int = _whole(512, "R: archetypes of a codebook, or centroids of RelGT")
    perceiver: bool = _flag(
        True, "whether global contexts are read through latents; without, by self-attention"
    )
    num_latents: int = _whole(32, "L_perc: latents of a perceiver")
    latent_layers: int = _whole(4, "L_sa: self-attention layers of the latents")
    conv_layers: int = _whole(
        2, "layers of message passing in HGT and GraphSAGE: how many links far a seed sees"
    )
    dropout: float = _number(
        0.3, "of what attention and feed-forward layers add", "give a number from 0 to below 1", 0, 1
    )
    attention_dropout: float | None = _number(
        None,
        "of attention weights; none: as `dropout`, the paper's tie",
        "give a number from 0 to below 1",
        0,
        1,
    )
    mix: Literal["mlp", "linear"] = _choice("mlp", "how the parts of a token are mixed", "mlp", "linear")
    time: Literal["sinusoid", "linear"] = _choice("sinusoid", "how ages are encoded", "sinusoid", "linear")
    num_frequencies: int = _whole(32, "of the sinusoid, from 1 to 1e-4 radians a day")
    position_layers: int = _whole(4, "layers of the GIN, a quarter as wide as the model")
    encoder_width: int = _whole(128, "of the table encoders, as in PyTorch Frame's ResNet")
    encoder_layers: int = _whole(4, "residual blocks of a table encoder")
    encoder_dropout: float = _number(
        0.2, "inside the table encoders", "give a number from 0 to below 1", 0, 1
    )
    number_init_std: float = _number(
        0.01, "deviation of the first weights of numbers; categories have 1", "give a number above 0", 0
    )
    tower: int = _whole(
        0, "k: heads that also read the seed's relational columns; 0: none do, as in the paper", 0, 64
    )

    kinds: Literal["all", "columns", "trees"] = _choice(
        "all",
        "what `auto` is made of: trees, a tower and networks; columns: no network that reads rows; trees alone",
        "all",
        "columns",
        "trees",
    )
    bag: int = _whole(
        3,
        "towers and networks of `auto` that differ in their random seed, at most; 1: also two sets of trees alone",
        1,
        64,
    )
    extra_trees: bool = _flag(
        False, "whether trees choose among random thresholds, one for each column, instead of all"
    )
    tree_target: Literal["values", "logarithms", "changes"] = _choice(
        "values",
        "what trees of a regression are fitted to: values, logarithms, or in these how a label differs from the mean "
        "of past ones",
        "values",
        "logarithms",
        "changes",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_branches(self.branches)
        if self.width % (4 * self.heads):
            raise UsageError(
                "C03",
                f"width {self.width} cannot be cut into {self.heads} heads and a quarter for positions",
                f"give a multiple of {4 * self.heads}",
            )

    @property
    def dropouts(self) -> tuple[float, float]:
        """Returns the dropout of what layers add, and that of attention weights."""
        weights = self.dropout if self.attention_dropout is None else self.attention_dropout
        return self.dropout, weights

    def has(self, branch: Branch) -> bool:
        return branch in self.branches

    def sampling(self, base: SamplingConfig | None = None) -> SamplingConfig:
        """Returns the sampling settings that gather what this model reads, and nothing else."""
        return replace(base or SamplingConfig(), branches=self.branches, local=self.local)


@dataclass(frozen=True)
class Recipe(_Settings):
    """Everything that decides a training run. Defaults are the paper's (section 3, appendix A.3.1).

    `sampling` always gathers what `model` reads: its branches and its local context follow the model's.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    batch_size: int = _whole(512, "seeds of a step")
    epochs: int = _whole(100, "times through the training seeds, or through `seeds_per_epoch` of them")
    learning_rate: float = _number(1e-4, "of Adam, at its highest", "give a number above 0", 0)
    schedule: Literal["constant", "cosine"] = _choice(
        "constant",
        "of the learning rate; cosine: a short rise, then down to zero at the end",
        "constant",
        "cosine",
    )
    weight_decay: float = _number(5e-5, "coupled, as Adam has it", "give 0 or a number above", 0)
    clip_norm: float = _number(1.0, "the largest norm of a gradient", "give a number above 0", 0)
    seeds_per_epoch: int | None = _whole(None, "so many random seeds an epoch, others in each; none: all")
    train_fraction: float = _number(
        1.0,
        "the latest training seeds, this fraction of them",
        "give a fraction above 0, at most 1",
        0,
        1 + 1e-12,
    )
    validation_seeds: int | None = _whole(
        None, "epochs are compared on so many seeds, always the same; none: all"
    )
    group_by_time: bool = _flag(False, "whether batches have few distinct times: cheaper, in another order")
    past_labels: bool = _flag(False, "whether labels that are already known are rows of the database")
    use_row_names: bool = _flag(True, "whether columns that only name their rows are features")
    text_model: Literal["hash", "sentence"] = _choice(
        "hash",
        "how texts become vectors: hashed words, or a sentence model (extra `text`)",
        "hash",
        "sentence",
    )
    protocol: Protocol = _choice(
        "auto",
        "where the database ends: at the test cut-off (frozen; clamped asks as of that moment, too), or at each "
        "seed's own time (rolling); auto: frozen, where all seeds exist by then",
        *get_args(Protocol),
    )
    refit: Literal["auto", "always", "never"] = _choice(
        "never",
        "whether a model is fitted again to train and validation, once validation has chosen it; auto: trees, if that "
        "helps at an earlier cut-off",
        "auto",
        "always",
        "never",
    )
    precision: Precision = _choice("auto", "the floating-point type of the network", "auto", "fp32", "bf16")
    time_limit: float | None = _number(
        None, "seconds of training, or a length such as 10m; none: no limit", "give a number above 0", 0
    )
    rng_seed: int = _whole(0, "of first weights, the order of seeds, and dropout", 0, 2**31 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for part, kind in ((self.model, ModelConfig), (self.sampling, SamplingConfig)):
            if not isinstance(part, kind):
                raise UsageError("C02", f"a part of the recipe is {part!r}", f"give a {kind.__name__}")
        object.__setattr__(self, "sampling", self.model.sampling(self.sampling))

    @staticmethod
    def load(preset: str = "small", task: str = "", model: str | None = None, **changes: Any) -> Recipe:
        """Returns a preset, with its settings for one task ("dataset/task") and one model, and some fields changed.

        `preset` may be a .toml file. What it says comes before the model's defaults; it may name its model.
        """
        is_file = str(preset).endswith(".toml")
        text = _read_file(preset) if is_file else _read_preset(preset)
        named = text.get("architecture", model or "quartet")
        own = _of_model(text, named, task)
        if not is_file:
            row = model_row(named)
            return Recipe().changed(**(own | {"architecture": row.name} | dict(row.defaults) | changes))
        if model not in (None, named):
            raise UsageError(
                "C02", f'the recipe "{preset}" is for {named}, not for {model}', f"say --model {named}"
            )
        row = model_row(named)
        return Recipe().changed(**({"architecture": row.name} | dict(row.defaults) | own | changes))

    def changed(self, **changes: Any) -> Recipe:
        """Returns this recipe with some fields changed, whichever of its parts they belong to."""
        homes = _homes()
        for name in changes:
            if name not in homes:
                raise UsageError("C01", f'unknown field "{name}" of a recipe{did_you_mean(name, homes)}')
        parts: dict[type, dict[str, Any]] = {Recipe: {}, ModelConfig: {}, SamplingConfig: {}}
        for name, value in with_tuples(changes).items():
            is_length = name == "time_limit" and isinstance(value, str)
            parts[homes[name]][name] = parse_length(value, name) / SECOND if is_length else value
        return replace(
            self,
            model=self.model.changed(**parts[ModelConfig]),
            sampling=self.sampling.changed(**parts[SamplingConfig]),
            **parts[Recipe],
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields, side by side, as plain values; `Recipe().changed(**that)` is this recipe."""
        own: dict[str, Any] = asdict(self)
        model, sampling = own.pop("model"), own.pop("sampling")
        return {**sampling, **model, **own}

    def to_toml(self) -> str:
        """Returns all fields as TOML; `Recipe.load` of a file with it is this recipe."""

        def toml(value: Any) -> str:
            if value is None:
                return json.dumps(_NONE)
            return repr(value) if isinstance(value, float) else json.dumps(value)

        return "".join(f"{name} = {toml(value)}\n" for name, value in self.to_dict().items())

    def digest(self) -> str:
        """Returns a digest of all fields that differ from the paper's: a new one, left at that, changes no digest."""
        paper = Recipe().to_dict()
        changed = {name: value for name, value in self.to_dict().items() if value != paper[name]}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()


def _homes() -> dict[str, type]:
    """Returns each field of a recipe and the part it belongs to: the recipe's own first, then the model's."""
    parts = (
        SamplingConfig,
        ModelConfig,
        Recipe,
    )  # later ones win: `rng_seed` is the recipe's, `branches` the model's
    homes = {each.name: part for part in parts for each in fields(part)}
    return {name: part for name, part in homes.items() if name not in ("model", "sampling")}


def recipe_fields() -> list[tuple[str, Field[Any], str]]:
    """Returns (part, field, meaning) of every setting of a recipe, in the order of this page."""
    titles = {SamplingConfig: "sampling", ModelConfig: "model", Recipe: "training"}
    homes = _homes()
    branches = "parts of the global module, with commas between: feature, topology, temporal, collab"
    return [
        (title, each, each.metadata.get("meaning", branches))
        for part, title in titles.items()
        for each in fields(part)
        if homes.get(each.name) is part
    ]


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields as they were before JSON or TOML made lists of their tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def changes_from_text(settings: list[str]) -> dict[str, Any]:
    """Returns changed fields from `field=value` texts, each read as its field wants it."""
    known = {each.name: each for _, each, _ in recipe_fields()}
    changes: dict[str, Any] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign:
            raise UsageError("C01", f'"{setting}" is not of the form field=value')
        if name.strip() not in known:
            raise UsageError("C01", f'unknown field "{name.strip()}" of a recipe{did_you_mean(name, known)}')
        changes[name.strip()] = _read_value(known[name.strip()], text.strip())
    return changes


def _read_value(each: Field[Any], text: str) -> Any:
    """Returns a setting from text: a choice, a list, none, true or false, a number, or the text itself."""
    if each.name == "branches":
        return tuple(filter(None, (part.strip() for part in text.split(","))))
    for allowed in each.metadata["allowed"]:
        if text.lower() == str(allowed).lower():
            return allowed
    if text.lower() in (_NONE, "null", "") and _is_optional(each):
        return None
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def published_settings(model: str, task: str = "") -> dict[str, Any]:
    """Returns what a baseline's publication says of its settings, for one task ("dataset/task") where it does."""
    return _of_model({"models": _read_preset("paper")["models"]}, model, task)


def _of_model(text: dict[str, Any], model: str, task: str) -> dict[str, Any]:
    """Returns the fields of a preset for a model and a task: its own, the task's, and the model's."""
    plain = {name: value for name, value in text.items() if name not in ("tasks", "models")}
    of_model = dict(text.get("models", {}).get(model, {}))
    of_its_task = of_model.pop("tasks", {}).get(task, {})
    fields_of = plain | text.get("tasks", {}).get(task, {}) | of_model | of_its_task
    return {name: None if value == _NONE else value for name, value in fields_of.items()}


def _read_file(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            "C01", f'there is no recipe "{name}"', f"name a .toml file, or one of {', '.join(PRESETS)}"
        ) from None
    except ValueError as error:
        raise UsageError("C02", f'"{name}" is not TOML: {error}', "correct it there") from None


def _read_preset(preset: str) -> dict[str, Any]:
    if preset not in PRESETS:
        raise UsageError("C01", f'there is no preset "{preset}"' + did_you_mean(preset, PRESETS))
    name, _, variant = preset.partition("-")
    text = tomllib.loads((files("quartet") / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))
    for task in text.get("tasks", {}).values():
        selected = task.pop("validation_selected", {})  # on validation, where another cell is best on test
        task |= selected if variant else {}
    return text
