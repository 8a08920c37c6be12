"""Portfolio: the model `auto`. Trees first, then Quartet with its tower, then a blend whose weights validation chooses.

The first trees are an answer within seconds, and kept at once. Two ways of making columns are tried by them, with and
without what all rows of a table held lately; what they choose holds for all. A member is a model like any other, in a
folder of its own; the logits of the portfolio are the weighted mean of theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.evaluation import blend_weight, higher_is_better, selection_value
from quartet.features import is_world
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.registry import model_row
from quartet.tasks import Seeds
from quartet.training import Epoch, Fitted, Member, Output, TrainingData, View, duration

_TREES, _NETWORK = "lightgbm", "quartet"
_BAG = 3  # trees that differ in their random seed
_FOR_TREES = 0.3  # of the time limit: when it is used up, no more of them are fitted
_FILE = "portfolio.json"

Logits = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Portfolio:
    """Members, and how much the logits of each weigh; the weights add up to 1."""

    members: tuple[Member, ...]
    weights: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        data: TrainingData,
        processes: Processes = ALONE,
        listener: Listener = SILENT,
        state: Path | None = None,
    ) -> Fitted | None:
        """Returns the blend that is best on validation, of what the time limit allows."""
        if state is not None and processes.is_first:
            state.mkdir(parents=True, exist_ok=True)  # until it is gone, the run is not done
        return _Fitting(data, processes, listener, state).run()

    @classmethod
    def new(cls, data: TrainingData, recipe: Recipe) -> Portfolio:
        """Returns trees that have learned and a network with random weights, in equal parts: to try what they see."""
        members = []
        for name in (_TREES, _NETWORK):
            own, kind = recipe.changed(architecture=name, time_limit=None), model_row(name).model_class
            told = data.changed(own, data.column_names)
            model = kind.fit(told).model if name == _TREES else kind.new(told, own).eval()
            members.append(Member(name, name, own.rng_seed, 0.0, 0.0, model))
        return cls(tuple(members), (0.5, 0.5))

    def blend(self, logits: Sequence[Logits]) -> Logits:
        """Returns the weighted mean of the members' logits."""
        return np.sum([weight * own for weight, own in zip(self.weights, logits, strict=True)], axis=0)

    def logits(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> Logits:
        """Returns the (S, outputs) logits of seeds; members that weigh nothing are not asked."""
        asked = [
            weight * member.model.logits(view, seeds, listener)
            for member, weight in zip(self.members, self.weights, strict=True)
            if weight
        ]
        return np.sum(asked, axis=0)

    def to(self, device: str) -> Portfolio:
        for member in self.members:
            member.model.to(device)
        return self

    def save(self, folder: Path) -> None:
        facts = [{**asdict(replace(member, model=None)), "weight": w} for member, w in self._weighted]
        (folder / _FILE).write_text(json.dumps(facts, indent=1), encoding="utf-8")
        for number, member in enumerate(self.members):
            (folder / str(number)).mkdir()
            member.model.save(folder / str(number))

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Portfolio:
        facts = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        weights = tuple(float(fact.pop("weight")) for fact in facts)
        members = []
        for number, fact in enumerate(facts):
            named = recipe.changed(architecture=fact["architecture"])
            model = model_row(fact["architecture"]).model_class.load(folder / str(number), named, output)
            members.append(Member(**fact | {"model": model}))
        return cls(tuple(members), weights)

    @property
    def _weighted(self) -> list[tuple[Member, float]]:
        return list(zip(self.members, self.weights, strict=True))

    @property
    def num_parameters(self) -> int:
        return sum(member.model.num_parameters for member in self.members)

    @property
    def leading_columns(self) -> list[str]:
        """Returns the columns by which the first trees gained most."""
        return next((m.model.leading_columns for m in self.members if m.architecture == _TREES), [])

    @property
    def summary(self) -> str:
        weights: dict[str, float] = {}
        for member, weight in self._weighted:
            weights[member.architecture] = weights.get(member.architecture, 0.0) + weight
        counts = [member.architecture for member in self.members]
        parts = [f"{w:.0%} {name} ({counts.count(name)})" for name, w in weights.items() if w]
        return f"a blend of {' and '.join(parts)}"


class _Fitting:
    """A portfolio on its way."""

    def __init__(
        self, data: TrainingData, processes: Processes, listener: Listener, state: Path | None
    ) -> None:
        self.data, self.processes, self.listener, self.state = data, processes, listener, state
        self.begin, self.limit = time.perf_counter(), data.recipe.time_limit
        self.kind, self.labels = data.task.spec.type, data.labels("val")
        self.members: list[Member] = []
        self.logits: list[Logits] = []  # of each, on validation

    def run(self) -> Fitted | None:
        self.listener.begin(_Plan(self.data))
        names = self.data.view.columns.names
        without = tuple(name for name in names if not is_world(name))
        trials = [names] if without == names else [names, without]
        for columns in trials:
            if not self._add(_TREES, "trees" if columns is names else "trees, no world", columns):
                return None
        best = int(np.argmax([self._sign * member.validation for member in self.members]))
        chosen = trials[best]
        self.members, self.logits = [self.members[best]], [self.logits[best]]
        self.listener.member(self.members[0], self._fitted())
        for rng_seed in range(1, _BAG):
            if self._seconds < _FOR_TREES * (self.limit or np.inf):
                if not self._add(_TREES, "trees", chosen, rng_seed):
                    return None
                self.listener.member(self.members[-1], self._fitted())
        left = None if self.limit is None else max(1.0, self.limit - self._seconds)
        if not self._add(
            _NETWORK, "quartet", chosen, time_limit=left, state=self.state and self.state / "network"
        ):
            return None
        self.listener.member(self.members[-1], self._fitted())
        return self._fitted()

    @property
    def _seconds(self) -> float:
        return self.processes.mean(time.perf_counter() - self.begin)

    @property
    def _sign(self) -> int:
        return 1 if higher_is_better(self.data.metric) else -1

    def _value(self, logits: Logits) -> float:
        return selection_value(self.kind, self.labels, self.data.output.scores(logits))

    def _add(
        self,
        architecture: str,
        name: str,
        columns: tuple[str, ...],
        rng_seed: int = 0,
        time_limit: float | None = None,
        state: Path | None = None,
    ) -> bool:
        """Fits a member; tells whether it came to its end."""
        before, own = time.perf_counter(), self.data.recipe
        recipe = own.changed(
            architecture=architecture, rng_seed=own.rng_seed + rng_seed, time_limit=time_limit
        )
        data = self.data.changed(recipe, columns)
        told = _MemberListener(self.listener, architecture == _NETWORK)
        fitted = model_row(architecture).model_class.fit(data, self.processes, told, state)
        if fitted is None:
            return False
        logits = fitted.model.logits(data.view, data.seeds["val"])
        seconds = time.perf_counter() - before
        self.members.append(
            Member(name, architecture, recipe.rng_seed, self._value(logits), seconds, fitted.model)
        )
        self.logits.append(logits)
        return True

    def _fitted(self) -> Fitted:
        """Returns the blend of all members so far: the trees as one, and the network."""
        is_tree = np.array([member.architecture == _TREES for member in self.members])
        weight = 0.0 if is_tree.all() else 1.0
        if is_tree.any() and not is_tree.all():
            trees, network = (np.mean(np.array(self.logits)[which], 0) for which in (is_tree, ~is_tree))
            scores = self.data.output.scores
            weight = blend_weight(
                self.kind,
                self.labels,
                self.data.seeds["val"].node,
                lambda weight: scores((1 - weight) * trees + weight * network),
            )
        weights = np.where(is_tree, (1 - weight) / max(1, is_tree.sum()), weight / max(1, (~is_tree).sum()))
        model = Portfolio(tuple(self.members), tuple(weights.tolist()))
        value = self._value(model.blend(self.logits))
        epoch = Epoch(0, float("nan"), value, self._seconds, 0.0, is_best=True)
        return Fitted(model, [epoch], epoch, model.summary)


@dataclass
class _Plan:
    """A portfolio as a listener is told of it before it begins."""

    data: TrainingData

    def lines(self) -> list[tuple[str, str]]:
        limit = self.data.recipe.time_limit
        stop = f", {duration(limit)} in all" if limit else ""
        return [("model", f"auto: trees, Quartet with a tower, and a blend of both{stop}")]

    def epoch_line(self, epoch: Epoch) -> str:
        return f"validation {self.data.metric} {epoch.validation:.4f}"

    def bar(self) -> None:
        return None


class _MemberListener(Listener):
    """Tells a listener what happens while a member is fitted; of trees only that they ask whether to stop."""

    def __init__(self, listener: Listener, is_network: bool) -> None:
        self.should_stop, self.finding = listener.should_stop, listener.finding  # type: ignore[method-assign]
        if is_network:
            self.begin, self.step = listener.begin, listener.step  # type: ignore[method-assign]
            self.epoch, self.progress = listener.epoch, listener.progress  # type: ignore[method-assign]
