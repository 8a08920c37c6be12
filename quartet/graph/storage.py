"""A graph on disk: one `.npy` file for each array, mapped into memory when it is opened.

Opening reads a page of JSON and maps the files, so it takes milliseconds whatever the size. A
folder is complete or absent; one that is foreign or cut short is refused, never read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from quartet.errors import IntegrityError
from quartet.files import new_folder
from quartet.graph.temporal import TemporalGraph

FORMAT = "quartet-graph"
VERSION = 1
_ABOUT = "graph.json"


def save_graph(graph: TemporalGraph, folder: Path) -> None:
    """Writes a graph as a folder, whole or not at all."""
    with new_folder(folder) as aside:
        for name, array in graph.arrays.items():
            np.save(aside / f"{name}.npy", array)
        about = {
            "format": FORMAT,
            "version": VERSION,
            "names": list(graph.names),
            "num_loops": graph.num_loops,
            "num_parallel": graph.num_parallel,
            "fingerprint": graph.fingerprint,
            "arrays": {name: [array.dtype.str, len(array)] for name, array in graph.arrays.items()},
        }
        (aside / _ABOUT).write_text(json.dumps(about, indent=1))


def open_graph(folder: Path, fingerprint: str | None = None) -> TemporalGraph:
    """The graph in a folder, mapped; with a fingerprint, only if it was built from that database."""
    about = _about(folder)
    if fingerprint is not None and about["fingerprint"] != fingerprint:
        raise IntegrityError(
            "C05", f'the graph in "{folder}" was built from other data', "build it again and save it"
        )
    arrays = {name: _map(folder, name, *shape) for name, shape in about["arrays"].items()}
    return TemporalGraph(
        tuple(about["names"]), about["num_loops"], about["num_parallel"], about["fingerprint"], **arrays
    )


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / _ABOUT).read_text())
    except (OSError, ValueError):
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise IntegrityError("C10", f'"{folder}" does not hold a graph', "build it again and save it")
    if about["version"] != VERSION:
        raise IntegrityError(
            "C10", f'the graph in "{folder}" has format {about["version"]}, this version reads {VERSION}'
        )
    return about


def _map(folder: Path, name: str, dtype: str, length: int) -> Any:
    path = folder / f"{name}.npy"
    try:
        # A plain view: compiled code then sees the same type as for an array built in memory.
        array = np.asarray(np.load(path, mmap_mode="r")) if length else np.load(path)
    except (OSError, ValueError) as error:
        raise IntegrityError("C06", f'"{path}" is damaged ({error})', "build the graph again") from None
    if array.dtype.str != dtype or len(array) != length:
        raise IntegrityError("C06", f'"{path}" is not the array that was saved', "build the graph again")
    array.flags.writeable = False
    return array
