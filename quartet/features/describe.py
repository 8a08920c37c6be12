"""The schema of a database written down: as YAML for people to correct, as a dict for machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from quartet.database import Database, ForeignKey, Origin, Possible, TableSchema, TimeColumn, quoted
from quartet.features.kinds import ColumnKind, inspected_kinds
from quartet.times import show_instant


def describe(database: Database) -> dict[str, Any]:
    """Everything that `quartet inspect` shows, as plain values."""
    span = database.span
    kinds, left_out = inspected_kinds(database)
    return {
        "name": database.schema.name,
        "location": database.location,
        "span": [show_instant(end) for end in span] if span else None,
        "tables": {
            table.name: {
                "rows": table.num_rows,
                "rows_read": table.num_rows_read,
                "pkey": list(table.primary_key),
                "pkey_origin": _origin(table.schema.key_origin) if table.primary_key else None,
                "time_col": table.schema.time.column if table.schema.time else None,
                "time_origin": _origin(table.schema.time.origin) if table.schema.time else None,
                "available_at": table.schema.available_at,
                "columns": {field.name: str(field.type) for field in table.data.schema},
                "kinds": {name: _kind(column) for name, column in kinds[table.name].items()},
            }
            for table in database.tables.values()
        },
        "links": [
            {
                "table": relation.table,
                "columns": list(relation.foreign_key.columns),
                "to": relation.parent,
                "references": list(relation.foreign_key.references),
                "linked": relation.num_links,
                "origin": _origin(relation.foreign_key.origin),
            }
            for relation in database.relations
        ],
        "possible": [
            {
                "table": guess.table,
                "fact": guess.fact,
                "columns": list(guess.columns),
                "target": guess.target,
                "confidence": guess.confidence,
                "why": guess.why,
            }
            for guess in database.possible
        ],
        "findings": [
            {"level": f.level.value, "code": f.code, "where": f.where, "count": f.count, "message": str(f)}
            for f in (*database.findings, *left_out)
        ],
    }


def _kind(column: ColumnKind) -> dict[str, str]:
    return {"kind": column.kind, "why": column.why}


def _origin(origin: Origin) -> dict[str, Any]:
    return {"source": origin.source, "confidence": origin.confidence, "why": origin.why}


def schema_yaml(database: Database) -> str:
    """A schema file with every fact, guesses marked by a comment, ready to be corrected."""
    schema = database.schema
    lines = [
        "# Keys, links and times of the database. Correct what is wrong, delete what should be guessed",
        "# anew, write null for none; then give this file as --schema.",
    ]
    for word in ("name", "description", "val_timestamp", "test_timestamp"):
        if getattr(schema, word):
            lines.append(f"{word}: {_scalar(getattr(schema, word))}")
    lines += [f"on_dangling: {schema.on_dangling or 'drop'}", "tables:"]
    for name, table in database.tables.items():
        lines.append(f"  {_scalar(name)}:")
        lines += [f"    {line}" for line in _table_lines(table.schema)]
        lines += [f"    # {_shown(_possible(guess))}" for guess in database.possible if guess.table == name]
    return "\n".join(lines) + "\n"


def _possible(guess: Possible) -> str:
    target = f" -> {guess.target}" if guess.target else ""
    return f"possible {guess.fact}: {', '.join(guess.columns)}{target} ({guess.confidence:.0%}: {guess.why})"


def _table_lines(table: TableSchema) -> list[str]:
    key = _key(table.primary_key) if table.primary_key else "null"
    lines = [f"pkey: {key}{_remark(table.key_origin) if table.primary_key else ''}"]
    lines += _time_lines(table.time) if table.time else ["time_col: null"]
    if table.available_at:
        lines.append(f"available_at: {_scalar(table.available_at)}")
    lines.append("fkeys:" if table.foreign_keys else "fkeys: {}")
    lines += [f"  {line}" for line in _link_lines(table.foreign_keys)]
    lines += ["kinds:"] if table.kinds else []
    return lines + [f"  {_scalar(column)}: {kind}" for column, kind in table.kinds.items()]


def _time_lines(time: TimeColumn) -> list[str]:
    if time.link:
        lines = [f"time_from: {_key(time.link)}{_remark(time.origin)}"]
    else:
        lines = [f"time_col: {_scalar(time.column)}{_remark(time.origin)}"]
    options = {"time_unit": time.unit, "time_format": time.format, "timezone": time.timezone}
    lines += [f"{word}: {_scalar(value)}" for word, value in options.items() if value]
    return lines + ([f"on_missing_time: {time.on_missing}"] if time.on_missing != "error" else [])


def _link_lines(links: tuple[ForeignKey, ...]) -> list[str]:
    """A line for each set of columns: several links over the same columns have to share one."""
    same: dict[str, list[ForeignKey]] = {}
    for fk in links:
        same.setdefault(_scalar(_listed(fk.columns)), []).append(fk)
    return [
        f"{columns}: {_one_or_list([_target(fk) for fk in found])}{_remark(found[0].origin)}"
        for columns, found in same.items()
    ]


def _target(fk: ForeignKey) -> str:
    return quoted(fk.table, ".") + (f".{_listed(fk.references)}" if fk.references else "")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(quoted(name, ",") for name in names)


def _key(names: tuple[str, ...]) -> str:
    is_plain = len(names) == 1 and quoted(names[0], ",") == names[0]
    return _scalar(names[0]) if is_plain else _list(names)


def _one_or_list(texts: list[str]) -> str:
    return _scalar(texts[0]) if len(texts) == 1 else _list(texts)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(_scalar, texts)) + "]"


def _remark(origin: Origin) -> str:
    if not origin.is_inferred:
        return ""
    return f"  # inferred, {origin.confidence:.0%}: {_shown(origin.why)}"


def _shown(text: str) -> str:
    """A text fit for a comment, which no line break may end and no control character may spoil."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _scalar(text: str) -> str:
    """A text as one YAML scalar on one line, also inside a list."""
    shows = text.isprintable()
    style = None if shows and not set(text) & set(",[]{}") else '"'
    return yaml.safe_dump(text, allow_unicode=shows, width=10**9, default_style=style).splitlines()[0]
