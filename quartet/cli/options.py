"""Options that several verbs have in common, and the few things that every verb does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quartet.errors import UsageError
from quartet.registry import MODELS

if TYPE_CHECKING:
    from quartet.database import Database

Source = Annotated[str, typer.Argument(metavar="SRC", help="A folder, file, URL, RelBench name, or `demo`.")]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="YAML file that confirms or corrects keys, links and times.")
]
Views = Annotated[bool, typer.Option("--views", help="Read the views of an SQL database, too.")]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="A task stored with the database, a task's YAML file, or a query: `PREDICT …`."
    ),
]
QueryText = Annotated[
    str, typer.Argument(metavar="QUERY", help="`PREDICT target FOR EACH table.key WHERE condition`.")
]
QueryName = Annotated[
    str | None, typer.Option("--name", help="The name of the task (default: made from the query).")
]
QueryType = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="The type of the task, e.g. regression.")
]
Windows = Annotated[
    int | None, typer.Option(min=1, help="Prediction times in validation and in test, at most.")
]
ValTime = Annotated[str | None, typer.Option("--val", metavar="TIME", help="When validation begins.")]
TestTime = Annotated[str | None, typer.Option("--test", metavar="TIME", help="When test begins.")]
Hide = Annotated[
    list[str] | None,
    typer.Option(metavar="TABLE.COLUMN", help="A column that would give the answer away. May be repeated."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TABLE.COLUMN",
        help="A column of dates that would be hidden because they are later than its rows. May be repeated.",
    ),
]
PoolClasses = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help='Classes with fewer training labels become one, "(other)" (default: none do).',
    ),
]
DropEarly = Annotated[
    bool,
    typer.Option(help="Leave out seeds whose entity is newer than the asked time, instead of failing."),
]
Coverage = Annotated[
    float | None,
    typer.Option(help="How often intervals (`low`, `high`) or sets of classes are to hold (default: 0.9)."),
]
Abstain = Annotated[
    float, typer.Option(metavar="SHARE", help="Leave out so many of the least sure predictions, e.g. 0.1.")
]
PastLabels = Annotated[
    bool,
    typer.Option("--past-labels", help="Let the model see labels that are already known, as rows of the database."),
]  # fmt: skip
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting, e.g. `width=128`; see `quartet recipe`."),
]  # fmt: skip
ModelName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="; ".join(f"{row.name}: {row.help}" for row in MODELS.values()) + "."),
]
Preset = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="small: minutes on two cores. paper: its settings for the task. paper-val: those that validation "
        "selects. Or a recipe's .toml file, as `quartet tune` writes it.",
    ),
]
ProtocolName = Annotated[
    Literal["auto", "frozen", "rolling", "clamped"] | None,
    typer.Option(
        help="Where the database ends for a seed. frozen: at the test cut-off, as in published figures; rolling: at "
        "the seed's own time, as in use; clamped: at the cut-off, and asked as of then; auto (default): frozen, or "
        "rolling where test asks about rows that do not exist at the cut-off."
    ),
]
DeviceName = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="auto: a GPU where there is one.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Cores to use (default: those that are free).")]
On = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Who works: `local` or `local:4` (processes of this machine), `ray`, or `ray://HOST:PORT` (default: "
        "this process). The same bits whoever does.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def query_words(
    name: str | None,
    task_type: str | None,
    windows: int | None,
    val: str | None,
    test: str | None,
    hide: list[str] | None,
    keep: list[str] | None,
    pool_classes: int | None,
) -> dict[str, Any]:
    """Returns the words of a task file that options say, to go before what follows from a query."""
    pairs: dict[str, list[Any]] = {"--hide": [], "--keep": []}
    for option, columns in (("--hide", hide), ("--keep", keep)):
        for column in columns or ():
            if "." not in column:
                raise UsageError("C02", f"{option} {column} names no column of a table", "write TABLE.COLUMN")
            pairs[option].append(column.rpartition(".")[::2])
    given: dict[str, Any] = {
        "name": name, "task_type": task_type, "num_eval_timestamps": windows, "val_timestamp": val,
        "test_timestamp": test, "remove_columns": pairs["--hide"] or None,
        "keep_columns": pairs["--keep"] or None, "pool_classes": pool_classes,
    }  # fmt: skip
    return {word: value for word, value in given.items() if value is not None}


def say_if_compiling() -> None:
    """Says why the first call after an installation takes longer than those that follow."""
    from quartet.drawing import say
    from quartet.machine import is_compiled

    if not is_compiled():
        say("Compiling loops for this machine, which takes about ten seconds and is done once.")


def open_database(source: str, schema: Path | None, views: bool = False) -> Database:
    from quartet.database import Database
    from quartet.drawing import say

    begin = time.perf_counter()
    database = Database.load(source, schema, views)
    took = time.perf_counter() - begin
    say(f"Read {database.num_rows:,} rows of {len(database.tables)} tables in {took:.1f} s", verbose=True)
    return database


def write_picture(path: Path, picture: str, what: str) -> None:
    from quartet.drawing import say

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture, encoding="utf-8")
    say(f"Drew {what}: {path}")


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Ctrl-C or SIGTERM has asked to stop; a second one ends the process."""
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        asked.append(number)
        # Straight to the terminal: whoever prints just now may hold a lock, and would be waited for forever.
        os.write(2, "\nStopping after this step …\n".encode())
        signal.signal(number, before[number])

    before: dict[int, Any] = {
        number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
