"""Train, evaluate and predict as people meet them: what is shown, kept, refused, and gone on with."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml

from quartet.cli.options import stop_on_signal
from quartet.runs import Run, TrainedModel, TrainingView, load
from quartet.training import Trainer, TrainingData
from tests.trained import (
    QUICK,
    SHOP_SCHEMA,
    SIZES,
    TINY,
    churn,
    command_environment,
    invoke,
    network_of,
    quartet,
    run,
    same_weights,
    shop_tables,
    write_shop,
)

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

NUM_EPOCHS = 12
SETTINGS: dict[str, Any] = {
    **SIZES, "batch_size": 32, "seeds_per_epoch": 96, "epochs": NUM_EPOCHS, "train_fraction": 1.0,
}  # fmt: skip


def sets(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, a task, a cache of its own and room for runs."""
    home = tmp_path_factory.mktemp("home")
    write_shop(home / "shop")
    return home


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People work in their folder; contexts are cached there, compiled loops taken from where they are."""
    monkeypatch.chdir(home)
    environment = command_environment(home / "cache")
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, environment[name])


def training(runs: str, *more: str) -> list[str]:
    words = ["train", "shop", "churn.yaml", "--model", "quartet", "--runs", runs, "--threads", "1"]
    return [*words, *sets(SETTINGS), *more]


@pytest.fixture(scope="module")
def followed(home: Path) -> Any:
    """A run that went to its end, as a program follows it, in a process of its own."""
    done = quartet(*training("runs", "--json"), cwd=home, env=command_environment(home / "cache"))
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def model(home: Path, followed: Any) -> TrainedModel:
    assert followed.stdout
    return load(home / "runs" / "latest")


# --- train ----------------------------------------------------------------------------------------


def test_json_is_one_object_a_line_and_nothing_else(followed: Any, model: TrainedModel) -> None:
    begin, *epochs, end = map(json.loads, followed.stdout.splitlines())
    assert begin["event"] == "begin"
    assert begin["recipe"] == model.run.read("recipe.json") == begin["recipe"] | SETTINGS
    assert [line["event"] for line in epochs] == ["epoch"] * NUM_EPOCHS
    assert [line["number"] for line in epochs] == list(range(NUM_EPOCHS))
    best = max(epochs, key=lambda line: line["validation"])
    assert end == {
        "event": "end",
        "run": end["run"],
        "parameters": network_of(model).num_parameters,
        "best_epoch": best["number"],
        "metric": "roc_auc",
        "validation": best["validation"],
    }
    assert Path(end["run"]).resolve() == model.folder.resolve()
    assert [line.split()[0] for line in followed.stderr.splitlines()] == ["warning[L09]", "note[L24]"]


@pytest.mark.parametrize("name", ["lightgbm", "quartet"])
def test_train_shows_what_it_does_and_where_everything_is(name: str, home: Path) -> None:
    settings = sets(QUICK) if name == "quartet" else []
    words = ("train", "shop", "churn.yaml", "--model", name, "--runs", name, "--threads", 1, *settings)
    shown = invoke(*words)
    trained = load(home / name / "latest")
    assert "churn: binary classification of customers, by roc_auc" in shown
    last = shown.splitlines()[-1]
    assert last.startswith("Best: ")
    assert f"{trained.validation:.4f}" in last
    assert trained.folder.name in last
    quiet = run("-q", *words)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert [line.startswith("Best: ") for line in quiet.stdout.splitlines()] == [True]
    begin, epoch, end = map(json.loads, invoke(*words, "--json").splitlines())
    assert begin["recipe"]["architecture"] == name
    assert (epoch["event"], epoch["metric"], epoch["number"]) == ("epoch", "roc_auc", 0)
    assert end["validation"] == epoch["validation"] == trained.validation


def test_without_a_model_auto_is_trained_with_past_labels(home: Path) -> None:
    """Its members are told one by one, and in the end with what they weigh."""
    words = ("train", "shop", "churn.yaml", "--runs", "auto", "--threads", 1, *sets(QUICK))
    shown = invoke(*words)
    recipe, whole = Run.open(home / "auto" / "latest").recipe, network_of(load(home / "auto" / "latest"))
    assert (recipe.model.architecture, recipe.past_labels, recipe.time_limit) == ("auto", True, 300.0)
    for member in whole.members:
        assert shown.count(f"{member.name}, random seed {member.rng_seed}") == 2  # once done, and among all
    assert shown.splitlines()[-1].startswith("Best: a blend of ")
    lines = [json.loads(line) for line in invoke(*words, "--json").splitlines()]
    told = [(line["name"], line["rng_seed"]) for line in lines if line["event"] == "member"]
    assert told == [(member.name, member.rng_seed) for member in whole.members]
    assert (lines[0]["event"], lines[0]["recipe"]["architecture"], lines[-1]["event"]) == (
        "begin",
        "auto",
        "end",
    )


def test_settings_in_words(home: Path) -> None:
    words = [
        "--model",
        "quartet",
        *sets(QUICK),
        "--set",
        "fallback=null",
        "--set",
        "max_recent=none",
        "--time-limit",
        "10m",
    ]
    invoke("train", "shop", "churn.yaml", "--runs", "words", "--threads", 1, "--device", "cpu", *words)
    recipe = Run.open(home / "words" / "latest").recipe
    assert recipe.sampling.fallback == "null"
    assert recipe.sampling.max_recent is None
    assert recipe.time_limit == 600
    (home / "mine.toml").write_text(recipe.to_toml())
    invoke("train", "shop", "churn.yaml", "--runs", "mine", "--threads", 1, "--preset", "mine.toml")
    assert Run.open(home / "mine" / "latest").recipe == recipe


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "epocs=9"], r'C01.*unknown field "epocs"'),
        (["--time-limit", "soon"], r"T15.*time_limit"),
        (["--model", "gat"], r'C01.*no model "gat"'),
        (["--preset", "papers"], r'C01.*no preset "papers"'),
        (["--device", "cuda"], r'R02.*no "cuda" device here.*--device cpu'),
        (["--resume", "nowhere"], r"C10.*nowhere"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_run_is_made(
    words: list[str], message: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run("train", "shop", "churn.yaml", "--runs", "refused", *words)
    assert done.returncode in (2, 3, 4)
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "refused").exists()


# --- stopped and gone on with -------------------------------------------------------------------------


class Terminal:
    """A process whose outputs are a terminal of 120 columns."""

    def __init__(self, words: list[str], cwd: Path) -> None:
        pty = pytest.importorskip("pty")
        self.screen, side = pty.openpty()
        self.text = ""
        environment = {**command_environment(cwd / "cache"), "TERM": "xterm", "COLUMNS": "120"}
        command = [sys.executable, "-m", "quartet", *words]
        self.process = subprocess.Popen(command, stdout=side, stderr=side, cwd=cwd, env=environment)
        os.close(side)

    def read_until(self, words: str) -> None:
        while words not in self.text:
            self.text += os.read(self.screen, 4096).decode()

    def end(self) -> int:
        with suppress(OSError):  # that is how the other side of a terminal hears of the end
            while more := os.read(self.screen, 4096):
                self.text += more.decode()
        os.close(self.screen)
        return self.process.wait(timeout=600)


def test_a_run_in_a_terminal_is_stopped_and_goes_on_to_the_same_weights(
    home: Path, model: TrainedModel
) -> None:
    terminal = Terminal(training("stopped"), home)
    terminal.read_until(f"epoch   2/{NUM_EPOCHS}  loss")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 130
    stopped = Run.open(home / "stopped" / "latest")
    assert not stopped.is_done
    assert "Stopping after this step" in terminal.text
    assert f"--resume stopped/{stopped.folder.name}" in terminal.text.replace("\r\n", "")
    assert "/96" in terminal.text  # the bar: seeds of the epoch under way

    done = run("train", "shop", "churn.yaml", "--threads", 1, "--resume", "stopped/latest")
    assert done.returncode == 0
    assert stopped.is_done
    assert same_weights(network_of(load(stopped.folder)), network_of(model))
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch ")]
    numbers = [int(line.split("/")[0].split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], NUM_EPOCHS + 1))
    assert numbers[0] > 2
    assert "of them done before" in done.stdout
    assert f"validation roc_auc {model.validation:.4f}" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_asks_and_a_second_ends(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, end)
    try:
        with stop_on_signal() as is_asked:
            assert not is_asked()
            signal.raise_signal(number)
            assert is_asked()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)
    assert "Stopping after this step" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "epochs=9", "--time-limit", "5"], "not with another epochs, time_limit"),
        (["--model", "lightgbm"], "not with another model"),
        ([], "is done"),
    ],
)
def test_what_cannot_be_resumed_is_refused(model: TrainedModel, words: list[str], message: str) -> None:
    done = run("train", "shop", "churn.yaml", "--resume", model.folder, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error[C02]")
    assert message in done.stderr


def test_without_a_terminal_long_epochs_have_a_line_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from quartet.training.cost import Pace

    recipe = TINY.changed(seeds_per_epoch=70)
    data = TrainingData.prepare(churn(), recipe, tmp_path)

    def told() -> list[list[str]]:
        trainer, view = Trainer(data), TrainingView()
        view.begin(Pace(trainer))
        trainer.run(view)
        view.close()
        return [line.split(", ") for line in capsys.readouterr().err.splitlines()]

    assert told() == []  # two epochs take no half minute
    monkeypatch.setattr("quartet.runs.show._SECONDS_BETWEEN_LINES", 0.0)
    lines, seeds = told(), [0, 32, 64, 70]
    expected = [
        *(f"epoch   1/2  {n} seeds" for n in seeds),
        *(f"epoch   2/2  {n} seeds" for n in [*seeds, 0]),
    ]
    assert [line[0] for line in lines] == expected
    assert [lines[place][1] for place in (3, 7, 8)] == ["validating", "validating", "keeping the best"]


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_shows_the_rules_and_keeps_what_it_found(model: TrainedModel) -> None:
    title, header, *rows = invoke("evaluate", "runs/latest").splitlines()
    rows, below = rows[:5], " ".join(rows[5:])
    assert below.startswith("90% sets held ")
    assert "by time: " in below
    assert title.strip() == "churn, test (frozen), 38 rows"
    assert header.split()[::2] == ["roc_auc", "average_precision", "log_loss", "brier", "calibration_error"]
    names = ["quartet", "constant", "entity mean", "last 12 labels", "LightGBM on counts"]
    assert [row.split("  ")[0] for row in rows] == names
    assert "0.5000 [0.5000, 0.5000]" in rows[1]
    kept = model.run.read("evaluation-test-frozen.json")
    assert [row["name"] for row in kept["rows"]] == names
    assert f"{kept['rows'][0]['measures']['roc_auc']['value']:.4f} [" in rows[0]
    assert json.loads(invoke("evaluate", "runs/latest", "--json")) == kept


@pytest.mark.usefixtures("model")
def test_evaluate_refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run("evaluate", "runs/latest", "--split", "train").returncode == 2
    assert run("evaluate", "runs/absent").stderr.startswith("error[C10]")
    assert run("evaluate", "runs/latest", "--device", "cuda").stderr.startswith("error[R02]")
    assert run("evaluate", "runs/latest", "--source", "absent").stderr.startswith("error[S01]")


# --- predict --------------------------------------------------------------------------------------


def test_predictions_are_written(home: Path, model: TrainedModel) -> None:
    """In a process of its own, with a file of entities; then here to CSV: the same scores."""
    (home / "who.txt").write_text("C03\nC07\n\n")
    at = ("--at", "2023-09-01")
    done = quartet(
        "predict", "runs/latest", "shop", "--entities", "who.txt", *at, "--out", "new/scores.parquet",
        "--threads", 1, "--device", "cpu", cwd=home, env=command_environment(home / "cache"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "2 scores to new/scores.parquet" in done.stderr.splitlines()[-1].replace(os.sep, "/")
    scores = pq.read_table(home / "new" / "scores.parquet")
    assert scores.column_names == ["customer", "name", "time", "score", "calibrated", "set"]
    assert scores["customer"].to_pylist() == ["C03", "C07"]
    assert scores["name"].to_pylist() == ["Person Ad", "Person Ah"]
    invoke(
        "predict", model.folder, "shop", "--entities", "C03, C07", *at, "--out", "scores.csv", "--threads", 1
    )
    with (home / "scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows] == scores["score"].to_pylist()
    assert [row["customer"] for row in rows] == ["C03", "C07"]


def test_those_whom_the_task_asks_about_are_shown_the_likeliest_first(model: TrainedModel) -> None:
    """The headline says what, when and for whom; the last line how good the model was."""
    headline, title, header, *rows, quality = invoke("predict", model.folder, "shop").splitlines()
    assert headline.endswith(
        "churned in the 10 days after 2023-10-27, for 35 of 40 customers: those the task asks about"
    )
    assert title.strip() == "35 predictions, the highest 10"
    assert header.split() == ["customer", "name", "time", "score", "calibrated", "set"]
    shown = [float(row.split()[-3]) for row in rows]
    assert len(shown) == 10
    assert shown == sorted(shown, reverse=True)
    assert quality.startswith("On ")
    assert "roc_auc" in quality


def test_all_that_are_known_are_asked_about_on_request(model: TrainedModel) -> None:
    headline, title, _, *rows, _ = invoke("predict", model.folder, "shop", "--all", "--top", 3).splitlines()
    assert headline.endswith("for 40 customers: all that are known then")
    assert title.strip() == "40 predictions, the highest 3"
    assert len(rows) == 3


def test_the_top_alone_is_written_on_request(model: TrainedModel, home: Path) -> None:
    done = run("predict", model.folder, "shop", "--out", "top.csv", "--top", 4)
    assert done.stdout == ""
    assert "for 35 of 40 customers" in done.stderr
    assert done.stderr.splitlines()[-1] == "Wrote 4 scores to top.csv"
    with (home / "top.csv").open(encoding="utf-8") as file:
        scores = [float(row["score"]) for row in csv.DictReader(file)]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)


def test_scores_go_back_into_the_database_and_are_no_data_there(home: Path, model: TrainedModel) -> None:
    """Twice, and there they are once; and the database is read as if they were not there."""
    with closing(sqlite3.connect(home / "shop.db")) as connection:
        for name, table in shop_tables().items():
            frame = table.to_pandas()
            frame.to_sql(name, connection, index=False)
    (home / "shop.yaml").write_text(yaml.safe_dump({"tables": SHOP_SCHEMA}))
    words = ("predict", model.folder, "shop.db", "--schema", "shop.yaml", "--threads", 1)
    for _ in range(2):
        done = run(*words, "--out", "shop.db#scores")
        assert done.stderr.splitlines()[-1] == "Wrote 35 scores to shop.db#scores", done.stderr
    run(*words, "--out", "sqlite:///shop.db#scores", "--at", "2023-09-01")
    with closing(sqlite3.connect(home / "shop.db")) as connection:
        rows = connection.execute(
            "SELECT model, horizon, time, count(*) FROM scores GROUP BY time"
        ).fetchall()
        assert [row[:3] for row in rows] == [
            (model.folder.name, "10 days", "2023-09-01 00:00:00"),
            (model.folder.name, "10 days", "2023-10-27 00:00:00"),
        ]
        assert rows[1][3] == 35


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("shop.sqlite", 'error[C02] "shop.sqlite" is a database, and no table is named'),
        ("postgresql://me:pa55word@nowhere/x", 'error[C02] "postgresql://me:***@nowhere/x" is a database'),
        ("oracle://me:pa55word@nowhere/x#scores", "error[C01]"),
        ("postgresql://me:pa55word@127.0.0.1:1/x#scores", "error[R02] no connection to"),
    ],
)
def test_a_database_that_cannot_be_written_is_refused_without_its_password(
    out: str, message: str, model: TrainedModel
) -> None:
    done = run("predict", model.folder, "shop", "--out", out, "--entities", "C03")
    assert done.stdout == ""
    assert message in done.stderr
    assert "pa55word" not in done.stderr


def test_a_long_list_of_entities_is_not_taken_for_a_file(model: TrainedModel) -> None:
    everyone = ",".join(f"C{k:02d}" for k in range(40)) + ",C00" * 1200  # longer than any path
    text = invoke("predict", model.folder, "shop", "--entities", everyone)
    assert text.splitlines()[1].strip() == "1,240 predictions, the highest 10"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--entities", "C03,C98,C99"], 3, 'error[L11] 2 of 3 entities are not in "customers" (C98, C99).'),
        (["--at", "noon"], 3, "error[T02]"),
        (["--out", "scores.xls"], 2, 'error[C02] scores cannot be written as ".xls".'),
        (["--device", "cuda"], 4, 'error[R02] torch finds no "cuda" device here.'),
        (["--labels", "absent.csv"], 3, "error[L01]"),
        (["--with", "absent"], 2, "error[C10]"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    words: list[str], code: int, message: str, model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run("predict", model.folder, "shop", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(message)


def test_a_file_of_another_kind_is_refused_before_the_work() -> None:
    done = run("predict", "no such model", "shop", "--out", "scores.xls")
    assert done.stderr.startswith("error[C02] scores cannot be written")


def test_the_device_reaches_the_library(model: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def choose(name: str) -> str:
        asked.append(name)
        return "cpu"

    monkeypatch.setattr("quartet.runs.model.choose_device", choose)
    run("predict", model.folder, "shop", "--device", "mps")
    run("evaluate", model.folder, "--split", "val", "--device", "cuda")
    run(
        "train",
        "shop",
        "churn.yaml",
        "--runs",
        "device",
        "--device",
        "cuda",
        "--model",
        "quartet",
        *sets(QUICK),
    )
    assert asked == ["mps", "cuda", "cuda"]
