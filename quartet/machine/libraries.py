"""Libraries that take long to import, imported with as little as is needed of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_BESIDE_LIGHTGBM = (
    "sklearn",
    "pandas",
    "dask",
    "matplotlib",
    "graphviz",
)  # for wrappers that nobody here uses


def import_lightgbm() -> Any:
    """Returns the module lightgbm.

    It would import scikit-learn and pandas, if they are there, for wrappers of its own: more than half a second. In
    a process of the command it does not find them; elsewhere somebody may want these wrappers.
    """
    if not _is_command() or "lightgbm" in sys.modules:
        import lightgbm

        return lightgbm
    hidden: dict[str, Any] = dict.fromkeys(name for name in _BESIDE_LIGHTGBM if name not in sys.modules)
    sys.modules.update(hidden)
    try:
        import lightgbm
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
    return lightgbm


def _is_command() -> bool:
    """Returns whether this process is that of the command `quartet`, and nobody else's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (spec is not None and spec.name == "quartet.__main__") or Path(sys.argv[0]).stem == "quartet"
