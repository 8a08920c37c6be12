"""The folder of the demo database: built once, in RelBench's format, kept in the user's cache."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import yaml

from quartet.demo.tables import RECIPES, make_tables, read_package
from quartet.errors import IntegrityError, ResourceError
from quartet.machine import user_cache
from quartet.tasks import SPLITS, Splits, forecast_times, run_task_sql
from quartet.times import parse_instant, parse_length, to_utc

_FORMAT = 2  # part of the folder's name: raise it with every change of the tables, tasks or labels
_VAL, _TEST = "2013-10-01", "2013-11-12"
_PACKAGED = resources.files("quartet.demo")
_MANIFEST = {
    "name": "nyc-flights",
    "manifest_version": 1,
    "description": "All 336,776 flights that were to leave New York's three airports in 2013, with their "
    "airlines, planes, airports, hourly weather, and the report on how each flight went.",
    "val_timestamp": _VAL,
    "test_timestamp": _TEST,
    "tables": {
        name: {"pkey": recipe.key, "time_col": recipe.time, "fkeys": dict(recipe.links)}
        for name, recipe in RECIPES.items()
    },
}


def demo_folder(cache: Path | None = None) -> Path:
    """Returns the folder of the demo database, in RelBench's format: built at the first call, then only found.

    It lies in `cache`, by default `$XDG_CACHE_HOME/quartet` or `~/.cache/quartet`. The folder
    appears there complete, by one rename, so several processes may ask for it at once.
    """
    folder = (cache or user_cache()) / f"demo-v{_FORMAT}"
    if not folder.exists():
        _build(folder)
    tasks = [f"tasks/{name}" for name in _tasks()]
    files = ["manifest.yaml", "README.md", *(f"db/{name}.parquet" for name in RECIPES)]
    files += [
        f"{task}/{file}" for task in tasks for file in ("manifest.yaml", *map("{}.parquet".format, SPLITS))
    ]
    for file in files:
        if not (folder / file).is_file():
            raise IntegrityError(
                "C06",
                f'the demo database in "{folder}" is damaged: "{file}" is missing',
                "delete that folder; it will be built again",
            )
    return folder


def _tasks() -> dict[str, str]:
    """Returns the text of every task manifest that comes with quartet, by task name."""
    files = [file for file in (_PACKAGED / "tasks").iterdir() if file.name.endswith(".yaml")]
    texts = {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in files}
    return dict(sorted(texts.items()))


def _build(folder: Path) -> None:
    """Builds in a temporary folder beside `folder`, then renames it: there is no half-built folder."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
            built = Path(staging) / folder.name
            _write(built)
            try:
                built.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process has put its own, equal folder in place first
                    raise
    except OSError as error:
        raise ResourceError(
            "C09",
            f'the demo database cannot be written to "{folder.parent}": {error.strerror or error}',
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from error


def _write(folder: Path) -> None:
    """Writes tables, tasks and labels; the labels of a split are in the order in which RelBench keeps them."""
    tables = make_tables(read_package())
    (folder / "db").mkdir(parents=True)
    for name, table in tables.items():
        pq.write_table(table, folder / "db" / f"{name}.parquet")
    (folder / "manifest.yaml").write_text(yaml.safe_dump(_MANIFEST, sort_keys=False), encoding="utf-8")
    readme = (_PACKAGED / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    dated = [to_utc(tables[n][r.time], f"{n}.{r.time}").ns for n, r in RECIPES.items() if r.time]
    span = (
        min(int(times[0]) for times in dated),
        max(int(times[-1]) for times in dated),
    )  # tables are sorted
    splits = Splits(parse_instant(_VAL, "val"), parse_instant(_TEST, "test"))
    for name, text in _tasks().items():
        task = yaml.safe_load(text)
        (folder / "tasks" / name).mkdir(parents=True)
        (folder / "tasks" / name / "manifest.yaml").write_text(text, encoding="utf-8")
        horizon = parse_length(task["timedelta"], "timedelta")
        for split in SPLITS:
            times = forecast_times(split, splits, horizon, task.get("num_eval_timestamps", 1), span)
            labels = run_task_sql(task["sql"], tables, times, horizon, f'task "{name}"')
            entity = task.get("entity_col") or task["src_entity_col"]
            labels = labels.sort_by([(task["time_col"], "ascending"), (entity, "ascending")])
            pq.write_table(labels, folder / "tasks" / name / f"{split}.parquet")
