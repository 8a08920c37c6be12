"""The command line is quick to start, and its general options hold for every verb."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from quartet.cli.app import app
from quartet.config import recipe_fields
from tests import market
from tests.trained import ROOT, command_environment, invoke, quartet, run

# Arrow asks for pandas by itself, wherever it is installed, so that pandas is only made absent:
# `tests/test_layers.py` sees to it that no module of ours asks.
WATCH = """
import atexit, sys

class Watch:
    tried = set()
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "numba", "relbench", "lark"):
            self.tried.add(name)
        if name in ("torch", "numba", "relbench", "lark", "pandas"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Watch())
atexit.register(lambda: print("tried:", sorted(Watch.tried), file=sys.stderr))
sys.argv = ["quartet", *sys.argv[1:]]
from quartet.cli.app import main
main()
"""


def imported(*words: object, program: str = WATCH) -> str:
    """Which slow packages a run of the command tried to import, none of them being there."""
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=ROOT, check=False, env=command_environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


def test_the_watch_can_see() -> None:
    also = WATCH.replace("main()", "try:\n    import numba\nexcept ImportError:\n    main()")
    assert imported("--help", program=also) == "tried: ['numba']"


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"], ["recipe"]])
def test_help_waits_for_nothing(words: list[str]) -> None:
    assert imported(*words) == "tried: []"


@pytest.mark.parametrize(
    "write",
    [market.write_csv, market.write_relbench_folder, market.write_sqlite],
    ids=["csv", "relbench", "sqlite"],
)
def test_inspect_waits_for_no_compiler_and_needs_no_frames(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    words = ("--write-schema", tmp_path / "s", "--draw", tmp_path / "d")
    assert imported("inspect", write(tmp_path / "market"), *words) == "tried: []"


def test_help_names_the_verbs() -> None:
    done = quartet("--help")
    assert done.returncode == 0
    for verb in (
        "inspect",
        "task",
        "train",
        "evaluate",
        "predict",
        "sample",
        "convert",
        "recipe",
        "tune",
        "study",
    ):
        assert f" {verb} " in done.stdout


# --- general options ----------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version").split() == ["quartet", version("quartet-rdl")]


def test_quiet_and_verbose(tmp_path: Path) -> None:
    source, schema = market.write_relbench_folder(tmp_path / "market"), tmp_path / "schema.yaml"
    words = ("inspect", source, "--write-schema", schema)
    quiet, usual, verbose = (run(*more, *words) for more in (["-q"], [], ["-v"]))
    assert quiet.stdout == usual.stdout == verbose.stdout != ""
    assert quiet.stderr == ""
    assert len(usual.stderr.splitlines()) == 1
    assert re.search(r"Read 30 rows of 5 tables in \d", verbose.stderr)
    assert run("--quiet", *words).stderr == ""
    assert run("--verbose", *words).stderr != usual.stderr


@pytest.mark.parametrize("option", [[], ["-q"], ["-v"]])
def test_errors_are_told_however_quiet(option: list[str]) -> None:
    done = run(*option, "inspect", "no such place")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error[S01]")
    assert ("Traceback" in done.stderr) is (option == ["-v"])


def test_what_nobody_foresaw_is_one_line_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("x\ny")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("quartet.cli.inspect.open_database", fail)
    done = run("inspect", "x")
    found = re.fullmatch(
        r"error\[X01\] quartet itself failed: KeyError: 'x\\ny'\. Fix: .* in (.*)\n", done.stderr
    )
    assert done.returncode == 70
    assert found
    file = Path(found[1])
    assert file.parent == tmp_path / "quartet" / "errors"
    assert (file.stat().st_mode & 0o77, file.parent.stat().st_mode & 0o77) == (0, 0)
    assert file.read_text().startswith("Traceback")


@pytest.mark.parametrize("words", [["inspekt", "x"], ["inspect"], ["inspect", "x", "--no-such-option"]])
def test_a_call_that_is_no_call_is_a_usage_error(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_a_device_that_is_not_there_is_refused(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models of this test are in test_models.py; here it is enough that the word is known to each verb."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run(verb, *["x"] * (1 if verb == "evaluate" else 2), "--device", "gpu")
    assert done.returncode == 2
    assert "gpu" in done.stderr
    assert not list(tmp_path.iterdir())


def test_every_verb_has_a_help_that_begins_with_a_sentence() -> None:
    for command in app.registered_commands:
        doc = (command.callback.__doc__ or "").strip()
        assert doc.splitlines()[0].endswith("."), command
        assert doc[0].isupper()


# --- recipe -------------------------------------------------------------------------------------------


def test_recipe_lists_every_setting_with_its_meaning() -> None:
    lines = [" ".join(line.split()) for line in run("recipe").stdout.splitlines()]
    text = " ".join(lines)
    for _, each, meaning in recipe_fields():
        assert any(line.startswith(f"{each.name} ") for line in lines), each.name
        assert meaning.split()[0] in text
    words = {line.split()[0]: line.split()[1:3] for line in lines if len(line.split()) > 2}
    assert words["local_budget"] == ["60", "300"]  # the preset's, and the paper's
    assert words["branches"][0] == "feature,topology,temporal,collab"


def test_recipe_shows_what_is_changed() -> None:
    def shown(*words: str) -> list[str]:
        lines = run("recipe", "--preset", "paper", *words).stdout.splitlines()
        return [" ".join(line.split()[:2]) for line in lines]

    assert "max_recent none" in shown("--set", "max_recent=none")
    assert "fallback null" in shown("--set", "fallback=null")
    assert "time_limit 600.0" in shown("--set", "time_limit=10m")
    assert "branches (none)" in shown("--model", "sage")
    assert "dropout 0.5" in shown("--task", "rel-f1/driver-top3")
    assert run("recipe", "--set", "epocs=3").returncode == 2


def test_recipe_as_json_is_the_recipe() -> None:
    import json

    from quartet.config import Recipe

    values = json.loads(invoke("recipe", "--model", "lightgbm", "--set", "fallback=null", "--json"))
    assert Recipe().changed(**values) == Recipe.load("small", "", "lightgbm", fallback="null")
