"""Source: what a reader brings back, before anything is inferred or validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from quartet.database.schema import Schema
from quartet.findings import Finding


@dataclass(frozen=True)
class Source:
    """Raw tables and the schema that the source itself declares.

    Every reader returns one. `location` is fit to be shown: it never holds a password. `untyped` names the tables
    whose columns have the types of their cells, because the source declares none; `views` those that
    are views.
    """

    tables: Mapping[str, pa.Table]
    schema: Schema
    location: str
    task_folder: Path | None = None
    findings: tuple[Finding, ...] = ()
    untyped: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()
