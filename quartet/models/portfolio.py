"""Portfolio: the model `auto`. Trees first, then networks, then a blend whose weights validation chooses.

    trees            on what one would write by hand, which takes seconds, on all columns of rows one link away, on all
                     columns, and on those of linked rows; of a regression, on logarithms and on changes, too; each
                     choosing among all thresholds or, mostly better with many columns, among random ones
    tower            a perceptron on the columns by which those trees gained
    quartet          the graph transformer, which begins with what the tower has learned

The first trees are an answer within seconds, and kept at once. What is left of the time limit goes into more random
seeds of the networks. A member is a model like any other, in a folder of its own; members of one kind weigh the same.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.evaluation import blend_weights, selection_value
from quartet.features import is_about_others
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.models.tree_target import past_columns
from quartet.models.tree_text import leading_columns
from quartet.registry import model_row
from quartet.tasks import KNOWN_LABELS, Seeds, Split
from quartet.training import Epoch, Fitted, Member, Output, TrainingData, View, duration

_TREES, _TOWER, _NETWORK = "lightgbm", "tower", "quartet"
_FOR_TREES = {"all": 0.4, "columns": 0.75, "trees": 0.95}  # of the time that is left once there are columns
_FOR_TOWER = 0.15  # of the time limit
_FOR_PLAIN = 0.1  # of the time limit, for the first trees, however long columns take
_SCORED = 1000  # seeds that a network scores in a second of one core, until it has shown how many
_TOWER_SEEDS = 5  # times as many seeds has an epoch of the tower
_WITH_REFIT = 1.3  # how much longer a network takes that is fitted further to train and validation
_FEWEST_COLUMNS = 8
_GAINED = 0.99  # networks read the columns that make up so much of what trees have gained
_CELLS = 400_000  # of relational columns for each second of the time limit and core; with more, scouts choose columns
_SCOUTED: dict[Split, int] = {"train": 30_000, "val": 10_000}  # seeds that scouts see
_FOR_SCOUTS = 0.04  # of the time limit, for each of two
_SCOUTED_GAIN = 0.95  # columns that make up so much of what a scout has gained are made of all seeds
_SCOUTED_TREES = (
    "trees",
    "trees on logarithms",
    "trees on changes",
    "trees on own rows",
)  # on the columns of scouts
_LEARNED = 400  # seeds that a network learns from in a second of one core
_ENOUGH_SEEDS = 20_000  # or each of training once, from which a network has to learn to be worth its time
_USUAL = (2 / 3, 1 / 3)  # weights of trees and of networks, where validation does not tell them apart
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
        return Fitting(data, processes, listener, state).run()

    @classmethod
    def new(cls, data: TrainingData, recipe: Recipe) -> Portfolio:
        """Returns trees that have learned and networks with random weights: to try what they see."""
        members = []
        for name in (_TREES, _TOWER, _NETWORK):
            own = recipe.changed(architecture=name, time_limit=None, refit="never")
            kind = model_row(name).model_class
            told = data.changed(own, data.column_names)
            model = kind.fit(told).model if name == _TREES else kind.new(told, own).eval()
            members.append(Member(name, name, own.rng_seed, 0.0, 0.0, model))
        return cls(tuple(members), (0.25, 0.25, 0.5))

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
    def is_refit(self) -> bool:
        """Returns whether some member has seen the labels of validation."""
        return any(member.model.is_refit for member in self.members)

    @property
    def _weighted(self) -> list[tuple[Member, float]]:
        return list(zip(self.members, self.weights, strict=True))

    @property
    def num_parameters(self) -> int:
        return sum(member.model.num_parameters for member in self.members)

    @property
    def gains(self) -> dict[str, float]:
        """Returns what splits by each column gained, on average over the trees as they weigh."""
        return _mean_gains(self.members, self.weights)

    @property
    def leading_columns(self) -> list[str]:
        return leading_columns(self.gains)

    @property
    def summary(self) -> str:
        weights: dict[str, float] = {}
        for member, weight in self._weighted:
            weights[member.name] = weights.get(member.name, 0.0) + weight
        counts = [member.name for member in self.members]
        parts = [f"{w:.0%} {name} ({counts.count(name)})" for name, w in weights.items() if w]
        return f"a blend of {' and '.join(parts)}"


class Fitting:
    """A portfolio on its way."""

    def __init__(
        self, data: TrainingData, processes: Processes, listener: Listener, state: Path | None
    ) -> None:
        self.data, self.processes, self.listener, self.state = data, processes, listener, state
        self.begin, self.limit = time.perf_counter(), data.recipe.time_limit or math.inf
        seconds = (1 - _FOR_TREES["all"] - _FOR_TOWER) * self.limit * processes.mean(torch.get_num_threads())
        self.has_network = seconds * _LEARNED >= min(len(data.seeds["train"]), _ENOUGH_SEEDS)
        self.kind, self.labels = data.task.spec.type, data.labels("val")
        self.bag = data.recipe.model.bag
        self.members: list[Member] = []
        self.logits: list[Logits] = []  # of each, on validation

    def run(self) -> Fitted | None:
        """Returns the blend of all that the time limit allows; None if it was stopped."""
        columns = self.fit_on_columns()
        return None if columns is None else self.fit_networks(columns)

    def fit_on_columns(self) -> tuple[str, ...] | None:
        """Fits trees and a tower; returns the columns that networks read, none where trees alone are the answer.

        None, if it was stopped.
        """
        if self.state is not None and self.processes.is_first:
            self.state.mkdir(parents=True, exist_ok=True)  # until it is gone, the run is not done
        self.listener.begin(_Plan(self.data, self.kinds))
        turns = self._turns()
        name, columns, target, is_extra = turns[0]  # before all columns are made
        short = None if self.limit == math.inf else max(1.0, _FOR_PLAIN * self.limit)
        changes: dict[str, Any] = {"extra_trees": is_extra, "tree_target": target, "time_limit": short}
        if not self.add(_TREES, name, columns, **changes):
            return None
        worth, every = self._scouted(), self.data.column_names
        if len(worth) < len(every):
            self.data, every = self.data.reading(worth), worth
            turns = [turns[0], *(turn for turn in self._turns() if turn[0] in _SCOUTED_TREES)]
        if self.limit < math.inf:
            self.data = self.data.fewer(
                train=max(_SCOUTED["train"], int(self._affordable_cells / len(every)))
            )
        self.data.columns("train"), self.data.columns("val")
        num_read, begun = 0, self._seconds  # columns that trees have read, and since when
        end = begun + _FOR_TREES[self.kinds] * max(0.0, self.limit - begun)
        if self.limit < math.inf:  # columns that took the whole limit are read, too
            end = max(end, begun + _FOR_PLAIN * self.limit)
        for number, (name, columns, target, is_extra) in enumerate(turns[1:], 1):
            more = (self._seconds - begun) * len(columns) / max(1, num_read)
            expected = self._seconds + (
                more if num_read >= len(every) else 0.0
            )  # all columns are tried in any case
            if expected > end:
                break  # another would take the trees beyond their part of the time
            num_read += len(columns)
            share = 0.5 if name == "trees on near rows" else 1.0  # those on all columns come after these
            left = None if self.limit == math.inf else max(1.0, share * (end - self._seconds))
            changes = {"extra_trees": is_extra, "tree_target": target, "time_limit": left}
            if not self.add(_TREES, name, columns, number, **changes):
                return None
        if self.left <= 0 or self.kinds == "trees":
            return ()
        columns = self.gained(every)
        short = min(_FOR_TOWER * self.limit, max(1.0, self.left))
        return columns if self.add(_TOWER, "tower", columns, time_limit=short) else None

    def fit_networks(self, columns: tuple[str, ...]) -> Fitted | None:
        """Returns the blend, with networks on columns in the time that is left; None if it was stopped."""
        if not columns or self.kinds == "trees":
            return self._fitted()
        networks = (_TOWER, _NETWORK) if self.kinds == "all" else (_TOWER,)
        if _NETWORK in networks and not self._add_network(columns, self.start):
            return None
        for rng_seed in range(1, self.bag):
            for kind in networks:  # these begin anew: they differ more
                before = next(m.seconds for m in self.members if m.architecture == kind)
                if self.left > 1.5 * before and not self.add(
                    kind, kind, columns, rng_seed, time_limit=self._for_network
                ):
                    return None
        return self._fitted()

    @property
    def kinds(self) -> str:
        """Returns the kinds of members: without networks that read rows, where these would hardly begin to learn."""
        wanted = self.data.recipe.model.kinds
        return "columns" if wanted == "all" and not self.has_network else wanted

    def _turns(self) -> list[tuple[str, tuple[str, ...], str, bool]]:
        """Returns the trees to be grown: a name, columns, what is learned, and whether thresholds are random."""
        every, made = self.data.column_names, self.data.view.columns
        plain, near = (tuple(name for name in every if name in some) for some in (made.plain, made.near))
        own = tuple(name for name in every if not is_about_others(name))
        # Whether thresholds are random at first; each set of columns once.
        kinds = {"plain trees": (plain, "values", False), "trees on near rows": (near, "values", True)}
        kinds |= {"trees": (every, "values", self.has_network)}  # short of time, those of `lightgbm`
        if self.data.task.spec.facts.is_number:
            kinds |= {"trees on logarithms": (every, "logarithms", False)}
            kinds |= {"trees on changes": (every, "changes", True)} if past_columns(self.data) else {}
        kinds |= {"trees on own rows": (own, "values", False)}
        names = {
            what[:2]: "trees" if what[:2] == kinds["trees"][:2] else name for name, what in kinds.items()
        }
        trees = [(name, *what, kinds[name][2]) for what, name in names.items()]
        turns = [(*one[:3], one[3] != is_again) for is_again in (False, True) for one in trees]
        if self.bag == 1:  # the first, and those on all columns
            turns = [one for one in turns[: len(trees)] if one[0] in ("plain trees", "trees")]
        return turns

    def _scouted(self) -> tuple[str, ...]:
        """Returns the columns that are worth making: of many seeds, those by which trees gain that see some of them."""
        every, num_seeds = self.data.column_names, sum(len(self.data.seeds[split]) for split in _SCOUTED)
        if num_seeds * len(every) <= self._affordable_cells or num_seeds <= sum(_SCOUTED.values()):
            return every
        some, chosen = self.data.fewer(**_SCOUTED), set[str]()
        for is_extra in (True, False):
            changes: dict[str, Any] = {"extra_trees": is_extra, "refit": "never"}
            recipe = self.recipe_of(_TREES, time_limit=max(1.0, _FOR_SCOUTS * self.limit), **changes)
            fitted = model_row(_TREES).model_class.fit(some.changed(recipe, every), self.processes)
            chosen |= _gained([fitted.model], _SCOUTED_GAIN)
        if len(chosen) < _FEWEST_COLUMNS:
            return every
        return tuple(
            name for name in every if name in chosen or KNOWN_LABELS in name
        )  # trees may begin with these

    def _add_network(self, columns: tuple[str, ...], start: Any) -> bool:
        if self.limit < math.inf:
            self.data = self.data.fewer(train=self._seen(columns))
        with self.processes.first_alone():  # so that the time limit is one of training alone
            self.data.changed(self.recipe_of(_NETWORK), columns).context("train")
        return self.add(_NETWORK, "quartet", columns, start=start, time_limit=self._for_network)

    @property
    def _affordable_cells(self) -> float:
        """Returns how many cells of columns can be made, put into bins and learned from in the time limit."""
        return _CELLS * self.limit * torch.get_num_threads()

    def _seen(self, columns: tuple[str, ...]) -> int:
        """Returns how many seeds a network can learn from in the time that is left: the others need no context."""
        data = self.data.changed(self.recipe_of(_NETWORK), columns)
        a_context = self.processes.mean(data.seconds_of_a_context())
        a_seed = a_context + 1 / (_LEARNED * torch.get_num_threads())
        left = self.left - len(self.data.seeds["val"]) * a_context
        return max(2 * self.data.recipe.batch_size, int(left / a_seed))

    @property
    def _seconds(self) -> float:
        return self.processes.mean(time.perf_counter() - self.begin)

    @property
    def left(self) -> float:
        """Returns the seconds that are left for fitting: afterwards networks score validation and test."""
        threads, scored = torch.get_num_threads(), len(self.data.seeds["val"]) + len(self.data.seeds["test"])
        return self.limit - self._seconds - scored / (_SCORED * threads)

    @property
    def start(self) -> Any:
        """Returns the weights of the tower from before it saw the labels of validation: a network goes on from them."""
        return next(m.model.chosen_readout for m in self.members if m.architecture == _TOWER)

    @property
    def _for_network(self) -> float | None:
        return None if self.limit == math.inf else max(1.0, self.left / _WITH_REFIT)

    def gained(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the columns that make up nearly all of what any of the trees has gained by them."""
        chosen = _gained([member.model for member in self.members], _GAINED)
        return tuple(name for name in names if name in chosen) if len(chosen) >= _FEWEST_COLUMNS else names

    def recipe_of(self, architecture: str, rng_seed: int = 0, **changes: Any) -> Recipe:
        own = self.data.recipe
        alone: dict[str, Any] = {}
        if architecture == _TOWER:  # which is many times faster than a network that reads rows
            more = own.seeds_per_epoch and _TOWER_SEEDS * own.seeds_per_epoch
            alone = {"local": False, "branches": (), "seeds_per_epoch": more}
        if architecture != _TREES:
            alone["refit"] = "never" if own.refit == "never" else "always"
        return own.changed(
            **({"architecture": architecture, "rng_seed": own.rng_seed + rng_seed} | alone | changes)
        )

    def add(
        self,
        architecture: str,
        name: str,
        columns: tuple[str, ...],
        rng_seed: int = 0,
        start: Any = None,
        **changes: Any,
    ) -> bool:
        """Fits a member; tells whether it came to its end."""
        before = time.perf_counter()
        recipe = self.recipe_of(architecture, rng_seed, **changes)
        data = self.data.changed(recipe, columns, start, _mean_gains(self.members))
        told = _MemberListener(self.listener, architecture == _NETWORK)
        state = self.state and self.state / f"{architecture}-{rng_seed}"
        fitted = model_row(architecture).model_class.fit(data, self.processes, told, state)
        if fitted is None:
            return False
        (logits,) = fitted.validation or [fitted.model.logits(data.view, data.seeds["val"])]
        seconds, value = self.processes.mean(time.perf_counter() - before), self._value(logits)
        self.members.append(Member(name, architecture, recipe.rng_seed, value, seconds, fitted.model))
        self.logits.append(logits)
        self.listener.member(self.members[-1], self._fitted(is_done=False))
        return True

    def _value(self, logits: Logits) -> float:
        return selection_value(self.kind, self.labels, self.data.output.scores(logits))

    def _fitted(self, is_done: bool = True) -> Fitted:
        """Returns the blend of all members so far: of the kinds of trees, of those of networks, and then of the two."""
        names: dict[bool, list[str]] = {}
        for member in self.members:
            names.setdefault(member.architecture == _TREES, []).append(member.name)
        kinds = []
        for own in names.values():
            means = [
                np.array([m.name == name for m in self.members]) / own.count(name)
                for name in dict.fromkeys(own)
            ]
            kinds.append(self._blend(means, is_done))
        usual = _USUAL if len(kinds) == len(_USUAL) else None
        model = Portfolio(tuple(self.members), tuple(self._blend(kinds, is_done, usual).tolist()))
        value = self._value(model.blend(self.logits))
        epoch = Epoch(0, float("nan"), value, self._seconds, 0.0, is_best=True)
        return Fitted(model, [epoch], epoch, model.summary, list(self.logits))

    def _blend(self, parts: Sequence[Logits], is_done: bool, usual: Sequence[float] | None = None) -> Logits:
        """Returns the weights of members in a blend of parts, each of which is given by such weights.

        Validation chooses how much of each is taken; until all are done, the usual part, or the same of all.
        """
        of_part = usual or [1 / len(parts)] * len(parts)
        if is_done and len(parts) > 1:
            asked, scores = self.data.seeds["val"], self.data.output.scores
            logits = [np.tensordot(part, np.stack(self.logits), 1) for part in parts]
            of_part = blend_weights(self.kind, self.labels, (asked.node, asked.time), logits, scores, usual)
        return np.asarray(np.tensordot(of_part, np.stack(parts), 1))


def _mean_gains(members: Sequence[Member], weights: Sequence[float] = ()) -> dict[str, float]:
    """Returns what splits by each column gained on average over trees, of which all weigh the same without weights."""
    trees = [place for place, member in enumerate(members) if member.architecture == _TREES]
    total = sum(weights[place] for place in trees) if weights else 0.0
    gains: dict[str, float] = {}
    for place in trees:
        share = weights[place] / total if total else 1 / len(trees)
        for name, gain in members[place].model.gains.items():
            gains[name] = gains.get(name, 0.0) + gain * share
    return gains


def _gained(models: Sequence[Any], part: float) -> set[str]:
    """Returns the columns that make up this part of what any of some trees has gained by them."""
    chosen: set[str] = set()
    for model in models:
        order = sorted(model.gains.items(), key=lambda gain: -gain[1])
        before = np.cumsum([0.0, *(gain for _, gain in order)])
        chosen |= {name for (name, gain), total in zip(order, before, strict=False) if gain and total < part}
    return chosen


@dataclass
class _Plan:
    """A portfolio as a listener is told of it before it begins."""

    data: TrainingData
    kinds: str

    def lines(self) -> list[tuple[str, str]]:
        limit = self.data.recipe.time_limit
        stop = f", {duration(limit)} in all" if limit else ""
        kinds = {
            "all": "trees, a tower on their columns, Quartet with that tower, and a blend",
            "columns": "trees, towers on their columns, and a blend",
            "trees": "trees, and a blend of them",
        }
        told = [("model", f"auto: {kinds[self.kinds]}{stop}")]
        if self.kinds != self.data.recipe.model.kinds:
            told.append(("left out", "Quartet: so many rows take a longer --time-limit"))
        return told

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
