"""`quartet cache`: what is kept, where, and how to be rid of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from quartet.cli.app import app
from quartet.errors import UsageError
from quartet.machine import Store


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QUARTET_CACHE", str(tmp_path))
    store = Store.of_user()
    assert store is not None
    for kind in ("labels", "graphs", "features"):
        store.write(kind, "digest", {"x": np.zeros(100)})
    (tmp_path / "contexts").mkdir()
    (tmp_path / "contexts" / "a.h5").write_bytes(bytes(1000))
    return tmp_path


def told(*words: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["cache", "--json", *words], catch_exceptions=False)
    assert result.exit_code == 0
    content: dict[str, object] = json.loads(result.output)
    return content


def test_it_shows_what_there_is(home: Path) -> None:
    content = told()
    assert content["folder"] == str(home)
    assert content["kinds"]["contexts"] == {"files": 1, "bytes": 1000}  # type: ignore[index]
    assert content["kinds"]["graphs"]["bytes"] > 800  # type: ignore[index]
    shown = CliRunner().invoke(app, ["cache"], catch_exceptions=False).output
    assert "5.0 GB" in shown
    assert "1.0 kB" in shown


def test_it_clears_one_kind_or_all(home: Path) -> None:
    assert told("--clear", "graphs")["removed"]
    assert not list((home / "kept" / "graphs").iterdir())
    assert list((home / "kept" / "labels").iterdir())
    told("--clear", "all")
    assert not [path for path in home.rglob("*") if path.is_file()]
    assert told("--clear", "all")["removed"] == 0


@pytest.mark.usefixtures("home")
def test_a_kind_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match='did you mean "graphs"'):
        CliRunner().invoke(app, ["cache", "--clear", "graph"], catch_exceptions=False)


def test_an_option_names_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUARTET_CACHE", "off")
    result = CliRunner().invoke(app, ["--cache", str(tmp_path), "cache", "--json"], catch_exceptions=False)
    assert json.loads(result.output)["folder"] == str(tmp_path)
    assert os.environ["QUARTET_CACHE"] == str(tmp_path)
    result = CliRunner().invoke(app, ["--cache", "off", "cache", "--json"], catch_exceptions=False)
    assert json.loads(result.output)["is_on"] is False
