"""RelBench-format folders, and RelBench datasets by name from the Hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quartet.database.readers.folder import read_parquet
from quartet.database.schema import DECLARED, FACTS, Schema
from quartet.database.source import Source
from quartet.errors import ResourceError, SchemaError, did_you_mean

_MANIFEST = "manifest.yaml"
_HUB_HOME = "stanford-star/relbench-v1"


def is_relbench(folder: Path) -> bool:
    return (folder / _MANIFEST).is_file() and (folder / "db").is_dir()


def read_relbench(folder: Path) -> Source:
    """Reads tables, schema and tasks of a RelBench-format folder.

    Its manifest leaves nothing to infer: a field that is absent means none.
    """
    schema = Schema.read(folder / _MANIFEST, DECLARED)
    settled = {name: replace(table, settled=FACTS) for name, table in schema.tables.items()}
    tables = {}
    for name in settled:
        path = folder / "db" / f"{name}.parquet"
        if path.parent != folder / "db" or not path.is_file():  # a manifest must not reach out of its folder
            meant = did_you_mean(name, [p.stem for p in (folder / "db").glob("*.parquet")])
            raise SchemaError(
                "S09",
                f'{folder / _MANIFEST} declares a table "{name}", but db/{name}.parquet is not there{meant}',
                "add the file, or take the table out of the manifest",
            )
        tables[name] = read_parquet(path)
    tasks = folder / "tasks"
    return Source(tables, replace(schema, tables=settled), str(folder), tasks if tasks.is_dir() else None)


def read_hub(name: str) -> Source:
    """Fetches a dataset by its RelBench name (`rel-f1`) or Hub address (`org/repo/folder`)."""
    try:
        import relbench
    except ImportError:
        raise ResourceError(
            "R01",
            f'"{name}" is not a local source; a RelBench dataset by name needs the relbench package',
            'pip install "quartet-rdl[relbench]", or give a local folder',
        ) from None
    address = name if "/" in name else f"{_HUB_HOME}/{name}"
    try:
        folder = relbench.load_dataset(address).dataset_dir
    except Exception as error:  # whatever the network or the Hub's client raises
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ResourceError(
            "R02",
            f'the RelBench dataset "{address}" could not be fetched ({reason})',
            "check the name and the network, or give a local folder",
        ) from None
    return read_relbench(Path(folder))
