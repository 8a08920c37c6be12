"""Submissions: the files are those that RelBench itself would write and take, and whatever is wrong is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.cli.app import main
from quartet.config import Recipe
from quartet.database import Database
from quartet.errors import DataError, IntegrityError, QuartetError, UsageError
from quartet.evaluation import measures
from quartet.findings import Finding
from quartet.listener import SILENT, Listener
from quartet.machine import write_checksums
from quartet.paper import check_submission, summary, write_submission
from quartet.paper.board import BoardTask, read_predictions, to_pairs, write_predictions
from quartet.paper.submit import RunFigures, _run_facts
from quartet.runs import Run, fit
from quartet.tasks import Task
from tests.shared import shared_data
from tests.tasks.small import CHURN, growing_shop, small_shop, write_small_shop

TINY = Recipe.load(
    "small", width=16, heads=2, encoder_width=8, num_latents=2, num_archetypes=4, local_budget=20,
    temporal_budget=10, collab_budget=5, batch_size=64, epochs=1, seeds_per_epoch=200, time_rule="<",
)  # fmt: skip
NAME = "small__churn"
FILES = {"run-0-test.csv", "run-0-val.csv", "run-1-test.csv", "run-1-val.csv", "submission.json"}


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
    runs = []
    for seed in (0, 1):
        recipe = TINY.changed(rng_seed=seed)
        model = fit(task, recipe=recipe, runs=base, cache=base / "cache", device="cpu", listener=SILENT)
        model.evaluate(task, listener=SILENT)
        runs.append(model.run)
    return runs


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


def test_relbench_takes_the_file_and_finds_the_same(
    written: Path, source: Path, task: Task, runs: list[Run]
) -> None:
    """Its own validator takes the board's file, and its own evaluator has our figures on both splits."""
    board = pytest.importorskip("relbench.submit")
    relbench = pytest.importorskip("relbench")
    submission = check_submission(written, task)
    theirs = board.evaluate_task("small/churn", written / f"{NAME}.csv", dataset=str(source))
    assert theirs == {"roc_auc": pytest.approx(submission.runs[submission.chosen].test, rel=1e-12)}
    assert board._extra_files(written) == [f"{NAME}/"]  # passed over, and left out of the zip
    their_task = relbench.load_dataset(str(source)).load_task("churn")
    table = their_task.get_table("val", mask_input_cols=False)
    for run, figures in zip(runs, submission.runs, strict=True):
        their_value = their_task.evaluate(np.asarray(kept(run, "val")["score"]), table)["roc_auc"]
        assert figures.val == pytest.approx(float(their_value), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "split"), [("driver-top3", "test"), ("driver-position", "val"), ("results-position", "val")]
)
def test_a_file_is_that_of_relbench_to_the_byte(name: str, split: Any, tmp_path: Path) -> None:
    """On a forecast, and on a column to fill in, whose times have hours; the metric of validation is theirs, too."""
    board = pytest.importorskip("relbench.submit")
    relbench = pytest.importorskip("relbench")
    folder = shared_data("rel-f1")
    ours = BoardTask.of(Task.load(Database.load(folder), name))
    score = np.random.default_rng(0).random(len(ours.pairs[split])) ** 20
    write_predictions(tmp_path / "ours.csv", ours.columns, ours.pairs[split], score.tolist())
    theirs = relbench.load_dataset(str(folder)).load_task(name)
    board.write_prediction_table(theirs, score, tmp_path / "theirs.csv", split)
    assert (tmp_path / "ours.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()
    assert read_predictions(tmp_path / "ours.csv", ours, split).tolist() == score.tolist()
    if split == "val":
        table = theirs.get_table("val", mask_input_cols=False)
        assert ours.measure(score) == pytest.approx(float(theirs.evaluate(score, table)["nmae"]), rel=1e-6)


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


def test_a_regression_is_measured_in_deviations(tmp_path: Path) -> None:
    definition = {**CHURN, "name": "late", "task_type": "regression"}
    board = BoardTask.of(Task.from_sql(small_shop(), **definition))
    train, val = (np.asarray(board.task.seeds(split).target) for split in ("train", "val"))
    score = np.linspace(-5, 5, len(val))
    assert board.metric == "nmae"
    assert board.measure(score) == pytest.approx(np.abs(val - score).mean() / train.std(ddof=1), rel=1e-12)
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
    write_checksums(path.parent)


def no_numbers(runs: list[Run]) -> None:
    path = runs[1].folder / "predictions" / "val.parquet"
    table = pq.read_table(path)
    scores = table["score"].to_pylist()
    scores[3], scores[5] = None, float("nan")
    place = table.column_names.index("score")
    pq.write_table(table.set_column(place, "score", pa.array(scores, pa.float64())), path)
    write_checksums(path.parent)


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (unfinish, UsageError, r"B02\] the run run1 is not finished.* --resume"),
        (other_recipe, UsageError, r"B02\] run1 has another recipe than run0"),
        (same_randomness, UsageError, r"B02\] 2 runs with rng_seed \(0, 0\)"),
        (no_predictions, UsageError, r"B02\] run1 has no predictions/test\.parquet"),
        (no_evaluation, UsageError, r"B03\] the test metric of run1 is unknown.* Fix: quartet evaluate"),
        (other_evaluation, UsageError, r"B03\] .* of run1 judges 1,001 rows"),
        (no_auc, DataError, r"L06\] the test roc_auc is n/a \(only class 0 in 9 rows\)"),
        (other_rows, IntegrityError, r"B07\] run-1-test\.csv has .*\(line 2 first\)"),
        (no_numbers, IntegrityError, r"B08\] run-1-val\.csv: 2 predictions .*\(line 5 first\)"),
    ],
)
def test_runs_are_refused_and_what_stood_there_stays(
    damage: Callable[[list[Run]], None], kind: type[QuartetError], message: str,
    copies: list[Run], folder: Path, task: Task, tmp_path: Path,
) -> None:  # fmt: skip
    before = content(folder)
    damage(copies)
    with pytest.raises(kind, match=message):
        write_submission(copies, task, folder)
    assert content(folder) == before
    with pytest.raises(kind):
        write_submission(copies, task, tmp_path / "new")
    assert not (tmp_path / "new").exists() or content(tmp_path / "new") == {}


def test_no_runs_are_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"B02.*0 runs"):
        write_submission([], task, tmp_path)


def test_runs_of_other_data_are_refused(runs: list[Run], tmp_path: Path) -> None:
    other = Task.from_sql(small_shop(rng_seed=1), **CHURN)
    with pytest.raises(UsageError, match=r"C05.*the data of .* have changed"):
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
    with pytest.raises(DataError, match=r"B01\] .* multiclass classification"):
        BoardTask.of(task)


@pytest.mark.parametrize("name", ["", "my__shop", "my/shop"])
def test_a_database_that_cannot_name_a_file_is_refused(name: str) -> None:
    database = small_shop()
    tables = {table: content.data for table, content in database.tables.items()}
    database = Database.build(tables, replace(database.schema, name=name))
    with pytest.raises(DataError, match=r"B01\] no board file can be named after the database"):
        BoardTask.of(Task.from_sql(database, **CHURN))


def test_rows_that_were_left_out_are_an_error_here() -> None:
    with pytest.raises(DataError, match=r"B04\] 1 rows of the test table"):
        BoardTask.of(labelled(TIMES, FEW, [0, 1, 0, 1, 0, None]))


def test_entities_that_are_new_since_the_cut_off_are_no_rows_of_the_board() -> None:
    task = growing_shop()
    assert [finding.code for finding in task.findings("test")] == ["T17"]
    assert len(BoardTask.of(task).pairs["test"]) == len(task.seeds("test"))


def test_a_pair_that_stands_twice_is_an_error_here() -> None:
    with pytest.raises(DataError, match=r"L10\].*1 seeds occur twice"):
        BoardTask.of(labelled([*TIMES, TIMES[-1]], [*FEW, FEW[-1]], [0, 1, 0, 1, 0, 1, 1]))


class Findings(Listener):
    def __init__(self) -> None:
        self.codes: list[str] = []

    def finding(self, finding: Finding) -> None:
        self.codes.append(finding.code)


def test_the_boards_rules_are_told(runs: list[Run], copies: list[Run], task: Task, tmp_path: Path) -> None:
    pytest.importorskip("relbench")
    strict, usual = Findings(), Findings()
    write_submission(runs, task, tmp_path / "a", strict)
    assert strict.codes == ["B11"]  # not a task that the board ranks
    for run in copies:
        run.write("recipe.json", run.recipe.changed(time_rule="<=").to_dict())
    write_submission(copies, task, tmp_path / "b", usual)
    assert usual.codes == ["B10", "B11"]


# --- files that are refused -----------------------------------------------------------------------


def edited(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return damage


def said(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / NAME / "submission.json"
        facts = json.loads(path.read_text())
        change(facts)
        path.write_text(json.dumps(facts))

    return damage


def swap_validation(folder: Path) -> None:
    """Exchanges the validation files of two runs, with their checksums."""
    one, other = (folder / NAME / f"run-{place}-val.csv" for place in (0, 1))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    sums = ("run-0-val.csv", "run-1-val.csv")
    said(
        lambda facts: facts["sha256"].update(zip(sums, [facts["sha256"][n] for n in sums[::-1]], strict=True))
    )(folder)


def other_run(folder: Path) -> None:
    """Gives the board the test predictions of the run that was not chosen."""
    chosen = json.loads((folder / NAME / "submission.json").read_text())["chosen"]
    shutil.copyfile(folder / NAME / f"run-{1 - chosen}-test.csv", folder / f"{NAME}.csv")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a row that is missing": (edited(f"{NAME}.csv", lambda lines: lines[:-1]), "B09"),
    "another prediction": (edited(f"{NAME}/run-0-test.csv", lambda lines: [*lines[:-1], "C01,2023-01-01,0.5"]), "B09"),
    "the predictions of another run": (other_run, "B09"),
    "validation files that were swapped": (swap_validation, "B09"),
    "a file too many": (lambda folder: (folder / NAME / "labels.parquet").write_bytes(b""), "B06"),
    "a file too few": (lambda folder: (folder / NAME / "run-0-val.csv").unlink(), "B06"),
    "other data": (said(lambda facts: facts.update(fingerprint="0")), "B05"),
    "a better mean": (said(lambda facts: facts["mean"].update(test=1.0, val=1.0)), "B05"),
    "the other run chosen": (said(lambda facts: facts.update(chosen=1 - facts["chosen"])), "B05"),
    "a field that is missing": (said(lambda facts: facts.pop("protocol")), "B05"),
    "a field too many": (said(lambda facts: facts.update(labels=[1, 0])), "B05"),
    "labels in a run": (said(lambda facts: facts["runs"][0].update(labels=[1, 0])), "B05"),
    "a metric that is text": (said(lambda facts: facts["runs"][0].update(val="good")), "B05"),
    "no runs": (said(lambda facts: facts.update(runs=[])), "B05"),
    "no JSON": (edited(f"{NAME}/submission.json", lambda _: ["{"]), "B05"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_submission_is_refused(name: str, folder: Path, task: Task) -> None:
    damage, code = DAMAGES[name]
    check_submission(folder, task)
    damage(folder)
    with pytest.raises(IntegrityError, match=rf"^error\[{code}\]"):
        check_submission(folder, task)


PREDICTIONS: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "a column with labels": (lambda lines: [f"{line},1" for line in lines], "B06"),
    "an empty file": (lambda _: [], "B06"),
    "a short line": (lambda lines: [*lines[:4], "C01", *lines[5:]], "B06"),
    "a row that is missing": (lambda lines: lines[:-1], "B07"),
    "a row that stands twice": (lambda lines: [*lines, lines[-1]], "B07"),
    "an unknown entity": (lambda lines: [*lines[:-1], f"99{lines[-1]}"], "B07"),
    "rows in another order": (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "B07"),
    "no prediction": (lambda lines: [*lines[:-1], f"{lines[-1].rpartition(',')[0]},"], "B08"),
    "no number": (lambda lines: [*lines[:-1], f"{lines[-1].rpartition(',')[0]},high"], "B08"),
    "an infinite prediction": (lambda lines: [*lines[:-1], f"{lines[-1].rpartition(',')[0]},inf"], "B08"),
    "more than certain": (lambda lines: [*lines[:-1], f"{lines[-1].rpartition(',')[0]},1.25"], "B08"),
    "less than impossible": (lambda lines: [*lines[:-1], f"{lines[-1].rpartition(',')[0]},-0.5"], "B08"),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_wrong_prediction_file_is_refused(name: str, folder: Path, task: Task) -> None:
    change, code = PREDICTIONS[name]
    edited(f"{NAME}.csv", change)(folder)
    with pytest.raises(IntegrityError, match=rf"^error\[{code}\] {NAME}.csv"):
        read_predictions(folder / f"{NAME}.csv", BoardTask.of(task), "test")


@pytest.mark.parametrize("gone", [f"{NAME}.csv", f"{NAME}/submission.json"])
def test_a_submission_that_is_not_there_is_refused(gone: str, folder: Path, task: Task) -> None:
    (folder / gone).unlink()
    with pytest.raises(UsageError, match=r"B05\] .* has no "):
        check_submission(folder, task)


# --- the command ----------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["quartet", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


def test_a_run_brings_its_schema_along(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"tables": {"orders": {"kinds": {"amount": "unused"}}}}
    model = fit(Task.load(Database.load(source, schema), "churn"), "lightgbm", runs=tmp_path, listener=SILENT)
    model.evaluate(listener=SILENT)
    code, out, err = told(capsys, "submit", model.run.folder, "--out", tmp_path / "board")
    assert code == 0, err
    assert "mean of 1 " in out


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
    assert err.splitlines()[-1].startswith("error[B09] ")
    assert (tmp_path / f"{NAME}.csv").read_text() == "customer,timestamp,churned\n"
