"""The pages of the documentation, taken apart, and how their commands are run."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import typer.main

from quartet.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])
COMMANDS = typer.main.get_command(app)


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Returns the fenced blocks of a page in some languages, as (language, text)."""
    text = page.read_text(encoding="utf-8")
    return [
        (language, block)
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if language in languages
    ]


def commands(page: Path) -> list[list[str]]:
    """Returns the command lines of a page's shell blocks, each as its words, without comments."""
    lines = []
    for language, block in blocks(page, "sh", "console"):
        for line in block.splitlines():
            if language == "sh" or line.startswith("$ "):
                lines.append(shlex.split(line.removeprefix("$ "), comments=True))
    return [words for words in lines if words]


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a command line here: `quartet …` or `python SCRIPT …`."""
    program, *arguments = words
    if program == "quartet":
        COMMANDS.main(arguments, standalone_mode=False)
        return
    assert program == "python"
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.syspath_prepend(str(Path(arguments[0]).parent.resolve()))
    runpy.run_path(arguments[0], run_name="__main__")


def with_examples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes to a folder that holds the examples, as a clone does, with a cache of its own."""
    shutil.copytree(
        ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "runs")
    )
    monkeypatch.chdir(folder)
