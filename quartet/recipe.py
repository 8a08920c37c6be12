"""Recipe: everything that decides a training run, from presets, the paper's tables and the user's changes.

A preset is a TOML file, one of `recipes/` or your own: fields of `Recipe`, `ModelConfig` and `SamplerConfig` side by
side, and under `[tasks."dataset/task"]` the fields that differ for one task. As TOML has no null, None is "none".
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from quartet.config import ARCHITECTURES, ModelConfig, SamplerConfig, with_tuples
from quartet.errors import UsageError, did_you_mean
from quartet.splits import Protocol

Precision = Literal["auto", "fp32", "bf16"]
PRESETS = ("small", "paper", "paper-val")
_NONE = "none"


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. Defaults are the paper's (section 3, appendix A.3.1)."""

    model: ModelConfig = field(default_factory=ModelConfig)
    samplers: SamplerConfig = field(default_factory=SamplerConfig)
    batch_size: int = 512
    epochs: int = 100
    learning_rate: float = 1e-4  # of Adam, at its highest
    schedule: Literal["constant", "cosine"] = "constant"  # cosine: a short rise, then down to zero at the end
    weight_decay: float = 5e-5  # coupled, as Adam has it
    clip_norm: float = 1.0
    seeds_per_epoch: int | None = None  # None: all; else so many, other ones in each epoch
    recent_share: float = 1.0  # of the training seeds only the latest, this share of them
    validation_seeds: int | None = None  # epochs are compared on so many, always the same ones; None: all
    group_by_time: bool = False  # batches of few distinct times: cheaper, in another order
    history: bool = False  # whether labels that are already known are rows of the database
    names: bool = True  # whether columns that only name their rows are features
    protocol: Protocol = "frozen"
    precision: Precision = "auto"
    time_limit: float | None = None  # seconds of training
    rng_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "seeds_per_epoch", "validation_seeds"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UsageError("C02", f"{name} is {value!r}", "give a whole number above 0")
        for name in ("learning_rate", "clip_norm", "time_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError("C02", f"{name} is {value!r}", "give a number above 0")
        if not 0 < self.recent_share <= 1:
            raise UsageError(
                "C02", f"recent_share is {self.recent_share!r}", "give a share above 0, at most 1"
            )
        if not self.weight_decay >= 0:
            raise UsageError("C02", f"weight_decay is {self.weight_decay!r}", "give 0 or a number above")
        for name in ("history", "names"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError("C02", f"{name} is {getattr(self, name)!r}", "say true or false")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(
                    "C02", f"{name} is {getattr(self, name)!r}", f"say one of {', '.join(allowed)}"
                )

    @property
    def sampler(self) -> SamplerConfig:
        """The samplers' configuration, which gathers what the model reads and nothing else."""
        return self.model.sampler(self.samplers)

    @staticmethod
    def load(preset: str = "small", task: str = "", model: str | None = None, **changes: Any) -> Recipe:
        """A preset, with its settings for one task ("dataset/task") and one model, and some fields changed.

        `preset` may be a .toml file. What it says holds before the model's usual settings; it may name its model.
        """
        is_file = _is_file(preset)
        text = _read_file(preset) if is_file else _read(preset)
        tasks: Mapping[str, dict[str, Any]] = text.pop("tasks", {})
        said = {n: None if v == _NONE else v for n, v in (text | tasks.get(task, {})).items()}
        if is_file:
            return Recipe().changed(**(_read_model(_model_of_file(preset, said, model)) | said | changes))
        return Recipe().changed(**(said | _read_model(model or "quartet") | changes))

    def changed(self, **words: Any) -> Recipe:
        """This recipe with some fields changed, whichever of its parts they belong to."""
        own = {f.name for f in fields(self)} - {"model", "samplers"}
        model = {f.name for f in fields(ModelConfig)}
        samplers = {f.name for f in fields(SamplerConfig)} - own - model
        for word in words:
            if word not in own | model | samplers:
                close = did_you_mean(word, own | model | samplers)
                raise UsageError("C01", f'unknown field "{word}" of a recipe{close}')
        words = with_tuples(words)
        return replace(
            self,
            model=self.model.changed(**{w: v for w, v in words.items() if w in model}),
            samplers=self.samplers.changed(**{w: v for w, v in words.items() if w in samplers}),
            **{w: v for w, v in words.items() if w in own},
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, side by side, as plain values; `Recipe().changed(**that)` is this recipe."""
        words: dict[str, Any] = asdict(self)
        model: dict[str, Any] = words.pop("model")
        samplers: dict[str, Any] = words.pop("samplers")
        return samplers | model | words

    def to_toml(self) -> str:
        """All fields as TOML; `Recipe.load` of a file with it is this recipe."""
        return "".join(f"{name} = {_toml(value)}\n" for name, value in self.to_dict().items())

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


_CHOICES = {
    "protocol": ("frozen", "rolling"),
    "precision": ("auto", "fp32", "bf16"),
    "schedule": ("constant", "cosine"),
}


def _read_model(name: str) -> dict[str, Any]:
    """What differs for one model, whatever the preset."""
    if name not in ARCHITECTURES:
        raise UsageError("C01", f'there is no model "{name}"' + did_you_mean(name, ARCHITECTURES))
    text = (files("quartet") / "recipes" / "models.toml").read_text(encoding="utf-8")
    differing: dict[str, Any] = tomllib.loads(text).get(name, {})
    return {"architecture": name} | differing


def _is_file(preset: str) -> bool:
    return preset.endswith(".toml")


def _read_file(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            "C01", f'there is no recipe "{name}"', f"name a .toml file, or one of {', '.join(PRESETS)}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("C02", f'"{name}" is not TOML: {error}', "correct it there") from None


def _model_of_file(name: str, said: Mapping[str, Any], wanted: str | None) -> str:
    """The model that a file names, or the wanted one where it names none."""
    named: str = said.get("architecture", wanted or "quartet")
    if wanted not in (None, named):
        raise UsageError(
            "C02", f'the recipe "{name}" is for {named}, not for {wanted}', f"say --model {named}"
        )
    return named


def _toml(value: Any) -> str:
    if value is None:
        return _toml(_NONE)
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _read(preset: str) -> dict[str, Any]:
    if preset not in PRESETS:
        raise UsageError("C01", f'there is no preset "{preset}"' + did_you_mean(preset, PRESETS))
    folder = files("quartet") / "recipes"
    name, _, variant = preset.partition("-")
    text = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    selected = {task: words.pop("validation_selected", {}) for task, words in text.get("tasks", {}).items()}
    if variant:  # the cells of the paper's capacity grid that are best on validation, not on test
        for task, words in selected.items():
            text["tasks"][task] |= words
    return text
