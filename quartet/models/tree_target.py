"""What trees are fitted to, and where they begin: `TreeTarget` of a regression, `ClassStart` of classes, `ListStart`
of lists of them.

A median stays a median under any rising scale, so trees that are fitted to logarithms answer the same question, and
a few very large labels do not decide their splits. Trees that begin with the mean of an entity's past labels learn only
how the next label differs from it: where entities differ by more than their columns tell, that is much easier.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.features import CODE, FIRST_CODE, LAST, MEAN_PAST_LABEL, NUM_LISTS, list_column
from quartet.tasks import KNOWN_LABELS, LABEL, class_codes
from quartet.training import RegressionOutput, TrainingData

Floats = NDArray[np.float64]
_CLASS_PATHS, _IN_PATH = f"{KNOWN_LABELS} ", f", {KNOWN_LABELS} "  # how names of columns of past labels go on
_WEIGHTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # of a class's rate, in lists
_MOSTLY = 0.5  # of training rows have the class of past labels, for trees to begin with it


@dataclass(frozen=True)
class TreeTarget:
    """Labels as trees learn them, and back: `u = sign(x) log(1 + |x|)` with `x = (label - low) / size`."""

    median: float  # of the model's output, which is standardised
    spread: float
    low: float
    size: float
    most: float  # the largest |u| of training
    begins: bool = False  # with the mean of past labels, in the same scale
    past_mean: float = 0.0  # of the column of past labels
    past_std: float = 1.0
    column: str = MEAN_PAST_LABEL  # that one, of an entity's own or of rows that it has a row in common with

    @staticmethod
    def of(data: TrainingData) -> TreeTarget | None:
        """Returns the target that the recipe wants; None for values as they are."""
        wanted, output = data.recipe.model.tree_target, data.output
        if wanted == "values" or not isinstance(output, RegressionOutput):
            return None
        above = data.labels("train") - output.low
        size = float(np.median(above) or above.mean() or 1.0)
        told = TreeTarget(output.median, output.spread, output.low, size, 0.0)
        told = TreeTarget(**asdict(told) | {"most": float(np.abs(told.learned(data.labels("train"))).max())})
        if wanted == "logarithms" or not past_columns(data):
            return told
        return told._begun(data)

    def _begun(self, data: TrainingData) -> TreeTarget:
        """Returns the target that begins with the past labels which tell those of training best."""
        scale = data.features.statistics.tables[KNOWN_LABELS].of("number")[LABEL]
        facts = asdict(self) | {"begins": True, "past_mean": scale.mean, "past_std": scale.std}
        targets = [TreeTarget(**facts | {"column": name}) for name in past_columns(data)]
        matrix, names, learned = data.columns("train"), data.column_names, self.learned(data.labels("train"))
        misses = [float(np.abs(one._past(matrix, names) - learned).mean()) for one in targets]
        return targets[int(np.argmin(misses))]

    def learned(self, labels: NDArray[Any]) -> Floats:
        """Returns labels as trees are fitted to them."""
        x = (np.asarray(labels, dtype=np.float64) - self.low) / self.size
        return np.asarray(np.sign(x) * np.log1p(np.abs(x)))

    def start(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> Floats | None:
        """Returns where trees begin for each row; without past labels, at the median."""
        return self._past(matrix, names) if self.begins else None

    def _past(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> Floats:
        mean = matrix[:, names.index(self.column)].astype(np.float64) * self.past_std + self.past_mean
        return self.learned(np.where(np.isnan(mean), self.median, mean))

    def standardised(self, raw: Floats) -> Floats:
        """Returns what trees have answered, in the scale of the model's output."""
        u = np.clip(raw, -self.most, self.most)
        labels = np.sign(u) * np.expm1(np.abs(u)) * self.size + self.low
        return np.asarray((labels - self.median) / self.spread)

    def shares(
        self, added: Floats, base: Floats, matrix: NDArray[np.float32], names: tuple[str, ...]
    ) -> Floats:
        """Returns what columns add in the scale of the model's output, in proportion to what they add to the trees'.

        Where trees begin counts as added by the column of past labels.
        """
        start = self.start(matrix, names)
        if start is not None:
            added[:, 0, names.index(self.column)] += start
        moved = added.sum(2)
        whole = self.standardised(base + moved) - self.standardised(base)
        return added * np.divide(whole, moved, out=np.zeros_like(moved), where=moved != 0)[:, :, None]


class _Start:
    """Where trees of logits begin, and which column told so of each class."""

    @property
    def told_by(self) -> tuple[str, ...]:
        """Returns the column of each class; empty where none tells it."""
        raise NotImplementedError

    @property
    def base(self) -> Floats:
        """Returns the logits of the rates, where trees would begin if no column told anything."""
        raise NotImplementedError

    def start(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> Floats:
        """Returns the (S, classes) logits at which trees begin."""
        raise NotImplementedError

    def standardised(self, raw: Floats) -> Floats:
        return raw

    def shares(
        self,
        added: Floats,
        base: Floats,  # noqa: ARG002 (a logit is the sum of its shares)
        matrix: NDArray[np.float32],
        names: tuple[str, ...],
    ) -> Floats:
        """Returns what columns add to each logit; where trees begin counts as added by the column that told it."""
        moved = self.start(matrix, names) - self.base
        for place, column in enumerate(self.told_by):
            if column:
                added[:, place, names.index(column)] += moved[:, place]
        return added


@dataclass(frozen=True)
class ClassStart(_Start):
    """Trees of classes that begin with the class of past labels, where mostly it comes again.

    They begin with `p = share [class is that of past labels] + (1 - share) rate`, and learn what speaks against it. A
    class that training had once is so told as well as a common one.
    """

    column: str  # of codes: which class past labels have
    classes: tuple[int, ...]  # of each code, -1 for none
    share: float  # of training rows that have that class
    rates: tuple[float, ...]  # of all classes in training

    @staticmethod
    def of(data: TrainingData) -> ClassStart | None:
        """Returns where trees begin by training labels; None where past labels tell less than half of them."""
        tables, classes = data.features.statistics.tables, data.task.classes
        column = tables[KNOWN_LABELS].of("category").get(LABEL) if KNOWN_LABELS in tables else None
        codes = [name for name in data.column_names if name.startswith(_CLASS_PATHS) or _IN_PATH in name]
        codes = [name for name in codes if name.endswith(CODE)]
        if classes is None or column is None or not codes:
            return None
        spec = data.task.spec
        values = pa.chunked_array([pa.array(list(column.vocabulary))])
        known = class_codes(values, classes, spec, f'task "{spec.name}"')
        places = tuple([-1] * FIRST_CODE + np.where(known < len(classes), known, -1).tolist())
        labels, matrix = data.labels("train"), data.columns("train")
        counts = np.bincount(labels, minlength=len(classes)) + 0.5
        rates = tuple((counts / counts.sum()).tolist())
        found: tuple[float, ClassStart] | None = None
        for name in codes:
            told = ClassStart(name, places, 0.0, rates).told(matrix, data.column_names)
            right = float((told == labels).mean())
            if right > max(_MOSTLY, found[0] if found else 0.0):
                share = float(np.clip((told == labels)[told >= 0].mean(), 0.01, 0.99))
                found = right, ClassStart(name, places, share, rates)
        return found[1] if found else None

    def told(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> NDArray[np.int64]:
        """Returns the class of past labels of each row, -1 where there are none."""
        codes = np.nan_to_num(matrix[:, names.index(self.column)]).astype(np.int64)
        known = np.array(self.classes)
        return np.asarray(np.where(codes < len(known), known[np.minimum(codes, len(known) - 1)], -1))

    def learned(self, labels: NDArray[Any]) -> NDArray[Any]:
        return labels

    def start(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> Floats:
        """Returns the (S, classes) logits at which trees begin."""
        told, chance = self.told(matrix, names), np.tile(self.rates, (len(matrix), 1))
        chance[told >= 0] *= 1 - self.share
        chance[told >= 0, told[told >= 0]] += self.share
        return np.log(chance)

    @property
    def told_by(self) -> tuple[str, ...]:
        return (self.column,) * len(self.rates)

    @property
    def base(self) -> Floats:
        return np.log(self.rates)


@dataclass(frozen=True)
class ListStart(_Start):
    """Trees of lists that begin with how many of an entity's last lists had each class.

    They begin with `p = (n share + weight rate) / (n + weight)`, n being how many of the last twelve lists are known.
    """

    columns: tuple[str, ...]  # of each class, its share; empty where no column tells it
    weight: float  # of the rate, by the loss of training labels
    rates: tuple[float, ...]  # of all classes in training

    @staticmethod
    def of(data: TrainingData) -> ListStart | None:
        """Returns where trees begin; None without past lists, or where these tell less than the rates do."""
        labels, classes, names = data.labels("train"), data.task.classes, data.column_names
        columns = tuple(list_column(str(name)) for name in classes or ())
        columns = tuple(name if name in names else "" for name in columns)
        if data.task.spec.type != "multilabel_classification" or NUM_LISTS not in names or not any(columns):
            return None
        labels = labels[:, : len(columns)]
        rates = (labels.sum(0) + 0.5) / (len(labels) + 1)
        base, matrix = np.log(rates / (1 - rates)), data.columns("train")
        starts = [ListStart(columns, weight, tuple(rates.tolist())) for weight in _WEIGHTS]
        logits = [base[None], *(start.start(matrix, names) for start in starts)]
        losses = [float((np.logaddexp(0, logit) - labels * logit).mean()) for logit in logits]
        return [None, *starts][int(np.argmin(losses))]

    def learned(self, labels: NDArray[Any]) -> NDArray[Any]:
        return labels[:, : len(self.rates)]

    def start(self, matrix: NDArray[np.float32], names: tuple[str, ...]) -> Floats:
        """Returns the (S, classes) logits at which trees begin."""
        num = np.nan_to_num(matrix[:, names.index(NUM_LISTS)].astype(np.float64)).clip(0, LAST)
        chance = np.tile(self.rates, (len(matrix), 1))
        for place, column in enumerate(self.columns):
            if column:
                share = np.nan_to_num(matrix[:, names.index(column)].astype(np.float64))
                chance[:, place] = (num * share + self.weight * chance[:, place]) / (num + self.weight)
        return np.asarray(np.log(chance / (1 - chance)))

    @property
    def told_by(self) -> tuple[str, ...]:
        return self.columns

    @property
    def base(self) -> Floats:
        rates = np.array(self.rates)
        return np.asarray(np.log(rates / (1 - rates)))


def past_columns(data: TrainingData) -> list[str]:
    """Returns the columns of the mean of past labels, on each path to them, where these hold numbers."""
    tables = data.features.statistics.tables
    is_number = KNOWN_LABELS in tables and LABEL in tables[KNOWN_LABELS].of("number")
    return [name for name in data.column_names if name.endswith(MEAN_PAST_LABEL)] if is_number else []


def target_from(
    facts: dict[str, Any], num_outputs: int, names: tuple[str, ...]
) -> TreeTarget | ClassStart | ListStart:
    """Returns what was kept of a target; a ValueError where it could lead astray."""
    if "rates" not in facts:
        numbers = TreeTarget(**facts)
        if numbers.begins and numbers.column not in names:
            raise ValueError("trees begin with a column that there is not")
        return numbers
    if "weight" in facts:
        lists = ListStart(tuple(facts["columns"]), float(facts["weight"]), tuple(facts["rates"]))
        is_right = len(lists.rates) == len(lists.columns) == num_outputs and lists.weight > 0
        is_right &= {NUM_LISTS, *filter(None, lists.columns)} <= set(names)
        if not is_right or not all(0 < rate < 1 for rate in lists.rates):
            raise ValueError("trees begin with lists that there are not")
        return lists
    kept = ClassStart(facts["column"], tuple(facts["classes"]), float(facts["share"]), tuple(facts["rates"]))
    is_right = len(kept.rates) == num_outputs and all(rate > 0 for rate in kept.rates)
    if not is_right or not 0 < kept.share < 1 or not all(-1 <= c < num_outputs for c in kept.classes):
        raise ValueError("trees begin where there is no class")
    return kept
