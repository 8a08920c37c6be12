"""The verb `quartet cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from quartet.cli.options import Json
from quartet.errors import UsageError, did_you_mean

_MEANINGS = {
    "labels": "past labels and other answers of task SQL",
    "graphs": "graphs of databases, with what samplers need of them",
    "features": "cells as numbers",
    "answers": "what models said of cases whose labels are known since",
    "contexts": "sampled contexts of training",
    "text": "vectors of texts",
    "compiled": "compiled loops",
}


def cache(
    clear: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"Remove what is kept: all, or {', '.join(_MEANINGS)}."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what is kept from one call to the next, and where; remove it.

    - `quartet cache` shows how much there is of each kind. `--clear all` removes it; it is made again when needed.

    - `QUARTET_CACHE` names another folder than `~/.cache/quartet`, and `QUARTET_CACHE=off` keeps nothing of databases.
      So does `quartet --cache FOLDER` for one call.

    - `QUARTET_CACHE_SIZE=20GB` sets how much is kept of databases (default: 5 GB); what was not used for longest goes
      first.
    """
    from quartet.machine import Store, show_size, user_cache

    if clear is not None and clear not in (*_MEANINGS, "all"):
        known = (*_MEANINGS, "all")
        text = f'nothing is kept of the kind "{clear}"' + did_you_mean(clear, known)
        raise UsageError("C02", text, f"say one of {', '.join(known)}")
    home, store = user_cache(), Store.of_user()
    kept = ("labels", "graphs", "features", "answers")
    folders = {name: home / ("kept" if name in kept else "") / name for name in _MEANINGS}
    files = {name: [p for p in folder.rglob("*") if p.is_file()] for name, folder in folders.items()}
    sizes = {name: sum(path.stat().st_size for path in paths) for name, paths in files.items()}
    if clear is not None:
        chosen = _MEANINGS if clear == "all" else (clear,)
        for path in (path for name in chosen for path in files[name]):
            path.unlink(missing_ok=True)
        removed = sum(sizes[name] for name in chosen)
        if json:
            from json import dumps

            print(dumps({"folder": str(home), "removed": removed}))
        else:
            print(f"Removed {show_size(removed)} from {home}")
        return
    if json:
        from json import dumps

        kinds = {name: {"files": len(files[name]), "bytes": sizes[name]} for name in _MEANINGS}
        limit = store.most_bytes if store else 0
        print(dumps({"folder": str(home), "is_on": store is not None, "limit": limit, "kinds": kinds}))
        return
    from quartet.drawing import cell, console, new_grid

    grid = new_grid(str(home), "kind", "files", "size", "what", right=("files", "size"))
    for name, meaning in _MEANINGS.items():
        grid.add_row(name, f"{len(files[name]):,}", show_size(sizes[name]), cell(meaning))
    console().print(grid)
    if store is None:
        print("Nothing is kept of databases: QUARTET_CACHE is off.")
    else:
        print(
            f"Of labels, graphs and features at most {show_size(store.most_bytes)} is kept (QUARTET_CACHE_SIZE)."
        )
