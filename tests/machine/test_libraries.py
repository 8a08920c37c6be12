"""LightGBM is imported alone in a process of the command, and as it is everywhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
sys.argv[0] = sys.argv[1]
from quartet.machine import import_lightgbm
lightgbm = import_lightgbm()
assert lightgbm.Booster
print("sklearn" in sys.modules)
import sklearn, pandas
"""


@pytest.mark.parametrize(("name", "expected"), [("/usr/bin/quartet", "False"), ("notebook.py", "True")])
def test_the_command_imports_no_wrappers(name: str, expected: str) -> None:
    pytest.importorskip("sklearn")
    found = subprocess.run([sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected
