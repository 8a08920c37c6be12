"""The command line: one thin verb for each capability of the library. A verb parses, calls and shows."""

from __future__ import annotations

import errno
import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from quartet.cli import (
    ask,
    cache,
    convert,
    embed,
    evaluate,
    explain,
    inspect,
    leakcheck,
    predict,
    query,
    recipe,
    report,
    sample,
    serve,
    submit,
    task,
    train,
    tune,
)
from quartet.cli.study import study
from quartet.errors import InternalError, QuartetError, ResourceError, UsageError, printable

_OBJECTS_AT_ONCE = 30_000  # new ones, before Python looks for cycles among them

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Predictions over relational databases, without leaks.\n\n"
        "SRC is a folder of .parquet/.csv files, a RelBench folder or name (`rel-f1`), a SQLite or DuckDB file, "
        "a URL such as `postgresql://user@host/db?schema=shop`, or `demo` (New York's flights of 2013).\n\n"
        "Start with `quartet inspect SRC`: it shows what was found and what was guessed. "
        "`--write-schema FILE` writes it down for you to correct, `--schema FILE` reads your corrections."
    ),
)
_VERBS = (
    inspect, ask, query, task, leakcheck, train, evaluate, predict, explain, embed, report, serve, sample, convert,
    recipe, tune, submit, cache,
)  # fmt: skip
for _verb in _VERBS:
    app.command()(getattr(_verb, _verb.__name__.rpartition(".")[2]))
app.add_typer(study, name="study")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"quartet {version('quartet-rdl')}")
        raise typer.Exit


@app.callback()
def set_up(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show results and errors alone.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also show every finding, how long things take, and where an error arose."
        ),
    ] = False,
    kept: Annotated[
        str | None,
        typer.Option(
            "--cache", metavar="FOLDER", help="Where to keep what is made of databases; `off`: nowhere."
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 (its callback answers)
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if kept is not None:
        os.environ["QUARTET_CACHE"] = kept or "off"  # before anything is made
    if quiet or verbose:
        from quartet.drawing import set_verbosity

        set_verbosity(1 if verbose else -1)


def main() -> None:
    """Runs the command; an error of ours is one line and an exit code, not a traceback.

    Python looks for cycles of objects after each 700 new ones by default, a tenth of what a short command does:
    importing and compiling make millions, and few are ever in a cycle.
    """
    gc.set_threshold(_OBJECTS_AT_ONCE)
    try:
        app()
    except QuartetError as error:
        _fail(error)
    except OSError as error:
        where = f'"{error.filename}": ' if error.filename else ""
        text = f"{where}{error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _fail(ResourceError("C09", text, "make room; `train --resume` goes on from what was kept"))
        _fail(UsageError("C09", text, "check the path and what you may do there"))
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        text = f"quartet itself failed: {type(error).__name__}{': ' if reason else ''}{reason}"
        _fail(InternalError("X01", text, f"report it, with the traceback in {_traceback_file()}"))


def _traceback_file() -> str:
    """Returns the file, private to the user, into which the traceback of the present error was written."""
    import tempfile
    import traceback

    from quartet.machine import user_cache

    for folder in (user_cache() / "errors", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".txt", "traceback-", folder)
            os.write(handle, traceback.format_exc().encode(errors="backslashreplace"))
            os.close(handle)
        except OSError:
            continue
        return name
    return "no file, as none can be written here (--verbose prints it)"


def _fail(error: QuartetError) -> None:
    if {"-v", "--verbose"} & set(sys.argv):
        import traceback

        traceback.print_exc()
    for line in (error.sentence, *error.place):
        print(printable(line), file=sys.stderr)
    sys.exit(error.exit_code)
