"""The folder of the demo database: built once, in RelBench's format, kept in the user's cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import yaml

from quartet.demo.tables import RECIPES, make_tables, read_package
from quartet.errors import IntegrityError, ResourceError
from quartet.machine import user_cache
from quartet.tasks import SPLITS, Split, Splits, forecast_times, run_task_sql
from quartet.times import parse_instant, parse_length, to_utc

FORMAT = 1  # part of the folder's name: raise it with every change of the tables, tasks or labels
VAL_TIMESTAMP = "2013-10-01"
TEST_TIMESTAMP = "2013-11-12"

Progress = Callable[[str], None]
_HERE = resources.files("quartet.demo")


def demo_folder(cache: Path | None = None, progress: Progress = lambda _: None) -> Path:
    """The folder of the demo database, in RelBench's format: built at the first call, then only found.

    It lies in `cache`, by default `$XDG_CACHE_HOME/quartet` or `~/.cache/quartet`. The folder
    appears there complete, by one rename, so several processes may ask for it at once.
    """
    folder = (cache or user_cache()) / f"demo-v{FORMAT}"
    if not folder.exists():
        _build(folder, progress)
    _refuse_incomplete(folder)
    return folder


def _refuse_incomplete(folder: Path) -> None:
    for file in _file_names():
        if not (folder / file).is_file():
            raise IntegrityError(
                "C06",
                f'the demo database in "{folder}" is damaged: "{file}" is missing',
                "delete that folder; it will be built again",
            )


def _file_names() -> list[str]:
    tasks = [f"tasks/{name}" for name in _task_texts()]
    return [
        "manifest.yaml",
        "README.md",
        *(f"db/{name}.parquet" for name in RECIPES),
        *(f"{task}/manifest.yaml" for task in tasks),
        *(f"{task}/{split}.parquet" for task in tasks for split in SPLITS),
    ]


def _task_texts() -> dict[str, str]:
    """The text of every task manifest that comes with quartet, by task name."""
    names = sorted(file.name for file in (_HERE / "tasks").iterdir() if file.name.endswith(".yaml"))
    return {name.removesuffix(".yaml"): _packaged(f"tasks/{name}") for name in names}


def _packaged(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _build(folder: Path, progress: Progress) -> None:
    """Build in a temporary folder beside `folder`, then rename: there is no half-built folder."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
            built = Path(staging) / folder.name
            _make(built, progress)
            _rename_unless_there(built, folder)
    except OSError as error:
        raise ResourceError(
            "C09",
            f'the demo database cannot be written to "{folder.parent}": {error.strerror or error}',
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from error


def _make(folder: Path, progress: Progress) -> None:
    progress("reading the flights of 2013")
    raw = read_package()
    progress("making the tables")
    tables = make_tables(raw)
    texts = _task_texts()
    labels: dict[str, dict[Split, pa.Table]] = {}
    for name, text in texts.items():
        progress(f"making the labels of {name}")
        labels[name] = make_labels(tables, yaml.safe_load(text))
    progress("writing the files")
    _write(folder, tables, texts, labels)


def _rename_unless_there(built: Path, folder: Path) -> None:
    """Leave `built` where it is if another process has put its own, equal folder in place first."""
    try:
        built.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def make_labels(tables: Mapping[str, pa.Table], task: Mapping[str, Any]) -> dict[Split, pa.Table]:
    """The labels of a task in each split, in the order in which RelBench keeps them."""
    splits = Splits(parse_instant(VAL_TIMESTAMP, "val"), parse_instant(TEST_TIMESTAMP, "test"))
    horizon = parse_length(task["timedelta"], "timedelta")
    order = [(task["time_col"], "ascending"), (task["entity_col"], "ascending")]
    labels = {}
    for split in SPLITS:
        times = forecast_times(split, splits, horizon, task.get("num_eval_timestamps", 1), _span(tables))
        found = run_task_sql(task["sql"], tables, times, horizon, f'task "{task["name"]}"')
        labels[split] = found.sort_by(order)
    return labels


def _span(tables: Mapping[str, pa.Table]) -> tuple[int, int]:
    """The first and the last time in the database. Tables are in the order of their times."""
    times = [to_utc(tables[n][r.time], f"{n}.{r.time}").ns for n, r in RECIPES.items() if r.time]
    return min(int(ns[0]) for ns in times), max(int(ns[-1]) for ns in times)


def _write(
    folder: Path,
    tables: Mapping[str, pa.Table],
    task_texts: Mapping[str, str],
    labels: Mapping[str, Mapping[Split, pa.Table]],
) -> None:
    from pyarrow import parquet

    (folder / "db").mkdir(parents=True)
    for name, table in tables.items():
        parquet.write_table(table, folder / "db" / f"{name}.parquet")
    for name, text in task_texts.items():
        task = folder / "tasks" / name
        task.mkdir(parents=True)
        (task / "manifest.yaml").write_text(text, encoding="utf-8")
        for split, table in labels[name].items():
            parquet.write_table(table, task / f"{split}.parquet")
    (folder / "manifest.yaml").write_text(yaml.safe_dump(_manifest(), sort_keys=False), encoding="utf-8")
    (folder / "README.md").write_text(_packaged("README.md"), encoding="utf-8")


def _manifest() -> dict[str, Any]:
    return {
        "name": "nyc-flights",
        "manifest_version": 1,
        "description": "All 336,776 flights that were to leave New York's three airports in 2013, with their "
        "airlines, planes, airports, hourly weather, and the report on how each flight went.",
        "val_timestamp": VAL_TIMESTAMP,
        "test_timestamp": TEST_TIMESTAMP,
        "tables": {name: recipe.words for name, recipe in RECIPES.items()},
    }
