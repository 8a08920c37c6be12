"""The README tells the truth: its Python runs on the shop of the examples, and its make targets exist.

`test_docs.py` asks the same of all pages: links, commands, options and fields.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT, blocks, commands, run, with_examples

README = ROOT / "README.md"


def test_python_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_examples(tmp_path, monkeypatch)
    run(["python", "examples/shop.py", "shop.sqlite"], monkeypatch)
    [(_, block)] = blocks(README, "python")
    assert "q.fit(task)" in block
    settings = "epochs=1, seeds_per_epoch=128, validation_seeds=128, time_limit=3"
    quick = block.replace("q.fit(task)", f"q.fit(task, {settings})")
    names: dict[str, Any] = {}
    exec(compile(quick, README.name, "exec"), names)
    assert "No problems found." in capsys.readouterr().out
    assert names["model"].folder.resolve() == Path("runs/latest").resolve()


def test_the_way_through_a_database_is_complete() -> None:
    verbs = [words[1] for words in commands(README) if words[0] == "quartet"]
    assert verbs[:6] == ["ask", "inspect", "task", "train", "evaluate", "predict"]


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for words in commands(README) if words[0] == "make"}
    assert {"demo", "test"} <= named <= targets
