"""Everything that `quartet inspect` shows of a database, as a dict for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from quartet.database import Database, late_columns, proposed_entities
from quartet.features.kinds import inspected_kinds
from quartet.times import show_instant


def describe(database: Database) -> dict[str, Any]:
    """Returns everything that `quartet inspect` shows, as plain values."""
    kinds, left_out = inspected_kinds(database)
    tables = {}
    for name, table in database.tables.items():
        time = table.schema.time
        tables[name] = {
            "rows": table.num_rows,
            "rows_read": table.num_rows_read,
            "pkey": list(table.primary_key),
            "pkey_origin": asdict(table.schema.key_origin) if table.primary_key else None,
            "time_col": time.column if time else None,
            "time_origin": asdict(time.origin) if time else None,
            "available_at": table.schema.available_at,
            "columns": {field.name: str(field.type) for field in table.data.schema},
            "kinds": {column: {"kind": k.kind, "why": k.why} for column, k in kinds[name].items()},
        }
    return {
        "name": database.schema.name,
        "location": database.location,
        "span": [show_instant(end) for end in database.span] if database.span else None,
        "tables": tables,
        "links": [
            {
                "table": relation.table,
                "columns": list(relation.foreign_key.columns),
                "to": relation.parent,
                "references": list(relation.foreign_key.references),
                "linked": relation.num_links,
                "origin": asdict(relation.foreign_key.origin),
            }
            for relation in database.relations
        ],
        "possible": [{**asdict(guess), "columns": list(guess.columns)} for guess in database.possible],
        "entities": [
            {"name": entity.name, "from": entity.places, "values": entity.num_values, "line": entity.line}
            for entity in proposed_entities(database)
        ],
        "findings": [
            {"level": f.level.value, "code": f.code, "where": f.where, "count": f.count, "message": str(f)}
            for f in (*database.findings, *left_out, *(late.finding for late in late_columns(database)))
        ],
    }
