"""Real datasets that may lie beside the project."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared_data(name: str) -> Path:
    """The folder of a shared dataset; skips the test where it is not there."""
    path = FOLDER / name
    if not path.is_dir():
        pytest.skip(f"the dataset {name} is not beside this checkout")
    return path
