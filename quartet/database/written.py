"""The schema of a database written down: as YAML for people to correct, as facts for a model to keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import yaml

from quartet.database.database import Database
from quartet.database.entities import proposed_entities
from quartet.database.late import LateColumn, late_columns
from quartet.database.schema import ForeignKey, Origin, TableSchema, quoted


def schema_yaml(database: Database) -> str:
    """Returns a schema file with every fact, guesses marked by a comment, ready to be corrected.

    Findings stand as comments under the table that they are `where` about (`table` or `table.column`): what to write
    is in their `fix`.
    """
    lines = [
        "# Keys, links and times of the database. Correct what is wrong, delete what should be guessed",
        "# anew, write null for none; then give this file as --schema.",
        *_proposal_lines(database),
        *_head_lines(database),
    ]
    lates = late_columns(database)
    for name, table in _read_tables(database):
        lines += _table_lines(name, table)
        for guess in database.possible:
            if guess.table == name:
                target = f" -> {guess.target}" if guess.target else ""
                what = f"possible {guess.fact}: {', '.join(guess.columns)}{target}"
                lines.append(f"    # {_printable(f'{what} ({guess.confidence:.0%}: {guess.why})')}")
        lines += [f"    # {line}" for line in _offers([late for late in lates if late.table == name])]
        mine = [f for f in database.findings if f.where == name or f.where.startswith(f"{name}.")]
        lines += [f"    # {_printable(f'{f.code} {f.message}: {f.fix}')}" for f in mine if f.fix]
    return "\n".join(lines) + "\n"


def schema_facts(database: Database) -> dict[str, Any]:
    """Returns the content of a schema file with every fact and nothing else."""
    tables = [line for name, table in _read_tables(database) for line in _table_lines(name, table)]
    facts: dict[str, Any] = yaml.safe_load("\n".join([*_head_lines(database), *tables]))
    return facts


def _head_lines(database: Database) -> list[str]:
    schema, lines = database.schema, []
    for field in ("name", "description", "val_timestamp", "test_timestamp"):
        if getattr(schema, field):
            lines.append(f"{field}: {_scalar(getattr(schema, field))}")
    lines += ["views: true"] if schema.views else []
    lines += ["entities:"] if schema.entities else []
    for name, columns in schema.entities.items():
        table = database.tables.get(name)
        remark = _remark(table.schema.key_origin) if table else ""
        lines.append(
            f"  {_scalar(name)}: {_scalar(columns[0]) if len(columns) == 1 else _list(columns)}{remark}"
        )
    return [*lines, f"on_dangling: {schema.on_dangling or 'drop'}", "tables:"]


def _proposal_lines(database: Database) -> list[str]:
    """Returns the entity tables that could be made from distinct values, as a comment to be uncommented."""
    entities = [
        entity for entity in proposed_entities(database) if entity.name not in database.schema.entities
    ]
    lines = [
        f"#   {_scalar(e.name)}: {_scalar(e.columns[0]) if len(e.columns) == 1 else _list(e.columns)}"
        f"  # {_printable(e.why)}"
        for e in entities
    ]
    head = ["# Tables that could be made from distinct values, one row a value; uncomment what you need:"]
    return [*head, "# entities:", *lines] if lines else []


def _read_tables(database: Database) -> Iterator[tuple[str, TableSchema]]:
    """Yields the tables of the source; those made from distinct values, and links to these, follow from `entities`."""
    made = {name for name, table in database.tables.items() if table.schema.made_from}
    for name, table in database.tables.items():
        if name not in made:
            links = tuple(fk for fk in table.schema.foreign_keys if fk.table not in made)
            yield name, replace(table.schema, foreign_keys=links)


def _table_lines(name: str, table: TableSchema) -> list[str]:
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
        lines += [f"on_bad_time: {time.on_bad}"] if time.on_bad != "error" else []
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
    lines += [f"  {_scalar(column)}: {kind}" for column, kind in table.kinds.items()]
    return [f"  {_scalar(name)}:", *(f"    {line}" for line in lines)]


def _offers(columns: Sequence[LateColumn]) -> list[str]:
    """Returns what is known of the columns of a table that are filled in later, and the line that hides them."""
    lines = []
    for late in columns:
        name = _scalar(late.column)
        dated = f", or set available_at: {name} for the whole row" if late.available_at else ""
        do = "delete its line under fkeys" if late.is_link else f"hide it by the line below{dated}"
        lines.append(f"{name} is filled in later ({_printable(late.why)}): {do}")
    hidden = [f"{_scalar(late.column)}: unused" for late in columns if not late.is_link]
    return lines + [f"kinds: {{{', '.join(hidden)}}}"] * bool(hidden)


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
