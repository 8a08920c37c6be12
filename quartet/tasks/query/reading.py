"""A query as a task: its type, horizon, names and SQL, each with the reason why it is so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from quartet.causal import visible
from quartet.database import Database, Table, late_columns
from quartet.errors import QueryError, TaskError, did_you_mean
from quartet.tasks.labels import known_column, link_of, rows_of_keys
from quartet.tasks.query.grammar import parse
from quartet.tasks.query.naming import LONGEST_NAME, slug, window_length
from quartet.tasks.query.resolve import Catalogue, Kind
from quartet.tasks.query.sql import SqlWriter, Terms
from quartet.tasks.query.tree import Aggregation, Comparison, Condition, Query, Reference, terms
from quartet.tasks.query.types import column_type, forecast_type
from quartet.tasks.sandbox import run_task_sql
from quartet.tasks.spec import TaskSpec, column_pairs, spec_from_dict
from quartet.times import show_instant, show_length

_GIVEN = {
    *("query", "name", "description", "manifest_version", "task_type", "eval_k"),
    *("entity_col", "time_col", "target_col"),
    *(
        "num_eval_timestamps",
        "known_after",
        "remove_columns",
        "keep_columns",
        "val_timestamp",
        "test_timestamp",
        "pool_classes",
    ),
}


@dataclass(frozen=True)
class Reading:
    """How a query was read: the definition that it stands for, and sentences (what, why).

    `database` is the one that was asked, with the entity table made from distinct values if it was not there.
    """

    query: Query
    database: Database
    spec: TaskSpec
    facts: tuple[tuple[str, str], ...]
    selected: str = ""  # SQL of the keys for whom an answer is wanted


def read_query(text: str, database: Database, given: Mapping[str, Any] | None = None) -> Reading:
    """Returns the task that a query stands for over a database; `given` are words of a task file that go before it."""
    given = dict(given or {})
    for word in given:
        if word not in _GIVEN:
            what = f'"{word}" is given beside a query, from which it follows'
            raise TaskError("C01", what, "take one of them out")
    query = parse(text)
    _check_forms(query)
    catalogue = Catalogue(database, query)
    database = catalogue.database
    entity, key = catalogue.entity(query)
    names = {"entity_col": key, "target_col": slug(query, "_"), "time_col": "timestamp"}
    if (
        isinstance(query.target, Aggregation)
        and query.target.function == "LIST_DISTINCT"
        and (query.form is None or query.form.kind == "RANK")
        and query.target.of.column
    ):
        link = catalogue.column(query.target.of)  # as RelBench names it
        names["target_col"] = link if link.lower() != key.lower() else names["target_col"]
    taken = {str(given.get(word) or name).lower() for word, name in names.items() if word != "time_col"}
    names["time_col"] = next(name for name in ("timestamp", "asked_at", "time") if name not in taken)
    names |= {word: str(given[word]) for word in names if given.get(word)}
    writer = SqlWriter(query, catalogue, names["time_col"], names["entity_col"], names["target_col"])
    is_column = isinstance(query.target, Reference)
    if is_column:
        manifest, facts = _autocomplete(query, catalogue, entity)
    else:
        manifest, facts = _forecast(query, catalogue, writer, entity)
    default = f"{entity.name}-{slug(query, '-')}"[:LONGEST_NAME].strip("-")
    words = {"name": re.sub(r"[^\w.-]+", "-", default), **(names if not is_column else {}), **manifest}
    words |= {"description": " ".join(text.split()), "query": text.strip()}
    if words["task_type"] == "recommendation":
        words = {_SOURCE.get(word, word): value for word, value in words.items()}
        given = {_SOURCE.get(word, word): value for word, value in given.items()}
    kept = column_pairs(given.pop("keep_columns", None) or (), "the query", "keep_columns")
    for table, name in kept:
        if name not in (known := database[table].data.column_names):
            what = f'keep_columns: table "{table}" has no column "{name}"{did_you_mean(name, known)}'
            raise TaskError("L01", what, "correct the name")
    spec = spec_from_dict(
        words | {k: v for k, v in given.items() if v is not None and k != "query"}, "the query"
    )
    for column in late_columns(database):  # what is proven to be told later is not shown before
        pair = column.table, column.column
        if column.is_proven and not column.is_link and pair not in (*kept, *spec.hidden_columns):
            spec = replace(spec, remove_columns=(*spec.remove_columns, pair))
            why = f"it is filled in later than its row: {column.why}; if not, --keep {'.'.join(pair)}"
            facts.append(("hidden", f"{'.'.join(pair)}: {why}"))
    return Reading(query, database, spec, tuple(facts), writer.selected() if query.selected else "")


def selected_keys(reading: Reading, time: int) -> tuple[list[Any], int]:
    """Returns the keys for whom a query wants an answer and that are known at a time, and how many are not yet."""
    database, span, said = reading.database, reading.query.entity.span, reading.query.selected_text
    tables = {name: table.data for name, table in database.tables.items()}
    keys = run_task_sql(reading.selected, tables, np.empty(0, np.int64), 0, "the query")["key"]
    if not len(keys):
        raise span.error("Q09", f"no {span} is meant by {said}", "check the keys")
    table = database[reading.spec.entity_table]
    known = visible(table.known_at[rows_of_keys(keys, table, "the query")], time)
    if not known.any():
        what = f"no {span} that is meant by {said} is known at {show_instant(time)}"
        raise span.error("Q09", what, "ask at a later time, or about others")
    return keys.filter(pa.array(known)).to_pylist(), int((~known).sum())


def target_tables(text: str, database: Database) -> list[str]:
    """Returns the tables whose rows the target of a query counts; none where there is no query."""
    if not text:
        return []
    query = parse(text)
    catalogue = Catalogue(database, query)
    rows = [term.of.table for term in terms(query.target) if isinstance(term, Aggregation)]
    return list(dict.fromkeys(catalogue.table(name).name for name in rows))


def query_place(text: str, part: Literal["target", "where"]) -> tuple[str, ...]:
    """Returns lines that point at a part of a query; none where there is no query."""
    if not text:
        return ()
    query = parse(text)
    return (query.where if part == "where" and query.where is not None else query.target).span.place


_SOURCE = {"entity_table": "src_entity_table", "entity_col": "src_entity_col"}


def _check_forms(query: Query) -> None:
    if query.assuming is not None:
        what = "ASSUMING is not supported: no label of the past tells what follows from rows that were only assumed"
        raise query.assuming.span.error(
            "Q08", what, "take it out, or ask about those for whom it holds: WHERE"
        )
    if query.form is not None and query.form.kind == "FORECAST":
        window = next(
            (t.window for t in terms(query.target) if isinstance(t, Aggregation) and t.window), None
        )
        fix = "ask for each window by itself"
        if window is not None and window.start is not None:
            length = window.end - window.start
            fix += f", e.g. the second one: {window.end}, {window.end + length}, {window.unit}"
        raise query.form.span.error("Q08", "several windows at once are not a type of task yet", fix)


def _forecast(
    query: Query, catalogue: Catalogue, writer: SqlWriter, entity: Table
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Returns the words of a forecast, whose labels are made by SQL."""
    target = query.target
    if not isinstance(target, Aggregation):
        catalogue.check_condition(target)
    else:
        catalogue.check_condition(Comparison(target, "NULL", (), False, target.span))
    if query.where is not None:
        catalogue.check_condition(query.where)
    asked = list(terms(target))
    for term in asked:
        if isinstance(term, Reference):
            fix = "say it after WHERE, or predict the column by itself"
            raise term.span.error("Q08", f"{term.span} is a column in a target of the future", fix)
        if term.function == "LIST_DISTINCT" and term is not target:
            raise term.span.error("Q08", "a list cannot be compared", "use COUNT or COUNT_DISTINCT")
    for term in terms(query.where):
        if isinstance(term, Aggregation) and term.function == "LIST_DISTINCT":
            raise term.span.error("Q08", "a list cannot be compared", "use COUNT or COUNT_DISTINCT")
    windows = [term.window for term in asked if isinstance(term, Aggregation) and term.window]
    kind = writer.kind(target) if isinstance(target, Aggregation) else "truth"
    found = forecast_type(query, kind)
    sql = writer.labels(lambda term: _label(target, kind, writer, term))
    if not windows:  # the SQL above has refused what has none
        raise QueryError("Q04", "the target has no window of time", "add one: 0, 30, days")
    horizon = max(map(window_length, windows))
    manifest: dict[str, Any] = {
        "kind": "forecast", "task_type": found.type, "entity_table": entity.name, "timedelta": show_length(horizon),
        "sql": sql, "population": writer.population(),
    }  # fmt: skip
    facts = [("type", f"{found.type.replace('_', ' ')}: {found.why}")]
    if found.type == "recommendation":
        assert isinstance(target, Aggregation)
        item = writer.item(target.of)
        manifest |= {"dst_entity_table": item.name, "dst_entity_col": item.primary_key[0]}
        manifest |= {"eval_k": query.form.number if query.form else 10}
        facts.append(("items", f"rows of {item.name} that exist at t"))
    longest = max(windows, key=window_length)
    why = f"the window ends at {longest.end} {longest.unit}"
    why += ", at most so long" if longest.unit == "months" else ""
    facts.append(("horizon", f"{show_length(horizon)}: {why}"))
    facts += [
        ("path", f"{t.span}: {' → '.join(step.link for step in path)}")
        for t, path in dict(writer.paths).items()
    ]
    facts.append(("asked", _population_words(query, entity)))
    return manifest, facts


def _autocomplete(
    query: Query, catalogue: Catalogue, entity: Table
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Returns the words of a task that fills in a column of the entity's own rows."""
    target = query.target
    assert isinstance(target, Reference)
    table = catalogue.table(target.table)
    if table.name != entity.name:
        what = f'{target.span} is not a column of "{entity.name}"'
        fix = f"predict a column of {entity.name}, or aggregate: LAST({target.span}, 0, 30, days)"
        raise target.span.error("Q03", what, fix)
    if target.column is None:
        raise target.span.error(
            "Q05", f"{target.span} is no column", "name a column, or COUNT rows in a window"
        )
    column, kind = catalogue.column(target), catalogue.kind(target)
    if known_column(table) is None:
        what = f'"{table.name}" has no time column: it is not known when {target.span} was asked for'
        raise target.span.error("Q07", what, catalogue.dating(table))
    if query.where is not None:
        fix = "leave the WHERE out, or give a table of labels (kind: external)"
        raise query.where.span.error(
            "Q08", "a column is filled in for all rows, not for those of a WHERE", fix
        )
    link = link_of(table, column)
    found = column_type(query, target, table.data[column], kind, link.table if link else "")
    manifest: dict[str, Any] = {
        "kind": "autocomplete",
        "task_type": found.type,
        "entity_table": table.name,
        "target_col": column,
    }
    facts = [("type", f"{found.type.replace('_', ' ')}: {found.why}")]
    if found.type == "recommendation" and link is not None:
        manifest |= {"dst_entity_table": link.table, "dst_entity_col": column}
        manifest["eval_k"] = query.form.number if query.form is not None and query.form.number else 10
        facts.append(("items", f"rows of {link.table} that exist at t"))
    facts.append(("asked", f"each row of {table.name} when it becomes known, {target.span} being hidden"))
    return manifest, facts


def _label(target: Condition, kind: Kind, writer: SqlWriter, term: Terms) -> str:
    if isinstance(target, Aggregation) and (kind != "truth" or target.function == "LIST_DISTINCT"):
        return term(target)
    return f"CAST({writer.condition(target, term)} AS BIGINT)"


def _population_words(query: Query, entity: Table) -> str:
    who = f"every row of {entity.name}" + (" known at t" if known_column(entity) else "")
    return who if query.where is None else f"{who} with {query.where.span}"
