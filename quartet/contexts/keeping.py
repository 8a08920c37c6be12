"""The graph of a database, with what samplers need of it alone, made once and then mapped from disk."""

from __future__ import annotations

import hashlib
from typing import Any

from quartet.contexts.sketch import checkpoints
from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.machine import Store

_VERSION = 1  # of what the arrays mean: raise it when that changes
_KIND = "graphs"
_FEWEST_ROWS = 20_000  # a smaller one is built as fast as it is read
_SCALARS = ("names", "num_loops", "num_parallel", "source")


def kept_graph(database: Database) -> TemporalGraph:
    """Returns the graph of a database: from the store, or built and kept there."""
    store = Store.of_user() if database.num_rows >= _FEWEST_ROWS else None
    if store is None:
        return TemporalGraph.build(database)
    digest = hashlib.sha256(f"{_VERSION} {database.fingerprint}".encode()).hexdigest()
    kept = store.read(_KIND, digest)
    if kept is not None:
        arrays: dict[str, Any] = dict(kept.arrays)
        facts: dict[str, Any] = {**kept.facts, "names": tuple(kept.facts["names"])}
        made = {name: arrays.pop(name) for name in ("first_point", "by_table", "stream_rank")}
        graph = TemporalGraph(**facts, **arrays)
        graph.made["checkpoints"] = made["first_point"], made["by_table"]
        graph.__dict__["stream_rank"] = made["stream_rank"]
        return graph
    graph = TemporalGraph.build(database)
    first_point, by_table = checkpoints(graph)
    own = {"first_point": first_point, "by_table": by_table, "stream_rank": graph.stream_rank}
    facts = {name: getattr(graph, name) for name in _SCALARS}
    fields = (name for name in TemporalGraph.__dataclass_fields__ if name not in _SCALARS)
    store.write(_KIND, digest, {name: getattr(graph, name) for name in fields} | own, facts)
    return graph
