"""Importing the rooms is cheap: what is slow to import waits until it is needed."""

from __future__ import annotations

import subprocess
import sys


def test_neither_numba_nor_torch_is_imported() -> None:
    code = "import sys, quartet.features, quartet.times; print({'numba', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
