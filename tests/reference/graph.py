"""The temporal graph from its definition, in dicts and sorted lists, straight from the raw tables.

Nothing of `quartet` computes here; only its schema classes and its two special times are read.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quartet.database import ForeignKey, TableSchema
from quartet.database.schema import Schema
from quartet.times import NEVER, STATIC

Cell = Any
Row = dict[str, Cell]

NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_64_BITS = 2**64 - 1


# --- hashes ---------------------------------------------------------------------------------------


def mix(value: int) -> int:
    """splitmix64 of one number."""
    z = (value + 0x9E3779B97F4A7C15) & _64_BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return z ^ (z >> 31)


def fnv1a(text: str) -> int:
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & _64_BITS
    return state


def hash_cell(cell: Cell) -> int:
    """The hash of one cell: empty, text, a decimal, or a whole number (booleans and times are)."""
    if cell is None:
        return 0x9AE16A3B2F90404F
    if isinstance(cell, str):
        return mix(fnv1a(cell))
    if isinstance(cell, float):
        one_pattern = float("nan") if cell != cell else cell + 0.0
        return mix(struct.unpack("<Q", struct.pack("<d", one_pattern))[0])
    return mix(int(cell) & _64_BITS)


def hash_row(cells: Sequence[Cell], salt: str) -> int:
    state = int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=8).digest(), "little")
    for cell in cells:
        state = mix(state ^ hash_cell(cell))
    return state


# --- rows -----------------------------------------------------------------------------------------


def rows_of(table: pa.Table) -> list[Row]:
    """The rows as plain values; times as whole numbers in the unit of their column."""
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    columns = [column.to_pylist() for column in plain]
    return [dict(zip(table.column_names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def unit_of(table: pa.Table, schema: TableSchema, column: str) -> int:
    """The nanoseconds in one count of a time column."""
    assert schema.time is not None
    kind = table.schema.field(column).type
    unit = kind.unit if pa.types.is_timestamp(kind) else schema.time.unit
    assert unit is not None
    return NS[unit]


def dated_rows(table: pa.Table, schema: TableSchema) -> tuple[list[Row], list[int | None]]:
    """The rows with their times in nanoseconds, and when each became known (None if it has no time)."""
    rows = rows_of(table)
    if schema.time is None:
        return rows, [STATIC] * len(rows)
    columns = [name for name in (schema.time.column, schema.available_at) if name is not None]
    for row in rows:
        for name in columns:
            row[name] = None if row[name] is None else row[name] * unit_of(table, schema, name)
    times = [[row[name] for name in columns] for row in rows]
    return rows, [None if None in both else max(both) for both in times]


# --- the graph ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    table: str
    cells: Row
    time: int
    key: int


@dataclass
class Twin:
    """What a `TemporalGraph` must hold. Nodes are numbered table by table, row by row."""

    names: list[str]
    nodes: list[Node] = field(default_factory=list)
    neighbors: list[list[tuple[int, int]]] = field(default_factory=list)  # (edge time, node), in order
    parents: list[list[int]] = field(default_factory=list)  # one slot for each foreign key
    num_read: int = 0
    num_dropped: int = 0
    num_values: int = 0  # foreign keys that are filled in
    num_dangling: int = 0
    num_loops: int = 0
    num_parallel: int = 0

    @property
    def num_links(self) -> int:
        return sum(len(found) for found in self.neighbors) // 2

    def nodes_of(self, table: str) -> list[int]:
        return [number for number, node in enumerate(self.nodes) if node.table == table]

    def stream(self, table: str) -> list[int]:
        """The nodes of a table, oldest first, ties by key."""
        return sorted(self.nodes_of(table), key=lambda n: (self.nodes[n].time, self.nodes[n].key, n))

    def visible(self, node: int, time: int, rule: str = "<=") -> list[int]:
        """The neighbours that are knowable at a time, by looking at each of them."""
        return [n for edge, n in self.neighbors[node] if (edge <= time if rule == "<=" else edge < time)]

    def visible_to(self, seed: int, node: int, time: int, rule: str = "<=") -> list[int]:
        """The same for a seed: of a row that is new at its time, those neighbours that are knowable themselves."""
        if node != seed or self.nodes[seed].time != time:
            return self.visible(node, time, rule)
        times = {n: self.nodes[n].time for _, n in self.neighbors[seed]}
        return [n for n, known in times.items() if (known <= time if rule == "<=" else known < time)]


def build_twin(tables: Mapping[str, pa.Table], schema: Schema) -> Twin:
    """The graph of raw tables: decisions 11 and 12, word for word."""
    twin = Twin(list(tables))
    for name, table in tables.items():
        _add_nodes(twin, name, table, schema.tables[name])
    maps = {
        (name, fk.columns): _rows_by_key(twin, fk, schema)
        for name in tables
        for fk in schema.tables[name].foreign_keys
    }
    joined: dict[int, set[int]] = {number: set() for number in range(len(twin.nodes))}
    twin.parents = [[] for _ in twin.nodes]
    # Of two rows that name each other, the one with the smaller key keeps the link.
    for number in sorted(joined, key=lambda number: (twin.nodes[number].key, number)):
        name = twin.nodes[number].table
        for fk in schema.tables[name].foreign_keys:
            twin.parents[number].append(_link(twin, joined, number, fk, maps[name, fk.columns]))
    twin.neighbors = [_in_order(twin, number, joined[number]) for number in joined]
    return twin


def _add_nodes(twin: Twin, name: str, table: pa.Table, schema: TableSchema) -> None:
    rows, known_at = dated_rows(table, schema)
    twin.num_read += len(rows)
    for row, time in zip(rows, known_at, strict=True):
        if time is not None:
            twin.nodes.append(Node(name, row, time, stable_key(name, row, schema)))
        elif schema.time is not None and schema.time.on_missing == "never_visible":
            twin.nodes.append(Node(name, row, NEVER, stable_key(name, row, schema)))
        else:
            twin.num_dropped += 1


def stable_key(name: str, row: Row, schema: TableSchema) -> int:
    """From the primary key's value, or from all that the row holds."""
    if schema.primary_key:
        return hash_row(key_of(row, schema.primary_key), name)
    return hash_row([row[column] for column in sorted(row)], name)


def key_of(row: Row, columns: Sequence[str]) -> tuple[Cell, ...]:
    """The cells of a key; whole numbers that came as decimals are whole numbers again."""
    return tuple(int(cell) if isinstance(cell, float) else cell for cell in (row[c] for c in columns))


def _rows_by_key(twin: Twin, link: ForeignKey, schema: Schema) -> dict[tuple[Cell, ...], int]:
    columns = link.references or schema.tables[link.table].primary_key
    return {key_of(twin.nodes[n].cells, columns): n for n in twin.nodes_of(link.table)}


def _link(
    twin: Twin, joined: dict[int, set[int]], node: int, link: ForeignKey, rows: dict[tuple[Cell, ...], int]
) -> int:
    """The parent that a foreign key names, once it is joined; -1 if nothing is to be joined."""
    key = key_of(twin.nodes[node].cells, link.columns)
    if None in key:
        return -1
    twin.num_values += 1
    parent = rows.get(key)
    if parent is None:
        twin.num_dangling += 1
    elif parent == node:
        twin.num_loops += 1
    elif parent in joined[node]:
        twin.num_parallel += 1
    else:
        joined[node].add(parent)
        joined[parent].add(node)
        return parent
    return -1


def _in_order(twin: Twin, node: int, neighbors: set[int]) -> list[tuple[int, int]]:
    """The neighbours with the time of each edge, by (edge time, stable key)."""
    own = twin.nodes[node].time
    edges = [(max(own, twin.nodes[n].time), n) for n in neighbors]
    return sorted(edges, key=lambda edge: (edge[0], twin.nodes[edge[1]].key, edge[1]))
