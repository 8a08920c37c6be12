"""The schema of a database written down: as YAML for people to correct, as a dict for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import yaml

from quartet.database import Database, ForeignKey, LateColumn, Origin, TableSchema, late_columns, quoted
from quartet.features.kinds import inspected_kinds
from quartet.findings import Finding
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
        "findings": [
            {"level": f.level.value, "code": f.code, "where": f.where, "count": f.count, "message": str(f)}
            for f in (*database.findings, *left_out, *(late.finding for late in late_columns(database)))
        ],
    }


def schema_yaml(database: Database, advice: Iterable[Finding] = ()) -> str:
    """Returns a schema file with every fact, guesses marked by a comment, ready to be corrected.

    Findings of the database, and others given as `advice`, stand as comments under the table that they are `where`
    about (`table` or `table.column`): what to write is in their `fix`.
    """
    schema, advice = database.schema, [f for f in (*database.findings, *advice) if f.fix]
    lines = [
        "# Keys, links and times of the database. Correct what is wrong, delete what should be guessed",
        "# anew, write null for none; then give this file as --schema.",
    ]
    for field in ("name", "description", "val_timestamp", "test_timestamp"):
        if getattr(schema, field):
            lines.append(f"{field}: {_scalar(getattr(schema, field))}")
    lines += [f"on_dangling: {schema.on_dangling or 'drop'}", "tables:"]
    for name, table in database.tables.items():
        lines.append(f"  {_scalar(name)}:")
        lines += [f"    {line}" for line in _table_lines(table.schema)]
        for guess in database.possible:
            if guess.table == name:
                target = f" -> {guess.target}" if guess.target else ""
                what = f"possible {guess.fact}: {', '.join(guess.columns)}{target}"
                lines.append(f"    # {_printable(f'{what} ({guess.confidence:.0%}: {guess.why})')}")
        lines += [f"    # {_offer(late)}" for late in late_columns(database) if late.table == name]
        mine = [f for f in advice if f.where == name or f.where.startswith(f"{name}.")]
        lines += [f"    # {_printable(f'{f.code} {f.message}: {f.fix}')}" for f in mine]
    return "\n".join(lines) + "\n"


def _table_lines(table: TableSchema) -> list[str]:
    key, time = table.primary_key, table.time
    lines = [f"pkey: {_key(key)}{_remark(table.key_origin)}" if key else "pkey: null"]
    if time is None:
        lines.append("time_col: null")
    else:
        where = f"time_from: {_key(time.link)}" if time.link else f"time_col: {_scalar(time.column)}"
        lines.append(where + _remark(time.origin))
        known_at = time.end_of and f"end of {time.end_of}"
        options = {"time_unit": time.unit, "time_format": time.format, "timezone": time.timezone}
        lines += [f"{field}: {_scalar(v)}" for field, v in {**options, "known_at": known_at}.items() if v]
        lines += [f"on_missing_time: {time.on_missing}"] if time.on_missing != "error" else []
    lines += [f"available_at: {_scalar(table.available_at)}"] if table.available_at else []
    same: dict[str, list[ForeignKey]] = {}  # several links over the same columns have to share one line
    for fk in table.foreign_keys:
        same.setdefault(_scalar(_joined(fk.columns)), []).append(fk)
    lines.append("fkeys:" if same else "fkeys: {}")
    for columns, links in same.items():
        targets = [
            quoted(fk.table, ".") + (f".{_joined(fk.references)}" if fk.references else "") for fk in links
        ]
        target = _scalar(targets[0]) if len(targets) == 1 else _list(targets)
        lines.append(f"  {columns}: {target}{_remark(links[0].origin)}")
    lines += ["kinds:"] if table.kinds else []
    return lines + [f"  {_scalar(column)}: {kind}" for column, kind in table.kinds.items()]


def _offer(late: LateColumn) -> str:
    """Returns the line that hides a column that is filled in later, and what else could be done."""
    dated = f"; or available_at: {_scalar(late.column)} for the whole row" if late.available_at else ""
    return f"kinds: {{{_scalar(late.column)}: unused}}  # filled in later: {_printable(late.why)}{dated}"


def _joined(names: Sequence[str]) -> str:
    return ", ".join(quoted(name, ",") for name in names)


def _key(names: Sequence[str]) -> str:
    is_plain = len(names) == 1 and quoted(names[0], ",") == names[0]
    return _scalar(names[0]) if is_plain else _list(names)


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_scalar, texts)) + "]"


def _remark(origin: Origin) -> str:
    is_guess = origin.is_inferred
    return f"  # inferred, {origin.confidence:.0%}: {_printable(origin.why)}" if is_guess else ""


def _printable(text: str) -> str:
    """Returns a text fit for a comment, which no line break may end and no control character may spoil."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _scalar(text: str) -> str:
    """Returns a text as one YAML scalar on one line, also inside a list."""
    shows = text.isprintable()
    style = None if shows and not set(text) & set(",[]{}") else '"'
    return yaml.safe_dump(text, allow_unicode=shows, width=10**9, default_style=style).splitlines()[0]
