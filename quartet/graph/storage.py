"""A graph on disk: one `.npy` file for each array, mapped into memory when it is opened.

Opening reads a page of JSON and maps the files, so it takes milliseconds whatever the size. A
folder is complete or absent; one that is foreign or cut short is refused, never read.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from quartet.errors import IntegrityError, UsageError
from quartet.graph.temporal import TemporalGraph
from quartet.machine import new_folder

FORMAT = "quartet-graph"
VERSION = 1
_ABOUT = "graph.json"
_WORDS = {"format", "version", "names", "num_loops", "num_parallel", "fingerprint", "arrays"}
_ARRAYS = {field.name for field in fields(TemporalGraph) if field.type == "Ints"}


def save_graph(graph: TemporalGraph, folder: Path) -> None:
    """Writes a graph as a folder, whole or not at all; only a graph that lies there is replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _ABOUT).exists():
        raise UsageError("C09", f'"{folder}" holds something other than a graph', "give a new folder")
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
    about, arrays = _whole(folder)
    if fingerprint is not None and about["fingerprint"] != fingerprint:
        raise IntegrityError(
            "C05", f'the graph in "{folder}" was built from other data', "build it again and save it"
        )
    return TemporalGraph(
        tuple(about["names"]), about["num_loops"], about["num_parallel"], about["fingerprint"], **arrays
    )


def _whole(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the folder holds; read again if another process replaced it in the meantime."""
    while True:
        about, arrays, error = _about(folder), {}, None
        try:
            arrays = {name: _map(folder, name, *shape) for name, shape in about["arrays"].items()}
        except IntegrityError as found:
            error = found
        if _about(folder) == about:
            if error is not None:
                raise error
            return about, arrays


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / _ABOUT).read_text())
    except (OSError, ValueError):
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise IntegrityError("C10", f'"{folder}" does not hold a graph', "build it again and save it")
    if about.get("version", VERSION) != VERSION:
        raise IntegrityError(
            "C10", f'the graph in "{folder}" has format {about["version"]}, this version reads {VERSION}'
        )
    if about.keys() != _WORDS or about["arrays"].keys() != _ARRAYS:
        raise IntegrityError("C10", f'"{folder}" does not hold a whole graph', "build it again and save it")
    return about


def _map(folder: Path, name: str, dtype: str, length: int) -> Any:
    path = folder / f"{name}.npy"
    try:
        # A plain view: compiled code then sees the same type as for an array built in memory.
        array = np.asarray(np.lib.format.open_memmap(path, mode="r")) if length else _empty(path)
    except (OSError, ValueError) as error:
        raise IntegrityError("C06", f'"{path}" is damaged ({error})', "build the graph again") from None
    if array.dtype.str != dtype or array.shape != (length,):
        raise IntegrityError("C06", f'"{path}" is not the array that was saved', "build the graph again")
    array.flags.writeable = False
    return array


def _empty(path: Path) -> Any:
    """An array without elements, which cannot be mapped."""
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)
