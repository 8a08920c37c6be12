"""The features of a database that were encoded with the same statistics before, mapped from disk."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from quartet.database import Database
from quartet.features.arrays import Bags, TableFeatures
from quartet.features.statistics import FeatureStatistics
from quartet.features.table import FeatureTable
from quartet.findings import Finding, Level
from quartet.machine import Store

_VERSION = 1  # of what encoded cells mean: raise it when that changes
_KIND = "features"
_FEWEST_ROWS = 20_000  # fewer are encoded as fast as they are read
_PLAIN = ("numbers", "categories", "calendar", "texts")


def statistics_digest(statistics: FeatureStatistics) -> str:
    """Returns a digest of statistics: models with equal ones read the same features."""
    arrays = {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in statistics.arrays.items()}
    return hashlib.sha256(json.dumps([statistics.to_dict(), arrays]).encode()).hexdigest()


def kept_features(database: Database, statistics: FeatureStatistics) -> FeatureTable:
    """Returns all rows of a database as `FeatureTable.encode` does: from the store, or encoded and kept there.

    What a sentence model makes of texts depends on more than is known here, and is kept by it.
    """
    columns = (column for table in statistics.tables.values() for column in table.of("text").values())
    is_own = database.num_rows >= _FEWEST_ROWS and all(each.embedder.name == "hash" for each in columns)
    store = Store.of_user() if is_own else None
    if store is None:
        return FeatureTable.encode(database, statistics)
    told = [_VERSION, database.fingerprint, statistics_digest(statistics)]
    told += [str(finding) for finding in statistics.findings]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    kept = store.read(_KIND, digest)
    if kept is not None and list(kept.facts["tables"]) == list(database.tables):
        tables = {}
        for number, name in enumerate(database.tables):
            arrays = {key.split("/")[1]: a for key, a in kept.arrays.items() if key.startswith(f"{number}/")}
            num_bags, num_vectors = kept.facts["tables"][name]
            bags = tuple(Bags(arrays[f"start{at}"], arrays[f"code{at}"]) for at in range(num_bags))
            vectors = tuple(arrays[f"vectors{at}"] for at in range(num_vectors))
            plain = {each: arrays[each] for each in _PLAIN}
            layout = statistics.tables[name].layout
            tables[name] = TableFeatures(layout, multicategories=bags, vectors=vectors, **plain)
        findings = (Finding(Level(level), *others) for level, *others in kept.facts["findings"])
        return FeatureTable(tables, statistics, tuple(findings))
    features = FeatureTable.encode(database, statistics)
    arrays = {}
    for number, table in enumerate(features.tables.values()):
        own: dict[str, Any] = {each: getattr(table, each) for each in _PLAIN}
        for at, bag in enumerate(table.multicategories):
            own |= {f"start{at}": bag.start, f"code{at}": bag.code}
        own |= {f"vectors{at}": vectors for at, vectors in enumerate(table.vectors)}
        arrays |= {f"{number}/{name}": array for name, array in own.items()}
    sizes = {name: (len(t.multicategories), len(t.vectors)) for name, t in features.tables.items()}
    told_findings = [(f.level.value, f.code, f.where, f.message, f.count, f.fix) for f in features.findings]
    store.write(_KIND, digest, arrays, {"tables": sizes, "findings": told_findings})
    return features
