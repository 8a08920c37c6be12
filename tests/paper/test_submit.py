"""Submissions: the files are those that RelBench itself would write and take, and whatever is wrong is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.cli import main
from quartet.config import Recipe
from quartet.database import Database
from quartet.errors import DataError, IntegrityError, QuartetError, UsageError
from quartet.evaluation import measures
from quartet.evaluation.metrics import nmae
from quartet.findings import Finding
from quartet.paper import check_submission, summary, write_submission
from quartet.paper.board import BoardTask, read_predictions, to_pairs, write_predictions
from quartet.paper.submit import RunFigures, _run_facts
from quartet.runs import Run, fit, keep_evaluation
from quartet.runs.evaluate import evaluate_run
from quartet.tasks import Task
from tests.shared import shared_data
from tests.tasks.small import CHURN, small_shop, write_small_shop

TINY = Recipe.load(
    "small", width=16, heads=2, encoder_width=8, num_latents=2, num_archetypes=4, local_budget=20,
    temporal_budget=10, collab_budget=5, batch_size=64, epochs=1, seeds_per_epoch=200, time_rule="<",
)  # fmt: skip
NAME = "small__churn"
FILES = {"run-0-test.csv", "run-0-val.csv", "run-1-test.csv", "run-1-val.csv", "submission.json"}
AGAIN = ". Fix: write it again with `quartet submit`, from runs of the task as it is now"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small shop as a folder that RelBench loads too."""
    return write_small_shop(tmp_path_factory.mktemp("data") / "small")


@pytest.fixture(scope="module")
def task(source: Path) -> Task:
    return Task.load(Database.load(source), "churn")


@pytest.fixture(scope="module")
def runs(task: Task, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two finished and evaluated runs that differ in their randomness."""
    base = tmp_path_factory.mktemp("runs")
    found = [fit(task, TINY.changed(rng_seed=seed), base, cache=base / "cache") for seed in (0, 1)]
    for run in found:
        keep_evaluation(run, evaluate_run(run, task))
    return found


@pytest.fixture(scope="module")
def written(runs: list[Run], source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    task = Task.load(Database.load(source), "churn")
    write_submission(runs, task, folder)
    assert task.vault.openings == []
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of the written submission, to be damaged."""
    return Path(shutil.copytree(written, tmp_path / "board"))


@pytest.fixture
def copies(runs: list[Run], tmp_path: Path) -> list[Run]:
    """Copies of the runs, to be damaged."""
    return [Run(Path(shutil.copytree(run.folder, tmp_path / f"run{i}"))) for i, run in enumerate(runs)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def kept(run: Run, split: str) -> pa.Table:
    return pq.read_table(run.folder / "predictions" / f"{split}.parquet")


def metric_on_val(run: Run, task: Task) -> float:
    score = np.asarray(kept(run, "val")["score"])
    found = measures(task.spec.type, np.asarray(task.seeds("val").target), score, num_resamples=0)["roc_auc"]
    assert found.value is not None
    return found.value


def metric_on_test(run: Run) -> float:
    rows = run.read("evaluation-test-frozen.json")["rows"]
    return float(next(row["measures"]["roc_auc"]["value"] for row in rows if row["name"] == "quartet"))


# --- what is written ------------------------------------------------------------------------------


def test_the_files_are_the_rows_of_the_task_in_order(written: Path, runs: list[Run], task: Task) -> None:
    assert {path.name for path in written.iterdir()} == {NAME, f"{NAME}.csv"}
    assert {path.name for path in (written / NAME).iterdir()} == FILES
    for place, run in enumerate(runs):
        for split in ("val", "test"):
            lines = (written / NAME / f"run-{place}-{split}.csv").read_text().splitlines()
            assert lines[0] == "customer,timestamp,churned"
            seeds, scores = task.seeds(split), kept(run, split)["score"].to_pylist()
            offset = task.full_database.offsets["customers"]
            days = seeds.time.astype("datetime64[ns]").astype("datetime64[D]")
            assert lines[1:] == [
                f"{node - offset},{day},{score!r}"
                for node, day, score in zip(seeds.node, days, scores, strict=True)
            ]


def test_the_figures_are_those_of_the_runs(written: Path, runs: list[Run], task: Task) -> None:
    said = json.loads((written / NAME / "submission.json").read_text())
    val, test = [metric_on_val(run, task) for run in runs], [metric_on_test(run) for run in runs]
    assert val[0] != val[1]
    assert [run["run"] for run in said["runs"]] == [run.folder.name for run in runs]
    assert [run["rng_seed"] for run in said["runs"]] == [0, 1]
    assert [run["val"] for run in said["runs"]] == pytest.approx(val, rel=1e-12)
    assert [run["test"] for run in said["runs"]] == test
    assert said["mean"] == pytest.approx({"val": sum(val) / 2, "test": sum(test) / 2}, rel=1e-12)
    std = {"val": abs(val[0] - val[1]) / np.sqrt(2), "test": abs(test[0] - test[1]) / np.sqrt(2)}
    assert said["std"] == pytest.approx(std, rel=1e-9)
    assert said["chosen"] == int(np.argmax(val))
    assert (written / f"{NAME}.csv").read_bytes() == (
        written / NAME / f"run-{said['chosen']}-test.csv"
    ).read_bytes()


def test_what_the_runs_were_is_said(written: Path, runs: list[Run], task: Task) -> None:
    said = json.loads((written / NAME / "submission.json").read_text())
    assert said["fingerprint"] == task.database.fingerprint
    assert (said["protocol"], said["time_rule"], said["metric"]) == ("frozen", "<", "roc_auc")
    assert said["num_rows"] == {split: len(task.seeds(split)) for split in ("val", "test")}
    assert said["recipe"] == {k: v for k, v in runs[0].read("recipe.json").items() if k != "rng_seed"}
    assert said["in_context"] is False
    assert said["num_parameters"] > 1000


def test_a_single_run_has_no_deviation(runs: list[Run], task: Task, tmp_path: Path) -> None:
    found = write_submission(runs[1:], task, tmp_path)
    assert found.std == {"val": None, "test": None}
    assert found.chosen == 0
    assert "±" not in summary(found)


def test_the_better_run_is_chosen_and_of_equal_ones_the_first() -> None:
    figures = [RunFigures("", place, val, 0.5) for place, val in enumerate([0.5, 0.75, 0.25, 0.75, 0.25])]
    assert _run_facts(figures, "roc_auc")["chosen"] == 1
    assert _run_facts(figures, "nmae")["chosen"] == 2


def test_the_summary_names_everything(written: Path, task: Task) -> None:
    found = check_submission(written, task)
    made = replace(
        found,
        evaluators={"val": "relbench 3.0.2", "test": "quartet, evaluation-test-frozen.json"},
        runs=tuple(
            replace(r, run=f"churn-{i}", val=0.7 + i / 10, test=0.6) for i, r in enumerate(found.runs)
        ),
        mean={"val": 0.75, "test": 0.6},
        std={"val": 0.07071, "test": 0.0},
        chosen=1,
        num_rows={"val": 7, "test": 1234},
    )
    assert summary(made).splitlines() == [
        "small/churn: roc_auc, val by relbench 3.0.2, test by quartet, evaluation-test-frozen.json",
        "  frozen, rows whose time is < that of prediction",
        "  churn-0  rng_seed 0  val 0.7000  test 0.6000",
        "  churn-1  rng_seed 1  val 0.8000  test 0.6000",
        "  mean of 2  val 0.7500 ± 0.0707  test 0.6000 ± 0.0000",
        "  to the board: the 1,234 test rows of churn-1, best on validation",
    ]


def test_other_tasks_of_the_folder_stay_and_the_same_is_replaced(
    written: Path, runs: list[Run], task: Task, tmp_path: Path
) -> None:
    (tmp_path / "rel-f1__driver-top3.csv").write_text("of another task\n")
    write_submission(runs[:1], task, tmp_path)
    write_submission(runs, task, tmp_path)
    there = content(tmp_path)
    assert there.pop("rel-f1__driver-top3.csv") == b"of another task\n"
    assert there == content(written)


# --- RelBench -------------------------------------------------------------------------------------


def test_relbench_takes_the_file_and_finds_the_same(written: Path, source: Path, task: Task) -> None:
    board = pytest.importorskip("relbench.submit")
    found = check_submission(written, task)
    assert found.evaluators["val"].startswith("relbench ")
    theirs = board.evaluate_task("small/churn", written / f"{NAME}.csv", dataset=str(source))
    assert theirs == {"roc_auc": pytest.approx(found.runs[found.chosen].test, rel=1e-12)}
    assert board._extra_files(written) == [f"{NAME}/"]  # passed over, and left out of the zip


@pytest.mark.parametrize(
    ("name", "split"), [("driver-top3", "test"), ("driver-position", "val"), ("results-position", "val")]
)
def test_a_file_is_that_of_relbench_to_the_byte(name: str, split: Any, tmp_path: Path) -> None:
    """On a forecast, and on a column to fill in, whose times have hours."""
    board = pytest.importorskip("relbench.submit")
    relbench = pytest.importorskip("relbench")
    folder = shared_data("rel-f1")
    ours = BoardTask.of(Task.load(Database.load(folder), name))
    assert ours.judge.name.startswith("relbench ")
    score = np.random.default_rng(0).random(len(ours.pairs[split])) ** 20
    write_predictions(tmp_path / "ours.csv", ours.columns, ours.pairs[split], score.tolist())
    theirs = relbench.load_dataset(str(folder)).load_task(name)
    board.write_prediction_table(theirs, score, tmp_path / "theirs.csv", split)
    assert (tmp_path / "ours.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()
    assert read_predictions(tmp_path / "ours.csv", ours, split).tolist() == score.tolist()


@pytest.mark.parametrize(
    ("times", "texts"),
    [
        (["2010-01-31", "2010-03-01"], ["2010-01-31", "2010-03-01"]),
        (["2010-01-31", "2010-03-01T12:30"], ["2010-01-31 00:00:00", "2010-03-01 12:30:00"]),
        (["2010-01-31", "1960-03-01T12:30:01.5"], ["2010-01-31 00:00:00.000", "1960-03-01 12:30:01.500"]),
        (["2010-01-31T00:00:00.000001"], ["2010-01-31 00:00:00.000001"]),
        (["2010-01-31T00:00:00.000000001"], ["2010-01-31 00:00:00.000000001"]),
        ([], []),
    ],
)
def test_times_are_written_as_pandas_compares_them(times: list[str], texts: list[str]) -> None:
    pandas = pytest.importorskip("pandas")
    instants = np.array(times, dtype="datetime64[ns]")
    assert pandas.Series(instants).astype(str).tolist() == texts
    assert to_pairs(["k"] * len(times), instants.astype(np.int64)) == [("k", text) for text in texts]


def test_without_relbench_validation_is_judged_by_us(
    runs: list[Run], written: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("relbench", "relbench.submit"):
        monkeypatch.setitem(sys.modules, name, None)
    found: list[Finding] = []
    alone = write_submission(runs, task, tmp_path, found.append)
    assert found == []  # nothing is known of the board's tasks
    assert alone.evaluators == {"val": "quartet", "test": "quartet, evaluation-test-frozen.json"}
    assert [run.val for run in alone.runs] == [metric_on_val(run, task) for run in runs]
    assert check_submission(written, task).evaluators["val"].startswith("relbench ")


def test_a_task_that_relbench_does_not_have_is_judged_by_us() -> None:
    board = BoardTask.of(Task.from_sql(small_shop(), **CHURN))
    assert board.judge.name == "quartet"
    target = np.asarray(board.task.seeds("val").target)
    assert board.judge.measure(target * 0.5 + 0.1) == 1.0


def test_a_regression_is_judged_in_deviations(tmp_path: Path) -> None:
    definition = {**CHURN, "name": "late", "task_type": "regression"}
    board = BoardTask.of(Task.from_sql(small_shop(), **definition))
    train, val = (np.asarray(board.task.seeds(split).target) for split in ("train", "val"))
    score = np.linspace(-5, 5, len(val))
    assert board.metric == "nmae"
    assert board.judge.measure(score) == nmae(val, score, train)
    write_predictions(tmp_path / "p.csv", board.columns, board.pairs["val"], score.tolist())
    assert read_predictions(tmp_path / "p.csv", board, "val").tolist() == score.tolist()


# --- runs that are refused ------------------------------------------------------------------------


def unfinish(runs: list[Run]) -> None:
    (runs[1].folder / "state").mkdir()


def other_recipe(runs: list[Run]) -> None:
    runs[1].write("recipe.json", runs[1].recipe.changed(batch_size=32).to_dict())


def same_randomness(runs: list[Run]) -> None:
    runs[1].write("recipe.json", runs[0].recipe.to_dict())


def no_evaluation(runs: list[Run]) -> None:
    (runs[1].folder / "evaluation-test-frozen.json").unlink()


def other_evaluation(runs: list[Run]) -> None:
    said = runs[1].read("evaluation-test-frozen.json")
    runs[1].write("evaluation-test-frozen.json", said | {"num_rows": 1001})


def no_auc(runs: list[Run]) -> None:
    said = runs[1].read("evaluation-test-frozen.json")
    row = next(row for row in said["rows"] if row["name"] == "quartet")
    row["measures"]["roc_auc"] |= {"value": None, "undefined": "only class 0 in 9 rows"}
    runs[1].write("evaluation-test-frozen.json", said)


def no_predictions(runs: list[Run]) -> None:
    (runs[1].folder / "predictions" / "test.parquet").unlink()


def other_rows(runs: list[Run]) -> None:
    path = runs[1].folder / "predictions" / "test.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)


def no_numbers(runs: list[Run]) -> None:
    path = runs[1].folder / "predictions" / "val.parquet"
    table = pq.read_table(path)
    scores = table["score"].to_pylist()
    scores[3], scores[5] = None, float("nan")
    place = table.column_names.index("score")
    pq.write_table(table.set_column(place, "score", pa.array(scores, pa.float64())), path)


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (unfinish, UsageError,
         "error[B02] the run run1 is not finished. Fix: quartet train SRC TASK --resume {base}/run1"),
        (other_recipe, UsageError,
         "error[B02] run1 has another recipe than run0: they are not one method. "
         "Fix: give runs that differ in rng_seed alone"),
        (same_randomness, UsageError,
         "error[B02] 2 runs with rng_seed (0, 0), where each must have its own. "
         "Fix: give every run once, trained with its own `--set rng_seed=`"),
        (no_predictions, UsageError, "error[B02] run1 has no predictions/test.parquet. Fix: train it again"),
        (no_evaluation, UsageError,
         "error[B03] the test metric of run1 is unknown: there is no evaluation-test-frozen.json. "
         "Fix: quartet evaluate {base}/run1"),
        (other_evaluation, UsageError,
         "error[B03] evaluation-test-frozen.json of run1 judges 1,001 rows, not those of the task. "
         "Fix: quartet evaluate {base}/run1"),
        (no_auc, DataError,
         "error[L06] the test roc_auc is n/a (only class 0 in 9 rows). Fix: move the cut-offs"),
        (other_rows, IntegrityError,
         "error[B07] run-1-test.csv has {less} rows, the task's test table {all}: "
         "1 missing, 0 foreign, 0 repeated" + AGAIN),
        (no_numbers, IntegrityError,
         "error[B08] run-1-val.csv: 2 predictions are missing or no finite numbers (line 5 first)" + AGAIN),
    ],
)  # fmt: skip
def test_runs_are_refused_and_what_stood_there_stays(
    damage: Callable[[list[Run]], None], kind: type[QuartetError], message: str,
    copies: list[Run], folder: Path, task: Task, tmp_path: Path,
) -> None:  # fmt: skip
    before = content(folder)
    damage(copies)
    with pytest.raises(kind) as caught:
        write_submission(copies, task, folder)
    rows = len(task.seeds("test"))
    assert str(caught.value) == message.format(base=tmp_path, less=f"{rows - 1:,}", all=f"{rows:,}")
    assert content(folder) == before
    with pytest.raises(kind):
        write_submission(copies, task, tmp_path / "new")
    assert not (tmp_path / "new").exists() or content(tmp_path / "new") == {}


def test_no_runs_are_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"B02.*0 runs"):
        write_submission([], task, tmp_path)


def test_runs_of_other_data_are_refused(runs: list[Run], tmp_path: Path) -> None:
    other = Task.from_sql(small_shop(rng_seed=1), **CHURN)
    with pytest.raises(UsageError, match=r"C05.*the data of .* has changed"):
        write_submission(runs, other, tmp_path)


# --- tasks that are refused -----------------------------------------------------------------------


def labelled(times: list[str], customers: list[str], labels: list[Any], **words: Any) -> Task:
    table = pa.table(
        {
            "customer": customers,
            "timestamp": pa.array(np.array(times, dtype="datetime64[ns]")),
            "churned": labels,
        }
    )
    said = {k: v for k, v in CHURN.items() if k != "sql"} | {
        "val_timestamp": "2023-05-01", "test_timestamp": "2023-07-01", **words,
    }  # fmt: skip
    return Task.from_labels(small_shop(), table, **said)


TIMES = ["2023-02-01", "2023-02-02", "2023-05-02", "2023-05-03", "2023-07-02", "2023-07-03"]
FEW = ["C01", "C02", "C03", "C04", "C05", "C06"]


def test_a_task_without_a_place_on_the_board_is_refused() -> None:
    task = labelled(TIMES, FEW, list("ababab"), task_type="multiclass_classification")
    with pytest.raises(DataError) as caught:
        BoardTask.of(task)
    assert str(caught.value) == (
        'error[B01] task "churn" is a multiclass classification, for which the board takes no such file. '
        "Fix: submit a task of type binary_classification or regression"
    )


@pytest.mark.parametrize("name", ["", "my__shop", "my/shop"])
def test_a_database_that_cannot_name_a_file_is_refused(name: str) -> None:
    database = small_shop()
    database = Database.build(
        {n: t.data for n, t in database.tables.items()}, replace(database.schema, name=name)
    )
    with pytest.raises(DataError) as caught:
        BoardTask.of(Task.from_sql(database, **CHURN))
    assert str(caught.value) == (
        f'error[B01] no board file can be named after the database "{name}" and the task "churn". '
        "Fix: give the database a `name` without slashes and double underscores in its schema file"
    )


def test_rows_that_were_left_out_are_an_error_here() -> None:
    with pytest.raises(DataError) as caught:
        BoardTask.of(labelled(TIMES, FEW, [0, 1, 0, 1, 0, None]))
    assert str(caught.value) == (
        'error[B04] 1 rows of the test table of task "churn" were left out, and the board wants every row. '
        "Fix: repair the label table"
    )


def test_a_pair_that_stands_twice_is_an_error_here() -> None:
    with pytest.raises(DataError) as caught:
        BoardTask.of(labelled([*TIMES, TIMES[-1]], [*FEW, FEW[-1]], [0, 1, 0, 1, 0, 1, 1]))
    assert str(caught.value) == (
        'error[B04] the test table of task "churn" has 3 rows for 2 pairs of entity and time, '
        "and the board wants one row for each. Fix: remove the repeated rows"
    )


def test_the_boards_rules_are_told(runs: list[Run], copies: list[Run], task: Task, tmp_path: Path) -> None:
    pytest.importorskip("relbench")
    found: list[Finding] = []
    write_submission(runs, task, tmp_path / "a", found.append)
    not_ranked = "note[B11] small/churn is not among the 31 tasks that the board ranks"
    assert [str(finding) for finding in found] == [not_ranked]
    found.clear()
    for run in copies:
        run.write("recipe.json", run.recipe.changed(time_rule="<=").to_dict())
    write_submission(copies, task, tmp_path / "b", found.append)
    assert [str(finding) for finding in found] == [
        "warning[B10] the model saw rows of the very time of prediction (time_rule <=); "
        "the board's rules allow only rows strictly before it. Fix: train with `--set 'time_rule=<'`",
        not_ranked,
    ]


# --- files that are refused -----------------------------------------------------------------------


def edit_lines(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return damage


def edit_facts(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / NAME / "submission.json"
        said = json.loads(path.read_text())
        change(said)
        path.write_text(json.dumps(said))

    return damage


def with_score(line: str, score: str) -> str:
    return ",".join([*line.split(",")[:2], score])


def scored(place: int, score: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [with_score(x, score) if i == place else x for i, x in enumerate(lines)]


def even_but(first: str) -> Callable[[list[str]], list[str]]:
    """One half everywhere, but for the first row."""
    return lambda lines: [
        lines[0], with_score(lines[1], first), *(with_score(line, "0.5") for line in lines[2:])
    ]  # fmt: skip


def as_labels(lines: list[str]) -> list[str]:
    return [lines[0], *(with_score(line, str(i % 2)) for i, line in enumerate(lines[1:]))]


def add_labels(folder: Path) -> None:
    (folder / NAME / "labels.parquet").write_bytes(b"")


def no_run_file(folder: Path) -> None:
    (folder / NAME / "run-0-val.csv").unlink()


def swap_validation(folder: Path) -> None:
    one, other = (folder / NAME / f"run-{place}-val.csv" for place in (0, 1))
    first, second = one.read_text(), other.read_text()
    one.write_text(second)
    other.write_text(first)


def swap_runs(folder: Path) -> None:
    """The test predictions of the run that was not chosen."""
    said = json.loads((folder / NAME / "submission.json").read_text())
    shutil.copyfile(folder / NAME / f"run-{1 - said['chosen']}-test.csv", folder / f"{NAME}.csv")


BOARD = f"{NAME}.csv"
DAMAGES = {
    "a column with labels": (
        edit_lines(BOARD, lambda lines: [f"{lines[0]},label", *(f"{line},1" for line in lines[1:])]),
        "B06", f"{BOARD} has the columns (customer, timestamp, churned, label), not (customer, timestamp, churned)",
    ),
    "an empty file": (
        edit_lines(BOARD, lambda _: []), "B06", f"{BOARD} has the columns (), not (customer, timestamp, churned)",
    ),
    "a short line": (
        edit_lines(BOARD, lambda lines: [*lines[:4], lines[4].rsplit(",", 1)[0], *lines[5:]]),
        "B06", f"{BOARD}: 1 lines do not have 3 fields (line 5 first)",
    ),
    "a row that is missing": (
        edit_lines(BOARD, lambda lines: lines[:-1]),
        "B07", f"{BOARD} has {{less}} rows, the task's test table {{all}}: 1 missing, 0 foreign, 0 repeated",
    ),
    "a row that stands twice": (
        edit_lines(BOARD, lambda lines: [*lines, lines[-1]]),
        "B07", f"{BOARD} has {{more}} rows, the task's test table {{all}}: 0 missing, 0 foreign, 1 repeated",
    ),
    "an unknown entity": (
        edit_lines(BOARD, lambda lines: [*lines[:-1], f"99{lines[-1]}"]),
        "B07", f"{BOARD} has {{all}} rows, the task's test table {{all}}: 1 missing, 1 foreign, 0 repeated",
    ),
    "rows in another order": (
        edit_lines(BOARD, lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]]),
        "B07", f"{BOARD} is not in the order of the task's test table (line 4 first)",
    ),
    "no prediction": (
        edit_lines(BOARD, scored(2, "")),
        "B08", f"{BOARD}: 1 predictions are missing or no finite numbers (line 3 first)",
    ),
    "an infinite prediction": (
        edit_lines(f"{NAME}/run-1-val.csv", scored(1, "inf")),
        "B08", "run-1-val.csv: 1 predictions are missing or no finite numbers (line 2 first)",
    ),
    "more than certain": (
        edit_lines(BOARD, even_but("1.25")), "B08", f"{BOARD}: probabilities from 0.5 to 1.25 leave [0, 1]",
    ),
    "less than impossible": (
        edit_lines(BOARD, even_but("-0.5")), "B08", f"{BOARD}: probabilities from -0.5 to 0.5 leave [0, 1]",
    ),
    "labels for predictions": (
        edit_lines(BOARD, as_labels),
        "B08", f"{BOARD}: every prediction is 0 or 1, as labels are and probabilities are not",
    ),
    "a file too many": (
        add_labels, "B06", "0 files of the submission are missing (), 1 do not belong to it (labels.parquet)",
    ),
    "a file too few": (
        no_run_file, "B06", "1 files of the submission are missing (run-0-val.csv), 0 do not belong to it ()",
    ),
    "another prediction": (
        edit_lines(f"{NAME}/run-0-test.csv", scored(1, "0.123")),
        "B09", "the prediction files are not those whose checksums stand in submission.json",
    ),
    "the predictions of another run": (
        swap_runs, "B09", "the board's file is not that of the run which is best on validation",
    ),
    "validation files that were swapped": (
        swap_validation, "B09", "submission.json gives {run} another validation roc_auc than its file",
    ),
    "no protocol": (
        edit_facts(lambda said: said.update(protocol="")),
        "B05", "submission.json says protocol '', not one of frozen, rolling",
    ),
    "no time rule": (
        edit_facts(lambda said: said.update(time_rule="about")),
        "B05", "submission.json says time_rule 'about', not one of <=, <",
    ),
    "other data": (
        edit_facts(lambda said: said.update(fingerprint="0")),
        "B05", "submission.json says fingerprint '0', where {fingerprint!r} is right",
    ),
    "a better mean": (
        edit_facts(lambda said: said["mean"].update(test=1.0, val=1.0)),
        "B05", "submission.json says mean {{'val': 1.0, 'test': 1.0}}, where {mean!r} is right",
    ),
    "the other run chosen": (
        edit_facts(lambda said: said.update(chosen=1 - said["chosen"])),
        "B05", "submission.json says chosen {other}, where {chosen} is right",
    ),
    "a field that is missing": (
        edit_facts(lambda said: said.pop("protocol")), "B05", "submission.json is not that of a submission "
        "(Submission.__init__() missing 1 required positional argument: 'protocol')",
    ),
    "a field too many": (
        edit_facts(lambda said: said.update(labels=[1, 0])), "B05", "submission.json is not that of a submission "
        "(Submission.__init__() got an unexpected keyword argument 'labels')",
    ),
    "labels in a run": (
        edit_facts(lambda said: said["runs"][0].update(labels=[1, 0])), "B05", "submission.json is not that of a "
        "submission (RunFigures.__init__() got an unexpected keyword argument 'labels')",
    ),
    "a metric that is text": (
        edit_facts(lambda said: said["runs"][0].update(val="good")),
        "B05", "submission.json is not that of a submission (a metric is no number)",
    ),
    "no runs": (edit_facts(lambda said: said.update(runs=[])), "B05", "submission.json names no runs"),
    "no JSON": (
        edit_lines(f"{NAME}/submission.json", lambda _: ["{"]), "B05", "submission.json is not that of a submission "
        "(Expecting property name enclosed in double quotes: line 2 column 1 (char 2))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_submission_is_refused(name: str, folder: Path, task: Task) -> None:
    damage, code, message = DAMAGES[name]
    found, rows = check_submission(folder, task), len(task.seeds("test"))
    damage(folder)
    with pytest.raises(IntegrityError) as caught:
        check_submission(folder, task)
    text = message.format(
        less=f"{rows - 1:,}", all=f"{rows:,}", more=f"{rows + 1:,}", run=found.runs[0].run,
        fingerprint=found.fingerprint, mean=found.mean, chosen=found.chosen, other=1 - found.chosen,
    )  # fmt: skip
    assert str(caught.value) == f"error[{code}] {text}{AGAIN}"


@pytest.mark.parametrize("gone", [f"{NAME}.csv", f"{NAME}/submission.json"])
def test_a_submission_that_is_not_there_is_refused(gone: str, folder: Path, task: Task) -> None:
    (folder / gone).unlink()
    with pytest.raises(UsageError) as caught:
        check_submission(folder, task)
    assert str(caught.value) == f'error[B05] "{folder}" has no {gone}. Fix: write it with `quartet submit`'


# --- the command ----------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["quartet", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


def test_the_command_writes_and_checks(
    runs: list[Run], written: Path, task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [run.folder for run in runs]
    code, out, err = told(capsys, "submit", *names, "--out", tmp_path)
    found = check_submission(written, task)
    assert (code, out) == (0, summary(found) + "\n")
    assert f"Valid. Once all tasks of a board are there: python -m relbench.submit {tmp_path}" in err
    assert content(tmp_path) == content(written)
    code, out, _ = told(capsys, "submit", names[0], "--out", tmp_path, "--check", "--json")
    assert (code, json.loads(out)) == (0, json.loads(json.dumps(asdict(found))))
    (tmp_path / f"{NAME}.csv").write_text("customer,timestamp,churned\n")
    code, out, err = told(capsys, "submit", names[0], "--out", tmp_path, "--check")
    assert (code, out) == (5, "")
    assert err.startswith(f"error[B07] {NAME}.csv has 0 rows")
    assert (tmp_path / f"{NAME}.csv").read_text() == "customer,timestamp,churned\n"
