"""`@compiled`: a loop compiled by numba once for this state of the sources, and then kept on disk.

numba keeps compiled code by the file of the outermost function alone: after a change in another file that
it calls, it would go on running the old code. So the folder is named by a digest of all kernels' sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from quartet.machine.files import user_cache

_PACKAGE = Path(__file__).parents[1]
_ROOMS = ("database", "features", "graph", "contexts", "tokens", "models/layers")  # those that have kernels


def compiled(function: Callable[..., Any]) -> Any:
    """Returns the function, compiled at its first call without Python's lock, or taken from disk."""
    from numba import config, njit  # here, because importing it takes half a second

    before = config.CACHE_DIR
    home = Path(before) if before else user_cache() / "compiled"
    config.CACHE_DIR = str(home / _digest())  # read while decorating; other users of numba keep theirs
    try:
        return njit(cache=True, nogil=True)(function)
    finally:
        config.CACHE_DIR = before


def is_compiled() -> bool:
    """Returns whether loops of this state of the sources were compiled before, so that they are on disk."""
    home = os.environ.get("NUMBA_CACHE_DIR")
    folder = (Path(home) if home else user_cache() / "compiled") / _digest()
    return folder.is_dir() and any(folder.iterdir())


@cache
def _digest() -> str:
    sources = sorted(path for room in _ROOMS for path in (_PACKAGE / room).glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
