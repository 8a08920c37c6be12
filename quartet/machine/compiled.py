"""`@compiled`: a loop compiled by numba once for this state of the sources, and then kept on disk. `@part`: its parts.

numba keeps compiled code by the file of the outermost function alone: after a change in another file that
it calls, it would go on running the old code. So the folder is named by a digest of all kernels' sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache, cached_property
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
        return njit(cache=True, nogil=True, no_cfunc_wrapper=True)(function)
    finally:
        config.CACHE_DIR = before


class part:
    """A function that compiled loops call, compiled as a part of each: without what Python needs to call it.

    That is a quarter of all compiling. Where Python calls a part all the same, it is compiled by itself as well.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        from numba import njit

        self.function, self.__doc__ = function, function.__doc__
        self._inside = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
        self._numba_type_ = self._inside._numba_type_  # what numba takes it for, in a loop

    def __call__(self, *given: Any) -> Any:
        return self._alone(*given)

    @cached_property
    def _alone(self) -> Any:
        return compiled(self.function)


def is_compiled() -> bool:
    """Returns whether loops of this state of the sources were compiled before, so that they are on disk."""
    home = os.environ.get("NUMBA_CACHE_DIR")
    folder = (Path(home) if home else user_cache() / "compiled") / _digest()
    return folder.is_dir() and any(folder.iterdir())


@cache
def _digest() -> str:
    sources = [Path(__file__), *sorted(path for room in _ROOMS for path in (_PACKAGE / room).glob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
