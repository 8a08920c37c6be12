"""The population of a task: whom it asks about at a time, found from the rows known then and from no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database import Database, Table
from quartet.errors import QuartetError
from quartet.findings import Finding, note, warning
from quartet.tasks.labels import LabelColumns, asked_entities, has_label, label_times, rows_of_keys
from quartet.tasks.query import target_tables
from quartet.tasks.spec import TaskSpec
from quartet.times import DAY, STATIC, show_instant, show_length

_EARLIER_WINDOWS = 12  # that are looked at for those who were asked about last

EVERYONE = "all that are known then"
_ASKED = "those the task asks about"


@dataclass(frozen=True, eq=False)
class Population:
    """Rows of the entity table, in their order, and in words which these are.

    `is_asked` says that they are those of the task, so that they are to those of training as one sample to another.
    """

    rows: NDArray[np.int64]
    words: str
    is_asked: bool = False
    findings: tuple[Finding, ...] = ()


def population_at(spec: TaskSpec, database: Database, time: int, rule: TimeRule = "<=") -> Population:
    """Returns whom a task asks about at a time.

    They are those of its `population`. A forecast without one asks by its label SQL, over a database in which
    everything that became known after that time is taken away. SQL that takes its population from the future finds
    nobody there: then they are those of the latest window that is over in which it found somebody. An autocomplete
    task asks about the rows whose value is not known by then. All that are known is the last resort, and said to be.
    """
    table = database[spec.entity_table]
    is_column = spec.kind == "autocomplete"  # its rows are asked about at their own time, by any rule
    known = np.flatnonzero(visible(table.known_at, time, "<=" if is_column else rule))
    if not len(known):
        return Population(known, _ASKED, True)
    if is_column and not spec.population:
        return _open_rows(spec, table, known, time)
    if spec.kind == "external" and not spec.population:
        return Population(known, EVERYONE)
    if spec.population:
        asked = asked_entities(spec, database, np.array([time]), time, rule)
        named = _named(spec, table, asked, known)
        return replace(named, findings=(*named.findings, *_silent_tables(spec, database, time, rule)))
    try:
        asked = asked_entities(spec, database, np.array([time]), time, rule)
        if asked.num_rows:
            return _named(spec, table, asked, known)
        times = time - spec.lag - spec.horizon * np.arange(_EARLIER_WINDOWS)
        asked = asked_entities(spec, database, times, time, rule)
    except QuartetError as error:
        text = f'the SQL of task "{spec.name}" does not tell whom to ask about ({error.what}): all are asked about'
        return Population(known, EVERYONE, findings=(warning("T19", spec.name, text, len(known)),))
    if not asked.num_rows:
        text = f'the SQL of task "{spec.name}" names nobody at {show_instant(time)} and before: all are asked about'
        fix = "say whom it asks about, by rows known then: `population: SELECT ...` in the task, or name them"
        return Population(known, EVERYONE, findings=(warning("T19", spec.name, text, len(known), fix),))
    told = label_times(asked[0], f'task "{spec.name}"')
    last = int(told.max())
    text = (
        f'by the rows known at {show_instant(time)} the SQL of task "{spec.name}" names nobody: it looks at later '
        f"ones, or there are none of late. Those of the last window in which it named {spec.entity_table}, "
        f"{show_instant(last)}, are asked about"
    )
    found = _named(spec, table, asked.filter(pa.array(told == last)), known)
    findings = (note("T19", spec.name, text, len(found.rows)), *found.findings)
    return Population(found.rows, f"those the task asked about at {show_instant(last)}", True, findings)


def _named(spec: TaskSpec, table: Table, asked: pa.Table, known: NDArray[np.int64]) -> Population:
    """Returns the entities that SQL names, each once; who is not among the known rows is left out and counted."""
    keys = asked[1].drop_null().unique()
    rows = rows_of_keys(pa.chunked_array([keys]), table, f'the population of task "{spec.name}"')
    is_known = np.isin(rows, known)
    findings = []
    if not is_known.all():
        count = int((~is_known).sum())
        text = (
            f"{count:,} of {len(rows):,} that the task asks about have no row in {table.name} then: left out"
        )
        findings.append(note("T19", spec.name, text, count))
    return Population(np.unique(rows[is_known]), _ASKED, True, tuple(findings))


def _silent_tables(spec: TaskSpec, database: Database, time: int, rule: TimeRule) -> Iterator[Finding]:
    """Yields a warning if the rows that a query predicts end more than a horizon before a time.

    The last time of a database may be that of a plan: a calendar of races goes on when their results have ended.
    """
    for name in target_tables(spec.query, database):
        known_at = database[name].known_at
        last = int(known_at[visible(known_at, time, rule)].max(initial=STATIC))
        if last != STATIC and time - last > spec.horizon:
            text = (
                f"{show_instant(time)} is {show_length((time - last) // DAY * DAY)} after the last row of {name} "
                f"({show_instant(last)}): it is not known what happened since"
            )
            yield warning("T20", name, text, fix=f"ask at {show_instant(last)} (--at), or add the rows since")


def _open_rows(spec: TaskSpec, table: Table, known: NDArray[np.int64], time: int) -> Population:
    """Returns the known rows whose value is still to come: their cell is empty, or they are too new to have it."""
    LabelColumns.of(spec, table)  # an error where the table has no times
    is_open = ~visible(spec.known_at(table.known_at[known]), time)
    if spec.target_col in table.data.column_names:
        is_open |= ~has_label(table.data[spec.target_col]).to_numpy()[known]
    else:
        is_open[:] = True
    if is_open.any():
        return Population(known[is_open], f"those whose {spec.target_col} is not known then", True)
    text = f"every known row of {table.name} has its {spec.target_col}: all are asked about"
    return Population(known, EVERYONE, findings=(note("T19", spec.name, text, len(known)),))
