"""Which rows moved a score: what it would be had each of them, or each group of them, not been there.

Rows are those that links lead to from the entity, the newest of each path first, and those of the networks' contexts.
Rows of one path and span form a group, which stands in for its rows where none of them alone explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.contexts import Context
from quartet.explain.occlude import visible_links
from quartet.explain.reader import Floats, Ints, Reader
from quartet.explain.result import Change, RowEffect
from quartet.features import link_words
from quartet.tasks import Seeds
from quartet.times import DAY, STATIC, show_length
from quartet.training import BinaryOutput, RegressionOutput, View

_MOST_ROWS = 160  # that are tried one by one
_NEWEST, _NEWEST_BEYOND = 60, 3  # of each path: one link away, and of each row there
_ALONE = 0.5  # of a group's effect: a row with more explains it
_SPANS = (1, 4, 12)  # in units, of which the task's horizon is one
_MOST_SHARED = 50
_MOST_REMOVED = 12
_DRAWN, _ALIKE, _LATELY = "drawn among all that are known", "linked to the same rows", "of late, anywhere"


@dataclass(frozen=True, eq=False)
class Nearby:
    """The rows that may matter to a seed: the path to each, in the order in which they are tried, and all of a path."""

    path: dict[int, str]  # of rows that are tried one by one
    whole: dict[str, Ints]  # all rows of each path that is one link long, oldest first


def nearby(view: View, node: int, time: int, context: Context | None) -> Nearby:
    """Returns the rows around a seed that are visible at its time."""
    whole = dict(_links(view, node, time))
    turns: list[tuple[int, int, str]] = []  # the newest of every path first
    for label, nodes in whole.items():
        turns += [(turn, near, label) for turn, near in enumerate(nodes[::-1][:_NEWEST].tolist())]
    beyond: dict[int, str] = {}
    turns.sort(key=lambda each: each[0])  # never by nodes, which move with other rows
    for _, near, label in turns:
        for further, nodes in _links(view, near, time):
            for other in nodes[::-1][:_NEWEST_BEYOND].tolist():
                beyond.setdefault(other, f"{label}, {further}")
    read = _in_context(view, context) if context is not None else {}
    turns += [(turn, other, beyond.get(other, label)) for turn, (other, label) in enumerate(read.items())]
    turns += [(turn, other, label) for turn, (other, label) in enumerate(beyond.items())]
    path: dict[int, str] = {}
    for _, other, label in sorted(turns, key=lambda each: each[0]):
        path.setdefault(other, label)
    path.pop(node, None)
    return Nearby(path, whole)


def _links(view: View, node: int, time: int) -> list[tuple[str, Ints]]:
    """Returns the visible rows that a row is linked to, oldest first, by each link."""
    nodes, _ = visible_links(view, node, time)
    return [(label, nodes[chosen]) for label, chosen in _labels(view, node, nodes) if chosen.any()]


def _labels(view: View, node: int, others: Ints) -> list[tuple[str, NDArray[np.bool_]]]:
    """Returns which of some rows each link leads to from a row."""
    database, graph = view.database, view.graph
    names, own, table, labels = graph.names, int(graph.types(np.array([node]))[0]), graph.types(others), []
    for relation in database.relations:
        child, parent = names.index(relation.table), names.index(relation.parent)
        if parent == own:
            chosen = table == child
            chosen[chosen] = relation.rows[others[chosen] - graph.offsets[child]] == node - graph.offsets[own]
            labels.append((f"{relation.table} by {relation.foreign_key.distinct_label}", chosen))
        if child == own:
            named = relation.rows[node - graph.offsets[own]] + graph.offsets[parent]
            chosen = (table == parent) & (others == named)
            labels.append((f"{relation.foreign_key.distinct_label} -> {relation.parent}", chosen))
    return labels


def path_words(view: View, path: str) -> str:
    """Returns a path in words, the end of it first: "reports of its flights by dest"."""
    relations, steps = view.database.relations, {}
    for relation in relations:
        label = relation.foreign_key.distinct_label
        steps[f"{label} -> {relation.parent}"] = link_words(relation, relations, to_parent=True)
        steps[f"{relation.table} by {label}"] = link_words(relation, relations)
    taken = path.split(", ")
    return " of its ".join(steps[step] for step in reversed(taken)) if set(taken) <= steps.keys() else path


def _in_context(view: View, context: Context) -> dict[int, str]:
    """Returns the path to each row of a context, by the links that the samplers have kept."""
    node, _, _, edge = context.local(0)
    paths, queue = {0: ""}, [0]
    for place in queue:
        ends = [(a, b) for a, b in edge.tolist() if place in (a, b)]
        for other in dict.fromkeys(b if a == place else a for a, b in ends):
            if other not in paths:
                step = next(
                    (
                        label
                        for label, chosen in _labels(view, int(node[place]), node[[other]].astype(np.int64))
                        if chosen[0]
                    ),
                    "",
                )
                paths[other] = f"{paths[place]}, {step}" if paths[place] else step
                queue.append(other)
    found = {int(node[place]): paths.get(place, _DRAWN) for place in range(len(node))}
    for nodes, label in ((context.collab(0), _ALIKE), (context.temporal(0), _LATELY)):
        for other in nodes.tolist():
            found.setdefault(other, label)
    return found


@dataclass(frozen=True, eq=False)
class Occlusion:
    """A seed whose rows are taken away."""

    reader: Reader
    row: int
    time: int
    chosen: int  # the class that is looked at
    score: float

    @property
    def view(self) -> View:
        return self.reader.live.views[0]

    @property
    def node(self) -> int:
        return int(self.row + self.view.database.offsets[self.view.entity_table])

    @cached_property
    def asked(self) -> Seeds:
        """Returns the seed as a model is asked about it, from which spans of time are counted."""
        return self.reader.seeds(self.view, np.array([self.row]), np.array([self.time]))

    def scores(self, variants: Sequence[Ints]) -> Floats:
        """Returns the score without the nodes of each variant."""
        if not variants:
            return np.empty(0)
        reading = self.reader.read_without(self.row, self.time, variants)
        return self.reader.score(reading, np.full(len(variants), self.chosen))

    def nearby(self) -> Nearby:
        context = None
        if any(piece.is_network and piece.member == 0 for piece in self.reader.pieces):
            (context,) = self.view.contexts(self.asked)
        return nearby(self.view, self.node, int(self.asked.time[0]), context)

    def effects(self) -> tuple[list[RowEffect], list[RowEffect]]:
        """Returns the effects of single rows and of groups, each with its nodes, before they are put into words."""
        singles, groups = self.plain_groups()
        several = [((path, span), nodes) for path, span, _, nodes in groups if len(nodes) > 1]
        variants = [np.array([other], np.int64) for other, _ in singles] + [nodes for _, nodes in several]
        moved = self.score - self.scores(variants)
        alone = [
            self._plain(label, "", np.array([other]), effect)
            for (other, label), effect in zip(singles, moved, strict=False)
        ]
        together = [
            self._plain(label, span, nodes, effect)
            for ((label, span), nodes), effect in zip(several, moved[len(singles) :], strict=True)
        ]
        return alone, together

    def plain_groups(self) -> tuple[list[tuple[int, str]], list[tuple[str, str, str, Ints]]]:
        """Returns rows to try alone with their paths, and all rows by path and span: (path, span, table, nodes)."""
        near = self.nearby()
        groups: dict[tuple[str, str], list[Ints]] = {}
        for label, nodes in near.whole.items():
            self._add_spans(groups, label, nodes)
        further: dict[str, list[int]] = {}
        for other, label in near.path.items():
            if label not in near.whole:
                further.setdefault(label, []).append(other)
        for label, some in further.items():
            self._add_spans(groups, label, np.array(some, np.int64))
        graph, told = self.view.graph, []
        for (label, span), parts in groups.items():
            nodes = np.concatenate(parts)
            table = graph.types(nodes)
            told += [
                (label, span, graph.names[kind], nodes[table == kind]) for kind in np.unique(table).tolist()
            ]
        return list(near.path.items())[:_MOST_ROWS], told

    def _add_spans(self, groups: dict[tuple[str, str], list[Ints]], label: str, nodes: Ints) -> None:
        known, time = self._times(nodes), int(self.asked.time[0])
        unit = self.view.spec.horizon or 30 * DAY
        is_static = known == STATIC
        age = np.where(is_static, -1.0, (time - np.where(is_static, time, known)) / unit)
        edges = [-np.inf, -0.5, *_SPANS, np.inf]
        for low, high, span in zip(edges[:-1], edges[1:], ["", *span_words(unit)], strict=True):
            some = nodes[(age > low) & (age <= high)]
            if len(some):
                groups.setdefault((label, span), []).append(some)

    def _times(self, nodes: Ints) -> Ints:
        graph = self.view.graph
        return np.asarray(graph.times[graph.node_rank[nodes]])

    def _plain(self, path: str, span: str, nodes: Ints, effect: float) -> RowEffect:
        graph = self.view.graph
        times = self._times(nodes)
        time = None if (times == STATIC).all() else int(times.max())
        table = graph.names[int(graph.types(nodes[:1])[0])]
        return RowEffect(
            table, "", "", time, path, span, (), len(nodes), float(effect), tuple(nodes.tolist())
        )

    def told(self, effect: RowEffect) -> RowEffect:
        """Returns an effect with the key, the name and the cells of its row, or the cells that all its rows share."""
        table = self.view.database[effect.table]
        rows = np.array(effect.nodes) - self.view.database.offsets[effect.table]
        linked = {column for key in table.schema.foreign_keys for column in key.columns}
        time = table.schema.time.column if table.schema.time else None
        name_column, cells = self.reader.name_column(effect.table, self.time), list[tuple[str, str]]()
        for name in table.data.column_names:
            if name not in {*table.primary_key, *linked, time, name_column}:
                values = {_text(table.data[name][int(row)].as_py()) for row in rows[-_MOST_SHARED:]}
                if len(values) == 1 and "" not in values:
                    cells.append((name, values.pop()))
        key, name = "", ""
        if len(rows) == 1:
            key, name = self.reader.key_and_name(effect.table, int(rows[0]), self.time)
        path = path_words(self.view, effect.path)
        return replace(effect, key=key, name=name, path=path, cells=tuple(cells[:6]))

    def strongest(self, most: int) -> tuple[list[RowEffect], list[RowEffect]]:
        """Returns the strongest effects in words, groups in the place of their rows where none of these explains them.

        A row that moved the score the other way stays beside its group.

        And all effects of single rows, the strongest first.
        """
        alone, together = self.effects()
        of_node = {effect.nodes[0]: effect for effect in alone}
        shown, hidden = [], set[int]()
        for group in sorted(together, key=lambda each: -abs(each.effect)):
            inside = [of_node[node].effect for node in group.nodes if node in of_node]
            if group.effect and max(map(abs, inside), default=0.0) < _ALONE * abs(group.effect):
                shown.append(group)
                hidden |= {
                    node
                    for node in group.nodes
                    if node in of_node and of_node[node].effect * group.effect > 0
                }
        shown += [effect for effect in alone if effect.effect and effect.nodes[0] not in hidden]
        shown.sort(key=lambda each: -abs(each.effect))
        alone.sort(key=lambda each: -abs(each.effect))
        return [self.told(effect) for effect in shown[:most]], alone

    def changes(self, shown: Sequence[RowEffect], alone: Sequence[RowEffect]) -> tuple[Change, ...]:
        """Returns the fewest removals found that take the score across the threshold; none where there are none."""
        output = self.reader.live.members[0].output
        if isinstance(output, BinaryOutput):
            threshold, name = output.positive_rate, f"the average of {output.positive_rate:.1%} in training"
        elif isinstance(output, RegressionOutput):
            threshold, name = output.median, f"the median of {output.median:.4g} in training"
        else:
            threshold, name = 0.5, "one half"
        side = 1 if self.score > threshold else -1
        ordered = sorted([*shown, *alone], key=lambda each: -side * each.effect)
        useful: list[RowEffect] = []
        for effect in ordered:
            if side * effect.effect > 0 and not any(set(effect.nodes) & set(other.nodes) for other in useful):
                useful.append(effect)
        useful = useful[:_MOST_REMOVED]
        variants = [_joined(useful[: number + 1]) for number in range(len(useful))]
        crossed = np.flatnonzero(side * (self.scores(variants) - threshold) < 0)
        if not len(crossed):
            return ()
        kept = useful[: int(crossed[0]) + 1]
        while len(kept) > 1:
            fewer = [[each for each in kept if each is not effect] for effect in kept]
            still = np.flatnonzero(side * (self.scores([_joined(some) for some in fewer]) - threshold) < 0)
            if not len(still):
                break
            kept = fewer[int(still[-1])]
        score = float(self.scores([_joined(kept)])[0])
        rows = tuple(self.told(effect) for effect in kept)
        shown_score = f"{score:.4g}" if isinstance(output, RegressionOutput) else f"{score:.1%}"
        without = " and ".join(row.words for row in rows)
        words = f"without {without} it would be {shown_score}, {'below' if side > 0 else 'above'} {name}"
        return (Change(rows, score, threshold, words),)


def span_words(unit: int) -> list[str]:
    """Returns the spans of rows in words, the latest first: "in the last day", "1 to 4 days ago"."""
    lengths = [show_length(unit * number) for number in _SPANS]
    words = [f"in the last {lengths[0].removeprefix('1 ')}"]
    for short, long in pairwise(lengths):
        number, unit_word = short.partition(" ")[::2]
        is_same = long.partition(" ")[2].rstrip("s") == unit_word.rstrip("s")
        words.append(f"{number if is_same else short} to {long} ago")
    return [*words, f"more than {lengths[-1]} ago"]


def _joined(effects: Sequence[RowEffect]) -> Ints:
    return np.unique(np.concatenate([np.array(effect.nodes, np.int64) for effect in effects]))


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
