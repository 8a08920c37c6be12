"""Train, evaluate and predict as people meet them: what is shown, kept, refused, and gone on with."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from typer.testing import CliRunner

from quartet import predict as prediction
from quartet import show_training
from quartet.cli.main import app
from quartet.cli.views.training import TrainingView, duration
from quartet.database import Database
from quartet.errors import QuartetError
from quartet.machine import user_cache
from quartet.runs import Predictor, Run, train_run
from quartet.tasks import Task
from quartet.training import Cost, Material, Trainer, measured_cost, prepare
from quartet.training.trainer import Progress
from tests.tasks.small import CHURN, small_shop
from tests.test_cli import imported, quartet
from tests.training.test_trainer import same_weights

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

TINY = {
    "width": 16, "heads": 2, "encoder_width": 8, "num_latents": 2, "num_archetypes": 4, "local_budget": 20,
    "temporal_budget": 10, "collab_budget": 5, "batch_size": 64, "seeds_per_epoch": 300, "epochs": 8,
    "train_fraction": 1.0,
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "customers": {"pkey": "customer", "time_col": None, "fkeys": {}},
    "orders": {"pkey": "order", "time_col": "bought", "fkeys": {"customer": "customers"}},
}
Tables = dict[str, pa.Table]


def shop_tables() -> Tables:
    """The small shop, with a city for each customer."""
    shop = small_shop(city=[("Bonn", "Köln", "Lyon")[k % 3] for k in range(40)])
    return {name: table.data for name, table in shop.tables.items()}


def write(folder: Path, tables: Tables, schema: dict[str, Any] = SCHEMA) -> Path:
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / "quartet.yaml").write_text(yaml.safe_dump({"name": "shop", "tables": schema}))
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, a task, a cache of its own and room for runs."""
    home = tmp_path_factory.mktemp("home")
    write(home / "shop", shop_tables())
    (home / "churn.yaml").write_text(yaml.safe_dump({"kind": "forecast", **CHURN}))
    return home


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    """Contexts are cached apart; compiled loops are taken from where they are."""
    compiled = os.environ.get("NUMBA_CACHE_DIR", str(user_cache() / "compiled"))
    return {"XDG_CACHE_HOME": str(home / "cache"), "NUMBA_CACHE_DIR": compiled, "OMP_NUM_THREADS": "1"}


def training(runs: str, *more: str) -> list[str]:
    changes = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    return ["train", "shop", "churn.yaml", "--runs", runs, "--threads", "1", *changes, *more]


@pytest.fixture(scope="module")
def json_run(home: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A run that went to its end, as a program follows it."""
    return quartet(*training("runs", "--json"), cwd=home, env=environment)


@pytest.fixture(scope="module")
def run(home: Path, json_run: subprocess.CompletedProcess[str]) -> Run:
    assert json_run.returncode == 0, json_run.stderr
    return Run.open(home / "runs" / "latest")


def invoke(*words: object) -> str:
    """What a verb prints on standard output, in this process; its errors are raised."""
    done = CliRunner().invoke(app, [*map(str, words), "--threads", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


# --- train ----------------------------------------------------------------------------------------


def test_json_is_one_object_a_line_and_nothing_else(
    json_run: subprocess.CompletedProcess[str], run: Run
) -> None:
    begin, *epochs, end = map(json.loads, json_run.stdout.splitlines())
    assert begin.keys() == {"event", "run", "recipe", "parameters"}
    assert begin["recipe"] | TINY == begin["recipe"] == json.loads((run.folder / "recipe.json").read_text())
    weights = Predictor.load(run.folder).checkpoint.model.parameters()
    assert begin["parameters"] == sum(weight.numel() for weight in weights)
    assert [line["event"] for line in epochs] == ["epoch"] * 8
    assert [line["number"] for line in epochs] == list(range(8))
    best = max(epochs, key=lambda line: line["validation"])
    assert end == {
        "event": "end",
        "run": begin["run"],
        "best_epoch": best["number"],
        "metric": "roc_auc",
        "validation": best["validation"],
    }
    assert json_run.stderr == "warning[L09] val has 38 labels, 11 positive: any score will be vague\n"


class Terminal:
    """A process whose outputs are a terminal of 120 columns."""

    def __init__(self, words: list[str], cwd: Path, env: dict[str, str]) -> None:
        self.screen, side = pty.openpty()
        self.text = ""
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": str(ROOT), **env}
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
        return self.process.wait(timeout=60)


ROOT = Path(__file__).parents[1]


def same_models(one: Run, other: Run) -> bool:
    return same_weights(*(Predictor.load(run.folder).checkpoint.model for run in (one, other)))


def test_a_run_in_a_terminal_is_stopped_and_goes_on_to_the_same_weights(
    home: Path, environment: dict[str, str], run: Run
) -> None:
    terminal = Terminal(training("stopped"), home, environment)
    terminal.read_until("epoch   2/8  loss")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 130
    stopped = Run.open(home / "stopped" / "latest")
    assert not stopped.is_done
    assert "Stopping after this step" in terminal.text
    going_on = f"--resume stopped/{stopped.folder.name}"
    assert f"Stopped. Go on with: quartet train shop churn.yaml {going_on}" in terminal.text
    assert "/300" in terminal.text  # the bar: seeds of the epoch under way
    assert " seeds/s, " in terminal.text
    assert " s left" in terminal.text

    done = quartet(
        "train", "shop", "churn.yaml", "--threads", 1, *going_on.split(), cwd=home, env=environment
    )
    assert done.returncode == 0
    assert stopped.is_done
    assert same_models(stopped, run)
    shown = {
        line.split("  ")[0]: line.split("  ", 1)[1].strip()
        for line in done.stdout.splitlines()
        if "  " in line
    }
    assert shown["device"] == "cpu, 1 thread, fp32"
    assert shown["epochs"].startswith("8 of 300 seeds, in batches of 64; ")
    assert shown["epochs"].endswith(" of them done before")
    assert shown["model"].endswith(" M parameters, width 16, as it began")
    assert shown["cost"].startswith("about ")
    assert " s an epoch, " in shown["cost"]
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch ")]
    numbers = [int(line.split("/")[0].split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 9))
    assert numbers[0] > 2
    best = Predictor.load(run.folder).checkpoint.facts
    assert done.stdout.splitlines()[-1] == (
        f"Best: epoch {best['best_epoch'] + 1}, validation roc_auc {best['validation']:.4f}. "
        f"Everything is in {stopped.folder}"
    )
    assert (
        done.stderr == "warning[L09] val has 38 labels, 11 positive: any score will be vague\n"
    )  # and no bar


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "epochs=9", "--time-limit", "5"],
            "error[C02] a run goes on by the recipe with which it began, not with another epochs, time_limit. "
            "Fix: start a new run",
        ),
        ([], "error[C02] {folder} is done. Fix: quartet evaluate {folder}"),
    ],
)
def test_what_cannot_be_resumed_is_refused(run: Run, words: list[str], message: str) -> None:
    with pytest.raises(QuartetError) as refused:
        invoke("train", "shop", "churn.yaml", "--resume", run.folder, *words)
    assert str(refused.value) == message.format(folder=run.folder)


def test_help_teaches_and_waits_for_nothing() -> None:
    text = quartet("train", "--help", env={"COLUMNS": "200"}).stdout
    for example in (
        "quartet train demo plane-idle",
        "--set epochs=5",
        "--time-limit 600",
        "--resume runs/latest",
        "quartet evaluate runs/latest",
        "quartet predict runs/latest SRC",
    ):
        assert example in text
    assert imported("train", "--help") == "tried: []"


# --- cost and progress ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def material(home: Path, run: Run) -> Material:
    task = Task.load(Database.load(home / "shop"), str(home / "churn.yaml"))
    return prepare(task, run.recipe, home / "contexts")


def test_the_estimate_changes_nothing_of_a_run(material: Material, run: Run, tmp_path: Path) -> None:
    recipe, kept = run.recipe.changed(epochs=1), tmp_path / "contexts"
    plain, shown = (Run.create(tmp_path, material.task, recipe, "shop") for _ in range(2))
    costs: list[Cost] = []

    def measure(trainer: Trainer) -> None:
        costs.append(measured_cost(trainer))

    train_run(plain, material, recipe, cache=kept)
    train_run(shown, material, recipe, cache=kept, on_begin=measure)
    assert same_models(plain, shown)
    assert costs[0].seed > 0
    assert costs[0].validation > 0


def test_what_is_left_of_a_run(material: Material, run: Run) -> None:
    """Eight epochs of 300 seeds at 10 ms, each with a validation of 1 s."""

    def left(limit: float | None = None, **progress: Any) -> float:
        trainer = Trainer(material, run.recipe.changed(time_limit=limit))
        trainer.progress = Progress(**progress)
        return Cost(0.01, 1.0).left(trainer)

    assert left() == pytest.approx(8 * 4)
    assert left(epoch=7) == pytest.approx(4)
    assert left(epoch=7, batch=2) == pytest.approx((300 - 128) * 0.01 + 1)
    assert left(epoch=7, batch=5) == 1  # the last batch has 44 seeds
    assert left(epoch=8) == 0
    assert left(limit=7.0) == pytest.approx(7 + 3)  # two epochs and a third of the third
    assert left(limit=7.0, epoch=2, batch=1, seconds=6.64) == pytest.approx(0.36 + 1)
    assert left(limit=7.0, epoch=2, batch=1, seconds=8.0) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (2.46, "2.5 s"), (9.96, "10 s"), (99.4, "99 s"), (99.6, "2 min"), (5900, "98 min"),
     (9000, "2.5 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_without_a_terminal_long_epochs_have_a_line_now_and_then(
    material: Material, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(material, run.recipe.changed(epochs=2))
    with TrainingView(run, "small") as view:
        view.begin(trainer)
        trainer.run(view.epoch, view.step)
    assert capsys.readouterr().err == ""  # two epochs take no half minute
    monkeypatch.setattr(show_training, "SECONDS_BETWEEN_LINES", 0.0)
    trainer = Trainer(material, run.recipe.changed(epochs=2))
    with TrainingView(run, "small") as view:
        view.begin(trainer)
        trainer.run(view.epoch, view.step)
    lines = [line.split(", ") for line in capsys.readouterr().err.splitlines()]
    seeds = [0, 64, 128, 192, 256, 300]
    expected = [
        *(f"epoch   1/2  {n} seeds" for n in seeds),
        *(f"epoch   2/2  {n} seeds" for n in [*seeds, 0]),
    ]
    assert [line[0] for line in lines] == expected
    assert all("seeds/s" in line[1] for line in lines if line[0].split()[-2] not in ("300", "0"))
    assert [lines[place][1] for place in (5, 11, 12)] == ["validating", "validating", "keeping the best"]


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_shows_the_trivial_rows_and_keeps_what_it_found(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    done = CliRunner().invoke(app, ["evaluate", "runs/latest"], catch_exceptions=False)
    title, header, *rows = done.stdout.splitlines()
    assert title.strip() == "churn, test (frozen), 38 rows"
    assert " ".join(header.split()) == "roc_auc ↑ average_precision ↑ log_loss ↓ brier ↓ calibration_error ↓"
    names = ["quartet", "constant", "entity mean", "last 12 labels", "LightGBM on counts"]
    assert [row.split("  ")[0] for row in rows] == names
    assert "0.5000 [0.5000, 0.5000]" in rows[1]
    kept = json.loads((run.folder / "evaluation-test-frozen.json").read_text())
    assert [row["name"] for row in kept["rows"]] == names
    assert f"{kept['rows'][0]['measures']['roc_auc']['value']:.4f} [" in rows[0]
    assert (run.folder / "calibration-test-frozen.svg").read_text().startswith("<svg")
    gaps = [bin["count"] * abs(bin["said"] - bin["came"]) for bin in kept["bins"]]
    assert sum(bin["count"] for bin in kept["bins"]) == 38
    error = kept["rows"][0]["measures"]["calibration_error"]["value"]
    assert sum(gaps) / 38 == pytest.approx(error, abs=1e-12)


@pytest.mark.usefixtures("run")
def test_evaluate_asks_the_model_anew_under_the_other_protocol(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation ends before the test cut-off, where a frozen database ends: both protocols see the same."""
    monkeypatch.chdir(home)
    found = [
        json.loads(CliRunner().invoke(app, ["evaluate", "runs/latest", "--split", "val", "--json", "--protocol", how],
                                      catch_exceptions=False).stdout)
        for how in ("frozen", "rolling")
    ]  # fmt: skip
    assert [one["protocol"] for one in found] == ["frozen", "rolling"]
    assert found[0]["rows"][0] == found[1]["rows"][0]
    assert found[0]["bins"] == found[1]["bins"]


# --- predict --------------------------------------------------------------------------------------


def test_predictions_are_written(home: Path, environment: dict[str, str], run: Run) -> None:
    """In a process of its own, with a file of entities; then here to CSV: the same scores."""
    (home / "who.txt").write_text("C03\nC07\n\n")
    at = ("--at", "2023-09-01")
    done = quartet(
        "predict", "runs/latest", "shop", "--entities", "who.txt", *at, "--out", "new/scores.parquet",
        "--threads", 1, cwd=home, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    first, last = done.stderr.splitlines()
    assert first.startswith("scores: 2 in ")
    assert last == "Wrote 2 scores to new/scores.parquet"
    scores = pq.read_table(home / "new" / "scores.parquet")
    assert scores.column_names == ["customer", "time", "score", "calibrated"]
    assert scores["customer"].to_pylist() == ["C03", "C07"]
    invoke("predict", run.folder, home / "shop", "--entities", "C03, C07", *at, "--out", home / "scores.csv")
    with (home / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows] == scores["score"].to_pylist()
    assert [row["customer"] for row in rows] == ["C03", "C07"]


def test_all_entities_are_shown_the_likeliest_first(home: Path, run: Run) -> None:
    title, header, *rows = invoke("predict", run.folder, home / "shop").splitlines()
    assert title.strip() == "40 predictions, the highest 10"
    assert header.split() == ["customer", "time", "score", "calibrated"]
    shown = [float(row.split()[-2]) for row in rows]
    assert len(shown) == 10
    assert shown == sorted(shown, reverse=True)


def test_a_long_list_of_entities_is_not_taken_for_a_file(home: Path, run: Run) -> None:
    everyone = ",".join(f"C{k:02d}" for k in range(40)) + ",C00" * 1200  # longer than any path
    text = invoke("predict", run.folder, home / "shop", "--entities", everyone)
    assert text.splitlines()[0].strip() == "1,240 predictions, the highest 10"


def test_unknown_entities_are_named(home: Path, run: Run) -> None:
    with pytest.raises(QuartetError) as refused:
        invoke("predict", run.folder, home / "shop", "--entities", "C03,C98,C99")
    assert str(refused.value) == (
        'error[L11] 2 of 3 entities are not in "customers" (C98, C99). Fix: remove them, or add their rows'
    )
    assert refused.value.exit_code == 3


def test_a_file_of_another_kind_is_refused_before_the_work(home: Path) -> None:
    with pytest.raises(QuartetError) as refused:
        invoke("predict", home / "no such model", home / "shop", "--out", "scores.xls")
    assert str(refused.value) == (
        'error[C02] scores cannot be written as ".xls". Fix: name a .parquet or .csv file'
    )


def test_new_rows_entities_and_categories_are_scored_and_reported(
    home: Path, run: Run, tmp_path: Path
) -> None:
    tables = shop_tables()
    new = pa.table({"customer": ["C98", "C99"], "age": [33, None], "city": ["Bonn", "Rome"]})
    last = int(tables["orders"]["order"].to_numpy().max())
    more = {"order": [last + 1, last + 2], "customer": ["C98", "C99"], "amount": [5.0, 7.5]}
    times = pa.array(np.array(["2023-10-28", "2023-10-29"], "datetime64[ns]"))
    orders = pa.table({**more, "bought": times}).select(tables["orders"].column_names)
    grown = {
        "customers": pa.concat_tables([tables["customers"], new.cast(tables["customers"].schema)]),
        "orders": pa.concat_tables([tables["orders"], orders.cast(tables["orders"].schema)]),
    }
    write(tmp_path / "grown", grown)
    findings = []
    predictor = Predictor.load(run.folder)
    found = predictor.predict(Database.load(tmp_path / "grown"), report=findings.append)
    assert found["customer"].to_pylist()[-2:] == ["C98", "C99"]
    assert np.isfinite(found["score"].to_numpy()).all()
    assert [str(finding) for finding in findings] == [
        "warning[V03] customers.city: 1 values are not in the vocabulary and count as unseen (Rome)"
    ]
    before = predictor.predict(Database.load(home / "shop"), ["C03", "C07"], "2023-09-01")
    assert predictor.predict(Database.load(tmp_path / "grown"), ["C03", "C07"], "2023-09-01").equals(before)


def renamed(tables: Tables, table: str, **names: str) -> Tables:
    columns = [names.get(name, name) for name in tables[table].column_names]
    return {**tables, table: tables[table].rename_columns(columns)}


def retyped(tables: Tables, table: str, column: str, kind: pa.DataType) -> Tables:
    place = tables[table].column_names.index(column)
    cast = tables[table][column].cast(kind)
    return {**tables, table: tables[table].set_column(place, column, cast)}


def schema_with(table: str, **words: Any) -> dict[str, Any]:
    return {**SCHEMA, table: {**SCHEMA[table], **words}}


@pytest.mark.parametrize(
    ("change", "schema", "message"),
    [
        (
            lambda tables: renamed(tables, "customers", age="ages"),
            SCHEMA,
            'error[V04] table "customers": column "age" was used in training and is absent (did you mean "ages"?). '
            "Fix: give the column, or train anew without it",
        ),
        (
            lambda tables: {**tables, "orders": tables["orders"].drop_columns(["amount"])},
            SCHEMA,
            'error[V04] table "orders": column "amount" was used in training and is absent '
            '(there are: "bought", "customer", "order"). Fix: give the column, or train anew without it',
        ),
        (
            lambda tables: retyped(tables, "customers", "age", pa.string()),
            SCHEMA,
            "error[V06] customers.age held numbers in training and holds text now. "
            "Fix: cast the column, or train anew",
        ),
        (
            lambda tables: {"customers": tables["customers"], "purchases": tables["orders"]},
            {"customers": SCHEMA["customers"], "purchases": SCHEMA["orders"]},
            'error[V04] table "orders" was used in training and is absent '
            '(there are: "customers", "purchases"). Fix: give the table, or train anew without it',
        ),
        (
            lambda tables: {**tables, "visits": pa.table({"customer": ["C01", "C02"]})},
            {**SCHEMA, "visits": {"pkey": None, "time_col": None, "fkeys": {"customer": "customers"}}},
            'error[V05] table "visits" was not there in training, and the model cannot read its rows. '
            "Fix: leave the table out, or train anew with it",
        ),
        (
            lambda tables: renamed(tables, "orders", customer="buyer"),
            schema_with("orders", fkeys={"buyer": "customers"}),
            'error[V04] "orders.customer links to customers" held in training and does not now, and now '
            '"orders.buyer links to customers". Fix: say in a schema file how it was, or train anew',
        ),
        (
            lambda tables: tables,
            schema_with("orders", time_col=None),
            'error[V04] "orders is dated by bought" held in training and does not now. '
            "Fix: say in a schema file how it was, or train anew",
        ),
        (
            lambda tables: tables,
            schema_with("orders", fkeys={"customer": "customers", "order": "orders"}),
            'error[V05] "orders.order links to orders" did not hold in training. '
            "Fix: say in a schema file how it was, or train anew",
        ),
    ],
)  # fmt: skip
def test_a_changed_schema_is_refused_by_name(
    change: Callable[[Tables], Tables], schema: dict[str, Any], message: str, run: Run, tmp_path: Path
) -> None:
    """The last three are about what is no feature, and would change predictions in silence."""
    write(tmp_path / "changed", change(shop_tables()), schema)
    with pytest.raises(QuartetError) as refused:
        invoke("predict", run.folder, tmp_path / "changed", "--entities", "C03")
    assert str(refused.value) == message


def test_the_order_of_tables_decides_nothing(home: Path, run: Run) -> None:
    database = Database.load(home / "shop")
    turned = replace(database, tables=dict(reversed(database.tables.items())))
    predictor = Predictor.load(run.folder)
    assert predictor.predict(turned).equals(predictor.predict(database))


def test_many_seeds_are_asked_some_at_a_time_with_the_same_bits(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the bits depend on the number of threads."""
    database, predictor = Database.load(home / "shop"), Predictor.load(run.folder)
    who = [f"C{k:02d}" for k in range(40)] * 30
    when = [f"2023-09-{1 + day:02d}" for day in range(30) for _ in range(40)]
    together = predictor.predict(database, who, when)
    monkeypatch.setattr(prediction, "AT_ONCE", prediction.BATCH)
    done: list[int] = []
    apart = predictor.predict(database, who, when, done.append)
    assert apart.equals(together)
    assert done == [512, 512, 176]
    torch.set_num_threads(2)
    by_two = predictor.predict(database, who, when)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert by_two.equals(together)
