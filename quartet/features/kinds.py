"""Which kind of feature each column of a table is, from the rows known at a cut-off, and why.

    yes or no                   category
    timestamps                  time
    decimals                    number
    whole numbers               category if named like a code, or few; else number
    text                        category if few; multi-category if a separator keeps parts of a small
                                vocabulary apart; else text
    lists of words or numbers   multi-category
    structs, binary             unused

Keys and links are not features. A column without a value, or with one value in every row, tells nothing and is
left out. What the schema file says under `kinds` goes before all this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quartet.database import Database, Table, singular, split, word_set
from quartet.errors import SchemaError, examples
from quartet.features.arrays import Kind
from quartet.features.cells import FAMILIES, Cells, split_parts, visible_cells
from quartet.findings import Finding, note
from quartet.times import NEVER, parse_instant, show_instant

_CODES = word_set(
    "id uuid guid key code no nr number type status state class kind group flag category cat mode"
)
_FEW_NUMBERS = 10
_FEW_TEXTS = 1_000
_MOST_TEXTS = 10_000
_FEWEST_NAMES = 50
_MOST_WORDS_OF_A_NAME = 1.5  # on average
_SEPARATORS = {"|": 2, ";": 2, ",": 10}  # in how many distinct texts each part stands, on average, at least


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column, why, and for text of several categories what keeps them apart.

    Where the reason counts values, it counts distinct ones.
    `code` is the one of the catalogue under which a column that tells nothing is reported.
    `is_name`: it tells rows apart, and says nothing that holds for several of them; never of a kind that was told.
    """

    kind: Kind | Literal["unused"]
    why: str
    separator: str = ""
    code: str = ""
    is_name: bool = False


def feature_columns(table: Table) -> list[str]:
    """Returns the columns that may be features: all but keys and links, and these too if the schema file says so."""
    links = (column for fk in table.schema.foreign_keys for column in fk.columns)
    keys = {*table.primary_key, *links} - set(table.schema.kinds)
    return [name for name in table.data.column_names if name not in keys]


def kinds_of(table: Table, cells: Mapping[str, Cells]) -> dict[str, ColumnKind]:
    """Returns the kind of each column, from its visible cells."""
    told = table.schema.kinds
    return {
        name: _told(f"{table.name}.{name}", told[name], column) if name in told else _inferred(name, column)
        for name, column in cells.items()
    }


def inspected_kinds(database: Database) -> tuple[dict[str, dict[str, ColumnKind]], list[Finding]]:
    """Returns the kinds of all columns by table, and what is left out, before there is a task.

    They are those of the rows known when validation begins, or of all rows if the schema does not say when.
    """
    val = database.schema.val_timestamp
    cutoff = NEVER if val is None else parse_instant(val, "val_timestamp")
    kinds, findings = {}, []
    for name, table in database.tables.items():
        kinds[name] = kinds_of(table, visible_cells(table, feature_columns(table), cutoff))
        findings += kind_findings(name, kinds[name], cutoff)
    return kinds, findings


def kind_findings(table: str, kinds: Mapping[str, ColumnKind], cutoff: int) -> list[Finding]:
    """Returns a note on the columns that are left out because they tell nothing at the cut-off."""
    when = "" if cutoff == NEVER else f" known at {show_instant(cutoff)}"
    findings = []
    for code, what in (("V01", "no value in any row"), ("V10", "the same value in every row")):
        names = [name for name, column in kinds.items() if column.code == code]
        if names:
            has, is_ = ("1 column has", "is") if len(names) == 1 else (f"{len(names):,} columns have", "are")
            text = f'table "{table}": {has} {what}{when} and {is_} not used {examples(names)}'
            findings.append(note(code, table, text, len(names)))
    return findings


def _told(where: str, kind: str, cells: Cells) -> ColumnKind:
    if cells.family == "nothing":
        return ColumnKind("unused", "no value", code="V01")
    possible = ("unused", *FAMILIES[cells.family].kinds)
    if kind not in possible:
        raise SchemaError(
            "V06",
            f"{where} holds {FAMILIES[cells.family].words} and cannot be of the kind {kind}",
            f"under kinds, say {' or '.join(possible)}",
        )
    separator = ""
    if (
        kind == "multicategory" and cells.family == "text"
    ):  # the one that stands in most of the distinct texts
        separator = max(
            _SEPARATORS, key=lambda s: pc.sum(pc.match_substring(cells.counts[0], s)).as_py() or 0
        )
    return ColumnKind(kind, "as told", separator)  # type: ignore[arg-type]


def _inferred(name: str, cells: Cells) -> ColumnKind:
    if cells.family == "other":
        return ColumnKind("unused", "nested or binary", code="V09")
    if not cells.num_filled:
        return ColumnKind("unused", "no value", code="V01")
    if cells.is_constant:
        return ColumnKind("unused", "one value", code="V10")
    match cells.family:
        case "truth":
            return ColumnKind("category", "yes or no")
        case "time":
            return ColumnKind("time", "timestamps")
        case "number":
            return _number(name, cells)
        case "text":
            return _text(cells)
    return ColumnKind("multicategory", f"lists of {_count(cells.num_distinct, 'part')}")


def _count(distinct: int, noun: str) -> str:
    return f"{distinct:,} {noun}" + ("s" if distinct != 1 else "")


def _number(name: str, cells: Cells) -> ColumnKind:
    if not cells.is_whole:
        return ColumnKind("number", "decimals")
    distinct, rows, words = cells.num_distinct, cells.num_filled, split(name)
    # `statusId`, `PostTypeId`, `flight_number` and `class` end like the name of a code.
    if words and singular(words[-1]) in _CODES and 2 * distinct <= rows:
        return ColumnKind("category", f"named like a code, {_count(distinct, 'value')}")
    is_few = distinct <= _FEW_NUMBERS and 4 * distinct <= rows
    return ColumnKind("category" if is_few else "number", _count(distinct, "whole number"))


def _text(cells: Cells) -> ColumnKind:
    """Returns a category for few texts that stand in many rows; the more there are, the more rows each must have."""
    strings, counts = cells.counts
    distinct, rows = len(strings), cells.num_filled
    is_few = (distinct <= _FEW_TEXTS and 4 * distinct <= rows) or (
        distinct <= _MOST_TEXTS and 20 * distinct <= rows
    )
    parts = _parts(strings, "|") or _parts(strings, ";") or (None if is_few else _parts(strings, ","))
    if parts is not None:
        return parts
    mean_words = pc.mean(pc.add(pc.count_substring(strings, " "), 1)).as_py()
    text = ColumnKind("text", f"{_count(distinct, 'text')} of {mean_words:.1f} words")
    kind = ColumnKind("category", _count(distinct, "value")) if is_few else text
    # Short texts of which most stand in a single row are names: surnames, user names, codes of things. Few of them
    # are not names but a list of choices, whose rows would be all alike without them.
    if distinct < _FEWEST_NAMES or 2 * np.count_nonzero(counts == 1) <= distinct:
        return kind
    if pc.mean(pc.count_substring_regex(strings, r"\w+")).as_py() > _MOST_WORDS_OF_A_NAME:
        return kind
    return replace(kind, why=f"{kind.why}, names of rows", is_name=True)


def _parts(strings: pa.Array, separator: str) -> ColumnKind | None:
    """Returns a multi-category, if a separator keeps apart parts that come again in other combinations."""
    if pc.mean(pc.match_substring(strings, separator)).as_py() < 0.3:
        return None
    _, parts = split_parts(strings, separator)
    distinct = len(pc.unique(parts))
    if not distinct or distinct > _FEW_TEXTS or len(parts) < _SEPARATORS[separator] * distinct:
        return None
    return ColumnKind("multicategory", f'{_count(distinct, "part")} between "{separator}"', separator)
