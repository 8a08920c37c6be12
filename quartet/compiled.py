"""`@compiled`: a loop compiled by numba once for this state of the sources, and then kept on disk.

numba keeps compiled code by the file of the outermost function alone: after a change in another file that
it calls, it would go on running the old code. So the folder is named by a digest of all kernels' sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit

from quartet.files import user_cache

_HERE = Path(__file__).parent


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call without Python's lock, or taken from disk."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_folder())  # read while decorating; other users of numba keep theirs
    try:
        return njit(cache=True, nogil=True)(function)
    finally:
        config.CACHE_DIR = before


@cache
def _folder() -> Path:
    folders = ("graph", "samplers", "features")
    kernels = [path for folder in folders for path in _HERE.glob(f"{folder}/*.py")]
    sources = sorted(
        [*kernels, _HERE / "database" / "hashing.py", _HERE / "tokens.py", _HERE / "nn" / "dropout.py"]
    )
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    home = Path(config.CACHE_DIR) if config.CACHE_DIR else user_cache() / "compiled"
    return home / digest[:16]
