"""Entity tables made from the distinct values of columns: `household_id` occurs, and no table has it as its key.

Each value is one row, known as soon as the first row that names it is: at the earliest known time of all of them,
always if one of these was always known. So nothing after a time changes which rows there are at that time. Rows stand
in the order in which they became known, then of their keys: a database that has grown has the new ones at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.inference.evidence import Column
from quartet.database.inference.names import ROWS, noun_of, plural, split, take_apart
from quartet.database.keys import KeyColumn
from quartet.database.schema import (
    CONFIRMED,
    FACTS,
    ForeignKey,
    Origin,
    TableSchema,
    TimeColumn,
    parse_target,
)
from quartet.database.schema import quoted as quoted_name
from quartet.database.table import Table
from quartet.errors import SchemaError, did_you_mean
from quartet.times import NEVER, STATIC, to_arrow

if TYPE_CHECKING:
    from quartet.database.database import Database

Place = tuple[str, str]  # table and column
_FIRST_SEEN = "first_seen"
_FEWEST_VALUES = 2
_ROWS_OF_ONE = 1.5  # of one value in the mean, at least, where a single table names it
_MOST_COVERED = (
    0.5  # of the values of a column, by a key of the same name, where the key is no table of them all
)


@dataclass(frozen=True)
class ProposedEntity:
    """A table that could be made from the distinct values of columns, which no table has all as its key."""

    name: str
    places: tuple[Place, ...]
    num_values: int
    num_rows: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns as the schema file names them: by one name if every table means the same by it."""
        names = dict.fromkeys(column for _, column in self.places)
        if len(names) == 1:
            return tuple(names)
        return tuple(f"{quoted_name(table, '.')}.{quoted_name(column, ',')}" for table, column in self.places)

    @property
    def line(self) -> str:
        """The line of the schema file that accepts it."""
        columns = self.columns[0] if len(self.columns) == 1 else f"[{', '.join(self.columns)}]"
        return f"entities: {{{self.name}: {columns}}}"

    @property
    def why(self) -> str:
        tables = ", ".join(f"{table}.{column}" for table, column in self.places)
        return f"{self.num_values:,} values in {self.num_rows:,} rows of {tables}, which no table has all as its key"

    def is_called(self, name: str) -> bool:
        """Whether a name means this table: its own, in the singular or the plural, or that of a column."""
        names = {self.name, *(column for _, column in self.places)}
        return name.casefold() in {n.casefold() for n in names} or noun_of(name) == noun_of(self.name)


def proposed_entities(database: Database) -> list[ProposedEntity]:
    """Returns the tables that could be made from distinct values, those with the most rows first.

    A column is meant if its name says that it names a thing (`household_id`), it is neither a key nor a link, its
    values occur in several tables or repeatedly in one, and no table has a key of that name. Where one has, but lacks
    half of the values or more (`demographics` of some households), the key and its links are meant, too.
    """
    tables = {name: table for name, table in database.tables.items() if not table.schema.made_from}
    nouns = [noun_of(name) for name in tables]
    same: dict[tuple[str, str], list[Column]] = {}
    keys: dict[str, list[Table]] = {}
    for table in tables.values():
        if len(table.primary_key) == 1:
            keys.setdefault(take_apart(table.primary_key[0], nouns).joined, []).append(table)
    partly: dict[tuple[str, str], list[Column]] = {}  # of which a table has some values as its key
    wanting: set[tuple[str, str]] = set()
    for name, table in tables.items():
        used = {column for fk in table.schema.foreign_keys for column in fk.columns}
        used |= {*(table.primary_key if len(table.primary_key) == 1 else ())}
        for place, column in enumerate(table.data.column_names):
            words = take_apart(column, nouns)
            cells = Column(name, column, place, words, table.written.get(column, table.data[column]))
            is_named = words.mark == "id" and words.thing and words.thing[-1] not in ROWS
            if not is_named or words.is_from_elsewhere:
                continue
            if cells.kind in ("integer", "text", "binary") and len(cells.cells):
                group = partly if words.joined in keys else same
                if group is partly or column not in used:
                    group.setdefault((words.joined, cells.kind), []).append(cells)
                if (
                    group is partly
                    and column not in used
                    and not _is_covered(table, column, keys[words.joined])
                ):
                    wanting.add((words.joined, cells.kind))
    same |= {name: columns for name, columns in partly.items() if name in wanting}
    found: list[ProposedEntity] = []
    for columns in same.values():
        values = _distinct([_keys_of(tables[c.table], c.name) for c in columns])
        num_rows = sum(len(column.cells) for column in columns)
        repeats = num_rows >= _ROWS_OF_ONE * len(values) if len(columns) == 1 else num_rows > len(values)
        if len(values) >= _FEWEST_VALUES and repeats:
            name = _free_name(
                columns[0].name, {n.casefold() for n in [*database.tables, *(e.name for e in found)]}
            )
            places = tuple((column.table, column.name) for column in columns)
            found.append(ProposedEntity(name, places, len(values), num_rows))
    return sorted(found, key=lambda entity: (-len(entity.places), -entity.num_rows, entity.name))


def _is_covered(table: Table, column: str, with_key: Sequence[Table]) -> bool:
    """Returns whether a key has more than half of the values of a column."""
    values = _distinct([_keys_of(table, column)])
    for other in with_key:
        keys = _distinct([_keys_of(other, other.primary_key[0])])
        if keys.type == values.type and pc.sum(pc.is_in(values, keys)).as_py() > _MOST_COVERED * len(values):
            return True
    return False


def _free_name(column: str, taken: set[str]) -> str:
    """Returns `households` for `household_id`, or the plural of the whole name where there is such a table."""
    words = split(column)
    thing = [word for word in words if word not in ("id", "uuid", "guid", "key", "pk", "fk", "sk")] or [
        *words
    ]
    for parts in (thing, words, (*words, "table")):
        name = "_".join([*parts[:-1], plural(parts[-1])])
        if name.casefold() not in taken:
            return name
    return f"{column}_values"


def make_entities(
    tables: Mapping[str, Table], entities: Mapping[str, Sequence[str]], origin: Origin = CONFIRMED
) -> dict[str, Table]:
    """Returns the tables with those made from distinct values at their end, and links from every column to these.

    `entities` has the columns of each as the schema file names them: `column` of every table that has it, or
    `table.column`.
    """
    known = dict(tables)
    for name, texts in entities.items():
        if name.lower() in {other.lower() for other in known}:
            raise SchemaError(
                "S15", f'two tables are named "{name}": one of the data, one under entities', "rename one"
            )
        places = _places(name, texts, tables)
        schema = TableSchema((places[0][1],), key_origin=origin, settled=FACTS, made_from=places)
        known[name] = _dated(Table(name, pa.table({}), schema, np.empty(0, np.int64), 0), known)
        for table, column in places:
            link, own = ForeignKey((column,), name, origin=origin), known[table]
            links = (*own.schema.foreign_keys, link)
            known[table] = replace(own, schema=replace(own.schema, foreign_keys=links))
    return known


def redated(table: Table, tables: Mapping[str, Table]) -> Table:
    """Returns a made table of which some columns are hidden: its rows in their places, known by the other columns.

    A value that no other column names is never known.
    """
    places = tuple(
        (n, c) for n, c in table.schema.made_from if n in tables and c in tables[n].data.column_names
    )
    if places == table.schema.made_from:
        return table
    values = table.data[table.primary_key[0]]
    known_at = _first_known(values, places, tables)
    return _with_times(replace(table, schema=replace(table.schema, made_from=places)), values, known_at)


def _places(name: str, texts: Sequence[str], tables: Mapping[str, Table]) -> tuple[Place, ...]:
    """Returns the tables and columns that an entry of the schema file names."""
    places: dict[Place, None] = {}
    for text in texts:
        plain = [(n, text) for n, table in tables.items() if text in table.data.column_names]
        table, column = parse_target(text)
        if not plain and table in tables and column in tables[table].data.column_names:
            plain = [(table, column)]
        if not plain:
            columns = {c for t in tables.values() for c in t.data.column_names}
            of_table = tables[table].data.column_names if table in tables else []
            meant = did_you_mean(column, of_table) if of_table else did_you_mean(text, [*columns])
            raise SchemaError(
                "S09",
                f'entities: {name} is made from "{text}", which is no column{meant}',
                "write column, or table.column",
            )
        places |= dict.fromkeys(plain)
    if not places:
        raise SchemaError("S09", f"entities: {name} is made from no column", f"write {name}: column")
    return tuple(places)


def _dated(table: Table, tables: Mapping[str, Table]) -> Table:
    """Returns a made table with its rows: the distinct values, in the order in which they became known."""
    places = table.schema.made_from
    keys = [_keys_of(tables[name], column) for name, column in places]
    kinds = {key.kind: key.where for key in keys if key.values.null_count < len(key.values)}
    if len(kinds) > 1 or "time" in kinds:
        held = ", ".join(f"{where} is {kind}" for kind, where in kinds.items())
        fix = "name columns of one type, whole numbers or text, under entities"
        raise SchemaError("S08", f'table "{table.name}" cannot be made from distinct values: {held}', fix)
    values = _distinct(keys)
    known_at = _first_known(pa.chunked_array([values]), places, tables)
    by_value = np.empty(len(values), np.int64)
    by_value[pc.array_sort_indices(values).to_numpy()] = np.arange(len(values))
    order = np.lexsort((by_value, known_at))
    table = replace(table, num_rows_read=len(values))
    return _with_times(table, pa.chunked_array([values.take(pa.array(order))]), known_at[order])


def _with_times(table: Table, values: pa.ChunkedArray, known_at: NDArray[np.int64]) -> Table:
    key, time = table.primary_key[0], None
    columns: dict[str, pa.ChunkedArray] = {key: values}
    if (known_at != STATIC).any():
        name = _FIRST_SEEN if key.lower() != _FIRST_SEEN else f"{key}_at"
        time = TimeColumn(name, origin=table.schema.key_origin, on_missing="always_known")
        columns[name] = to_arrow(np.where(known_at == STATIC, NEVER, known_at))
    schema = replace(table.schema, time=time)
    return replace(table, data=pa.table(columns), schema=schema, known_at=known_at)


def _first_known(
    values: pa.ChunkedArray, places: Sequence[Place], tables: Mapping[str, Table]
) -> NDArray[np.int64]:
    """Returns when the first row that names each value is known: never, if none is."""
    first, known = np.full(len(values), NEVER), values.combine_chunks()
    for name, column in places:
        cells = _keys_of(tables[name], column).values
        if pa.types.is_null(cells.type) or cells.null_count == len(cells):
            continue
        rows = pc.fill_null(pc.index_in(cells, known), -1).to_numpy()
        np.minimum.at(first, rows[rows >= 0], tables[name].known_at[rows >= 0])
    return first


def _keys_of(table: Table, column: str) -> KeyColumn:
    """Returns a column as keys are compared, and as the source writes it; an empty text names nothing."""
    (key,) = table.written_columns((column,))
    if key.kind != "text":
        return key
    return replace(key, values=pc.if_else(pc.equal(key.values, ""), None, key.values))


def _distinct(keys: Sequence[KeyColumn]) -> pa.Array:
    filled = [key.values.drop_null() for key in keys if key.values.null_count < len(key.values)]
    chunks = [chunk for values in filled for chunk in values.chunks]
    return pc.unique(pa.chunked_array(chunks, filled[0].type if filled else pa.int64()))
