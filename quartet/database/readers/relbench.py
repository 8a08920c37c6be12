"""RelBench-format folders, and RelBench datasets by name from the Hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from quartet.database.schema import DECLARED, FACTS, Schema
from quartet.database.source import Source
from quartet.errors import ResourceError, SchemaError, did_you_mean

MANIFEST = "manifest.yaml"
_HUB_HOME = "stanford-star/relbench-v1"


def is_relbench(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and (folder / "db").is_dir()


def read_relbench(folder: Path) -> Source:
    """Tables, schema and tasks of a RelBench-format folder; its manifest settles every fact."""
    schema = Schema.read(folder / MANIFEST, DECLARED)
    tables = {name: _read_table(folder, name) for name in schema.tables}
    tasks = folder / "tasks"
    return Source(tables, settled(schema), str(folder), tasks if tasks.is_dir() else None)


def settled(schema: Schema) -> Schema:
    """The schema with nothing left to infer: in a RelBench manifest, absent means none."""
    return replace(schema, tables={n: replace(t, settled=FACTS) for n, t in schema.tables.items()})


def _read_table(folder: Path, name: str) -> pa.Table:
    path = folder / "db" / f"{name}.parquet"
    if path.parent != folder / "db" or not path.is_file():  # a manifest must not reach out of its folder
        there = [p.stem for p in (folder / "db").glob("*.parquet")]
        raise SchemaError(
            "S09",
            f'{folder / MANIFEST} declares a table "{name}", but db/{name}.parquet is not there'
            + did_you_mean(name, there),
            "add the file, or take the table out of the manifest",
        )
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise SchemaError("S01", f"{path} cannot be read ({reason})", "repair the file") from None


def read_hub(name: str) -> Source:
    """A dataset by its RelBench name (`rel-f1`) or Hub address (`org/repo/folder`)."""
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
