"""Database: validated tables, their links as row numbers, and a report of what was noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import TimeRule, num_visible, visible
from quartet.database.entities import make_entities, proposed_entities, redated
from quartet.database.growth import as_read, joined, linked
from quartet.database.hashing import digest_column
from quartet.database.inference.evidence import Possible
from quartet.database.inference.infer import infer
from quartet.database.inference.inherit import inherit_times
from quartet.database.inference.names import noun_of
from quartet.database.readers.read import read_source
from quartet.database.relations import Relation, relate, structure_findings
from quartet.database.schema import CONFIRMED, Origin, Schema, TableSchema, inferred
from quartet.database.table import Table, build_table
from quartet.database.told import read_as_told
from quartet.errors import SchemaError, UsageError, did_you_mean
from quartet.findings import Finding, note, warning
from quartet.machine import give_back, set_aside
from quartet.times import NEVER, STATIC, show_instant

_FEW_MOMENTS = 8  # at which the newest row is looked for among all rows


@dataclass(frozen=True, eq=False, repr=False)
class Database:
    """Tables, relations and findings. Build one with `Database.load` or `Database.build`."""

    tables: Mapping[str, Table]
    relations: tuple[Relation, ...]
    schema: Schema
    findings: tuple[Finding, ...] = ()
    possible: tuple[Possible, ...] = ()
    location: str = ""
    task_folder: Path | None = None
    untyped: frozenset[str] = frozenset()

    @staticmethod
    def load(
        source: object, schema: Schema | Mapping[str, Any] | str | Path | None = None, views: bool = False
    ) -> Database:
        """Opens the database at a source: a folder, a file, a URL, a Hub name, "demo", or a dict of tables.

        Keys, links and times that the source does not declare are inferred and shown as inferred
        (`quartet inspect`). `schema`, the path of a schema file or a dict with the same content, confirms
        or corrects them. With `views`, or `views: true` in the schema, the views of an SQL database are read as tables.
        """
        if isinstance(schema, (str, Path)):
            schema = Schema.read(Path(schema))
        elif isinstance(schema, Mapping):
            schema = Schema.from_dict(schema)
        elif not isinstance(schema, (Schema, type(None))):
            kind = type(schema).__name__
            raise UsageError(
                "C02", f"the schema is of type {kind}", "give the path of a schema file, or a dict"
            )
        views = views or (schema is not None and schema.views)
        raw = read_source(source, views)
        for name in raw.schema.tables:
            if name not in raw.tables:
                meant = did_you_mean(name, raw.tables)
                text = f'the manifest of "{raw.location}" declares a table "{name}" without data{meant}'
                raise SchemaError("S09", text)
        known = replace(raw.schema, tables={n: raw.schema.tables.get(n, TableSchema()) for n in raw.tables})
        known = replace(known, views=views)
        columns = {name: table.column_names for name, table in raw.tables.items()}
        known = known.with_times_spread(columns)
        known = known.corrected_by(schema.with_times_spread(columns)) if schema is not None else known
        tables, findings = {}, list(raw.findings)
        for name, table in raw.tables.items():
            tables[name], noticed = read_as_told(name, table, known.tables[name], name in raw.untyped)
            findings += noticed
        known, possible = infer(tables, _resolved(known, tables), raw.views)
        tables, known = inherit_times(tables, known)
        findings += _without_time(known, possible)
        return Database.build(
            tables,
            known,
            location=raw.location,
            task_folder=raw.task_folder,
            findings=findings,
            untyped=raw.untyped,
            possible=tuple(possible),
        )

    @staticmethod
    def build(
        tables: Mapping[str, pa.Table], schema: Schema, findings: Iterable[Finding] = (), **about: Any
    ) -> Database:
        """Builds a database from raw tables and a complete schema; every table and link is validated."""
        if not tables:
            place = about.get("location", "")
            fix = "give a folder of .parquet/.csv or a database URL"
            raise SchemaError("S01", f'no tables found in "{place}"', fix)
        spelt: dict[str, str] = {}
        for name in tables:
            if spelt.setdefault(name.lower(), name) != name:
                text = f'two tables are named "{spelt[name.lower()]}"/"{name}"'
                raise SchemaError("S15", text, "rename one")
        built, relations, report = {}, [], list(findings)
        for name, raw in tables.items():
            built[name], noticed = build_table(name, raw, schema.tables[name])
            report += noticed
        built = make_entities(built, schema.entities)
        for table in built.values():
            links, noticed = relate(table, built, schema.on_dangling or "drop")
            relations += links
            report += noticed
        report += structure_findings(built, relations)
        give_back()
        return Database(built, tuple(relations), schema, tuple(report), **about)

    def task(
        self,
        definition: str | Path | Mapping[str, Any] | None = None,
        *,
        labels: object = None,
        **fields: Any,
    ) -> Any:
        """Returns a `Task` on this database.

        A text or path names a stored task or a task file; `regenerate` and `on_early_seed` may go with it. A text that
        begins with PREDICT is a query. A dict, or keyword arguments with the same fields as a task file, define a new
        one: by its `sql`, by its `query`, or by `labels`, a data frame, an Arrow table or the path of a file.
        """
        # By name, because tasks are in the room above this one.
        tasks: Any = import_module("quartet.tasks")
        if isinstance(definition, str) and tasks.is_query(definition) and labels is None:
            fields.pop("regenerate", None)  # the labels of a query are always made
            return self.query(definition, **fields)
        if isinstance(definition, (str, Path)):
            if labels is not None or fields.keys() - {"regenerate", "on_early_seed"}:
                raise UsageError(
                    "C02",
                    f'the task "{definition}" is given by name, and fields of a task besides',
                    "give the name alone, or all fields of a new task",
                )
            return tasks.Task.load(self, definition, **fields)
        if not isinstance(definition, (Mapping, type(None))):
            raise UsageError(
                "C02",
                f"the task is of type {type(definition).__name__}",
                "give the name of a stored task, the path of a task file, or a dict with its fields",
            )
        fields = {str(name): value for name, value in {**(definition or {}), **fields}.items()}
        labels = fields.pop("labels", None) if labels is None else labels
        if not fields:
            stored = ", ".join(f'"{name}"' for name in tasks.task_names(self)) or "none"
            raise UsageError(
                "C02", "no task is given", f"name a stored task (there are: {stored}), or define one"
            )
        if labels is None:
            return tasks.Task.from_sql(self, **fields)
        return tasks.Task.from_labels(self, tasks.read_labels(labels), **fields)

    def query(self, text: str, **fields: Any) -> Any:
        """Returns the `Task` of a predictive query such as `PREDICT COUNT(orders.*, 0, 30) = 0 FOR EACH customers.id`.

        `fields` of a task file, such as `name` or `num_eval_timestamps`, go before what follows from the query.
        """
        tasks: Any = import_module("quartet.tasks")
        return tasks.Task.from_sql(self, query=text, **fields)

    def __getitem__(self, name: str) -> Table:
        if not isinstance(name, str) or name not in self.tables:
            raise UsageError("S09", f'there is no table "{name}"' + did_you_mean(str(name), self.tables))
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.tables)

    def __repr__(self) -> str:
        names = ", ".join(list(self.tables)[:6]) + (", ..." if len(self.tables) > 6 else "")
        span = f", {show_instant(self.span[0])} to {show_instant(self.span[1])}" if self.span else ""
        return (
            f'<Database "{self.schema.name or self.location}": {len(self.tables)} tables ({names}), '
            f"{self.num_rows:,} rows, {len(self.relations)} links{span}>"
        )

    @property
    def num_rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    @cached_property
    def offsets(self) -> dict[str, int]:
        """The global id of the first row of each table: global id = offset + row."""
        starts = np.cumsum([0] + [table.num_rows for table in self.tables.values()])
        return {name: int(start) for name, start in zip(self.tables, starts, strict=False)}

    @cached_property
    def span(self) -> tuple[int, int] | None:
        """The first and the last time of any row, or None if no row has a time."""
        dated = [t.known_at for t in self.tables.values() if t.is_timed]
        times = np.concatenate([*dated, np.empty(0, dtype=np.int64)])
        times = times[(times != NEVER) & (times != STATIC)]
        return (int(times.min()), int(times.max())) if len(times) else None

    def newest(self, times: NDArray[np.int64], rule: TimeRule = "<=", but_of: str = "") -> NDArray[np.int64]:
        """Returns the time of the newest row that is visible at each time, but of one table; `STATIC` where none is."""
        moments, place = np.unique(times, return_inverse=True)
        if len(moments) <= _FEW_MOMENTS:
            found = [self._newest_at(moment, rule, but_of) for moment in moments.tolist()]
            return np.array(found, np.int64)[place]
        if but_of not in self._instants:  # sorting is worth its time
            each = [t.known_at for name, t in self.tables.items() if t.is_timed and name != but_of]
            known = np.concatenate([*each, np.array([STATIC])])
            known.sort()  # `np.unique` is a hundred times slower where most differ
            self._instants[but_of] = set_aside(known[np.append(True, known[1:] != known[:-1])])
        known = self._instants[but_of]
        return np.asarray(known[num_visible(known, moments, rule) - 1][place])

    def _newest_at(self, moment: int, rule: TimeRule, but_of: str) -> int:
        found = STATIC
        for name in self._last.keys() - {but_of}:
            known, last = self[name].known_at, self._last[name]
            if not visible(np.array(last), moment, rule):  # seldom: mostly, all rows are
                last = int(known[visible(known, moment, rule)].max(initial=STATIC))
            found = max(found, last)
        return found

    @cached_property
    def _last(self) -> dict[str, int]:
        """Returns when the last row of each table with times is known."""
        dated = {name: table.known_at for name, table in self.tables.items() if table.is_timed}
        return {name: int(known[known != NEVER].max(initial=STATIC)) for name, known in dated.items()}

    @cached_property
    def _instants(self) -> dict[str, NDArray[np.int64]]:
        """Returns where `STATIC` and the distinct times of all rows but those of one table are kept, ascending."""
        return {}

    def upto(self, time: int, rule: TimeRule = "<=") -> Database:
        """Returns the database as it was known at a time."""
        return self.taking({name: visible(t.known_at, time, rule) for name, t in self.tables.items()})

    def taking(self, chosen: Mapping[str, NDArray[np.bool_]]) -> Database:
        """Returns the database with some tables and some of their rows."""
        return self.with_tables({name: self[name].take(rows) for name, rows in chosen.items()})

    def frozen_at(self, time: int) -> Database:
        """Returns the database in which what became known after a time is never known; rows keep their places."""
        tables = {
            name: replace(t, known_at=set_aside(np.where(visible(t.known_at, time), t.known_at, NEVER)))
            for name, t in self.tables.items()
        }
        return replace(self, tables=tables)

    def without(self, columns: Iterable[tuple[str, str]]) -> Database:
        """Returns the database with some (table, column) pairs hidden."""
        hidden: dict[str, set[str]] = {}
        for table, column in columns:
            known = self[table].data.column_names
            if column not in known:
                text = f'table "{table}" has no column "{column}"' + did_you_mean(column, known)
                raise SchemaError("L01", text)
            hidden.setdefault(table, set()).add(column)
        if not hidden:
            return self
        for relation in self.relations:
            named = hidden.get(relation.parent, set()) & set(relation.foreign_key.references)
            if named and not hidden.get(relation.table, set()) & set(relation.foreign_key.columns):
                label = relation.label
                text = f"{relation.parent}.{min(named)} is the column to which {label} points and cannot be hidden"
                raise SchemaError("L02", text, f"hide {label} too, and the link goes with it")
        tables = {n: t.without(hidden[n]) if n in hidden else t for n, t in self.tables.items()}
        return self.with_tables({n: redated(t, tables) for n, t in tables.items()})

    def with_tables(self, tables: dict[str, Table]) -> Database:
        """Returns this database with its tables replaced by parts of themselves, and links found anew."""
        relations = [relation for table in tables.values() for relation in relate(table, tables)[0]]
        return replace(self, tables=tables, relations=tuple(relations))

    def entity_name(self, name: str) -> str | None:
        """Returns the table that a name means: its own, or one made from distinct values that goes by it."""
        if name in self.tables:
            return name
        for own, table in self.tables.items():
            columns = {column.casefold() for _, column in table.schema.made_from}
            if table.schema.made_from and (name.casefold() in columns or noun_of(name) == noun_of(own)):
                return own
        return None

    def with_entity(self, name: str) -> Database:
        """Returns the database with the table that a name means, made from distinct values if it is not there yet.

        The name is that of the table, its singular, or that of the column (see `proposed_entities`); `entity_name`
        tells which table it is. What is made here is a finding, with the line of the schema file that settles it.
        """
        if self.entity_name(name) is not None:
            return self
        proposed = proposed_entities(self)
        for entity in proposed:
            if entity.is_called(name):
                text = f'table "{entity.name}" is made from {entity.why}; each is known from its first row on'
                fix = f"to settle it, write {entity.line} in the schema file"
                made = self.with_entities({entity.name: entity.columns}, inferred(0.8, entity.why))
                finding = note("S22", entity.name, text, entity.num_values, fix)
                return replace(made, findings=(*made.findings, finding))
        fix = f"or make one from distinct values: {', '.join(e.line for e in proposed)}" if proposed else ""
        meant = did_you_mean(name, [*self.tables, *(entity.name for entity in proposed)])
        raise UsageError("S09", f'there is no table "{name}"{meant}', fix)

    def with_entities(self, entities: Mapping[str, Sequence[str]], origin: Origin = CONFIRMED) -> Database:
        """Returns the database with tables made from distinct values, as `entities` in the schema file names them."""
        new = {name: tuple(columns) for name, columns in entities.items() if name not in self.tables}
        if not new:
            return self
        tables = make_entities(self.tables, new, origin)
        relations, findings = [], [finding for finding in self.findings if finding.code != "S13"]
        for table in tables.values():
            links, noticed = relate(table, tables, self.schema.on_dangling or "drop")
            relations += links
            labels = {relation.label for relation in links if relation.parent in new}
            findings += [finding for finding in noticed if finding.where in labels]
        schema = replace(self.schema, entities={**self.schema.entities, **new})
        return replace(
            self, tables=tables, relations=tuple(relations), findings=tuple(findings), schema=schema
        )

    def appended(self, rows: Mapping[str, pa.Table]) -> Database:
        """Returns the database with rows at the end of tables, as if its source had held them.

        `rows` are as the source writes them (`rows_as_read`). A row may name one that comes with it, or that came or
        comes at another time; a key that is there already is an error.
        """
        unknown = [name for name in rows if name not in self.tables]
        if unknown:
            raise SchemaError(
                "S09", f'there is no table "{unknown[0]}"' + did_you_mean(unknown[0], self.tables)
            )
        schemas = [table.schema for table in self.tables.values()]
        if any(each.made_from or (each.time is not None and each.time.link) for each in schemas):
            return self._rebuilt(rows)
        tables, parts, findings = dict(self.tables), {}, []
        for name, more in rows.items():
            tables[name], parts[name], noticed = joined(tables[name], more)
            findings += noticed
        relations = []
        for relation in self.relations:
            grown, noticed = linked(relation, self.tables, tables, parts, self.schema.on_dangling or "drop")
            relations.append(grown)
            findings += noticed
        told = list(self.findings)
        for new in findings:  # of one kind and place the newest tells, and counts all
            same = [each for each in told if (each.code, each.where) == (new.code, new.where)]
            told = [each for each in told if each not in same]
            told.append(replace(new, count=new.count + sum(each.count for each in same)))
        return replace(self, tables=tables, relations=tuple(relations), findings=tuple(told))

    def _rebuilt(self, rows: Mapping[str, pa.Table]) -> Database:
        """Returns the database with more rows where times of other rows, or whole tables, follow from these."""
        made = {name for name, table in self.tables.items() if table.schema.made_from}
        raw, schemas = {}, {}
        for name, table in self.tables.items():
            if name not in made:
                own = tuple(link for link in table.schema.foreign_keys if link.table not in made)
                schemas[name], raw[name] = replace(table.schema, foreign_keys=own), as_read(table)
                if name in rows:
                    raw[name] = pa.concat_tables([raw[name], rows[name].cast(raw[name].schema)])
        raw, schema = inherit_times(raw, replace(self.schema, tables=schemas))
        built = Database.build(raw, schema, possible=self.possible)
        return replace(built, location=self.location, task_folder=self.task_folder, untyped=self.untyped)

    def adding(self, name: str, raw: pa.Table, schema: TableSchema) -> Database:
        """Returns the database with one more table, which may link to the others."""
        table, findings = build_table(name, raw, schema)
        tables = {**self.tables, name: table}
        links, noticed = relate(table, tables)
        return replace(
            self,
            tables=tables,
            relations=(*self.relations, *links),
            findings=(*self.findings, *findings, *noticed),
        )

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything a model could see: schema and cells, in row order."""
        digest = hashlib.sha256()
        for table in self.tables.values():
            time = table.schema.time.column if table.schema.time else None
            kinds = sorted(table.schema.kinds.items())
            facts = (table.name, table.primary_key, time, table.schema.available_at, *kinds)
            links = [(fk.columns, fk.table, fk.references) for fk in table.schema.foreign_keys]
            columns = [(field.name, str(field.type)) for field in table.data.schema]
            digest.update(repr((facts, links, columns)).encode())
            digest.update(table.known_at.tobytes())
            for column in table.data.columns:
                digest_column(digest, column)
        return digest.hexdigest()


def _resolved(schema: Schema, tables: Mapping[str, pa.Table]) -> Schema:
    """Returns the schema with `a, b` or `a.b` read as one name where there is such a name and no `a`."""

    def columns(table: str, names: tuple[str, ...]) -> tuple[str, ...]:
        known, whole = tables[table].column_names, ", ".join(names)
        return (whole,) if whole in known and not set(names) <= set(known) else names

    resolved = {}
    for name, table in schema.tables.items():
        links = []
        for fk in table.foreign_keys:
            fk = replace(fk, columns=columns(name, fk.columns))
            whole = f"{fk.table}.{', '.join(fk.references)}"
            is_whole = whole in tables and fk.table not in tables
            links.append(replace(fk, table=whole, references=()) if is_whole else fk)
        key = columns(name, table.primary_key)
        resolved[name] = replace(table, primary_key=key, foreign_keys=tuple(links))
    return replace(schema, tables=resolved)


def _without_time(schema: Schema, possible: Iterable[Possible]) -> list[Finding]:
    """Returns a warning for each table that counts as always known although a column may be its time."""
    findings: dict[str, Finding] = {}
    possible = sorted(possible, key=lambda guess: -guess.confidence)
    for guess in possible:
        is_open = guess.fact == "time_col" and schema.tables[guess.table].time is None
        if is_open and guess.may_be_time and guess.table not in findings:
            where = f"{guess.table}.{guess.columns[0]}"
            text = f'table "{guess.table}" counts as always known, but {where} may be its time ({guess.why})'
            line = guess.line_for_all(possible)
            fix = f"write {line} in the schema file, or time_col: null if its rows were always known"
            findings[guess.table] = warning("D05", guess.table, text, fix=fix)
    return list(findings.values())
