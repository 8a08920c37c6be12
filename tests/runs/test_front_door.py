"""The front door in Python: ten lines from data frames to predictions, and wrong types refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quartet as q
from quartet.errors import IntegrityError, UsageError
from quartet.runs.show import ProgressView, TrainingView
from tests.tasks.small import CHURN, write_small_shop
from tests.trained import QUICK, ROOT, SHOP_SCHEMA, Heard, shop_tables

pd = pytest.importorskip("pandas")

SCHEMA = {"name": "shop", "tables": SHOP_SCHEMA}
TASK = {"kind": "forecast", **CHURN}
SETTINGS: dict[str, dict[str, Any]] = {"quartet": QUICK, "lightgbm": {}}


def frames() -> dict[str, Any]:
    return {name: table.to_pandas() for name, table in shop_tables().items()}


@pytest.fixture(scope="module")
def db() -> q.Database:
    return q.open(frames(), schema=SCHEMA)


@pytest.fixture(scope="module")
def task(db: q.Database) -> q.Task:
    return db.task(TASK)


@pytest.fixture(scope="module")
def models(task: q.Task, tmp_path_factory: pytest.TempPathFactory) -> dict[str, q.TrainedModel]:
    """A network, trees, and an ensemble of both: from here on nobody asks which."""
    folder = tmp_path_factory.mktemp("home")
    made: dict[str, q.TrainedModel] = {
        name: q.fit(task, name, runs=folder / "runs", cache=folder / "cache", listener=Heard(), **settings)
        for name, settings in SETTINGS.items()
    }
    return {**made, "both": q.Ensemble(*made.values())}


@pytest.mark.parametrize("name", ["quartet", "lightgbm", "both"])
def test_ten_lines_from_frames_to_predictions(
    name: str, db: q.Database, task: q.Task, models: dict[str, q.TrainedModel]
) -> None:
    findings = task.check()
    assert "L09" in {finding.code for finding in findings}
    assert "warning[L09]" in str(findings)

    model = models[name]
    evaluation = model.evaluate(listener=Heard())
    frame = evaluation.to_pandas()
    assert {"model", "roc_auc", "roc_auc_low", "roc_auc_high"} <= set(frame.columns)
    assert "constant" in set(frame["model"])
    assert "constant" in str(evaluation) == repr(evaluation)

    live = model.on(db, listener=Heard())
    scores = live.predict(["C17", "C30"], at="2023-10-01")
    table = scores.to_pandas()
    assert list(table.columns) == ["customer", "name", "time", "score", "calibrated", "set"]
    assert list(table["customer"]) == ["C17", "C30"]
    assert list(table["name"]) == ["Person Ar", "Person Be"]
    assert set(table["time"]) == {pd.Timestamp("2023-10-01")}
    assert table["score"].between(0, 1).all()
    assert "Person Ar" in str(scores) == repr(scores)

    again = q.load(*[run.folder for _, run in model.members if run is not None])
    assert again.on(db, listener=Heard()).predict(["C17", "C30"], at="2023-10-01").table.equals(scores.table)
    rows = again.evaluate(task, rules=False, listener=Heard()).rows
    assert rows == evaluation.rows[: len(rows)]


def test_without_a_listener_people_see_what_happens(
    db: q.Database, task: q.Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = q.fit(task, "quartet", runs=tmp_path / "runs", cache=tmp_path / "cache", **QUICK)
    shown = capsys.readouterr()
    assert "epoch   1/1" in shown.out
    assert str(model.folder) in shown.out
    assert "warning[L09]" in shown.err
    assert len(model.on(db).predict(["C03"])) == 1
    assert isinstance(TrainingView(), ProgressView)


def test_latest_is_the_newest_run(models: dict[str, q.TrainedModel]) -> None:
    newest = models["lightgbm"].folder
    assert q.load(newest.parent / "latest").folder.resolve() == newest.resolve()


def test_a_loaded_model_finds_its_task_again(tmp_path: Path) -> None:
    """Of a database that has a place, which one of data frames has not."""
    source = write_small_shop(tmp_path / "shop")
    model = q.fit(q.open(source).task("churn"), "lightgbm", runs=tmp_path / "runs", listener=Heard())
    again = q.load(model.folder)
    assert again.task.name == "churn"
    rows = [one.evaluate(rules=False, listener=Heard()).rows for one in (model, again)]
    assert rows[0] == rows[1]


def test_a_model_of_frames_says_that_its_task_must_be_given(models: dict[str, q.TrainedModel]) -> None:
    with pytest.raises(UsageError, match=r"given in memory.*evaluate\(task\)"):
        q.load(models["lightgbm"].folder).evaluate(listener=Heard())


def _list(model: Path) -> None:
    (model / "model.json").write_text("[]")


def _no_version(model: Path) -> None:
    (model / "model.json").write_text("{}")


def _cut(model: Path) -> None:
    (model / "weights.safetensors").write_bytes((model / "weights.safetensors").read_bytes()[:1000])


@pytest.mark.parametrize("harm", [_list, _no_version, _cut])
@pytest.mark.parametrize("sums", ["right", "none", "no JSON"])
def test_a_damaged_model_is_refused(
    harm: Callable[[Path], None], sums: str, models: dict[str, q.TrainedModel], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(models["quartet"].folder / "model", model)
    harm(model)
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model.iterdir()}
    digests.pop("checksums.json")
    text = {"right": json.dumps(digests), "none": "{}", "no JSON": "{"}[sums]
    (model / "checksums.json").write_text(text)
    with pytest.raises(IntegrityError, match="C06"):
        q.load(model)


# --- names ------------------------------------------------------------------------------------------


def test_the_door_has_few_names_and_all_of_them_open() -> None:
    assert dir(q) == sorted(q.__all__)
    for name in q.__all__:
        assert getattr(q, name) is not None
    assert issubclass(q.Ensemble, q.TrainedModel)
    assert q.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        q.fitt  # noqa: B018
    for argument in ("preset", "recipe", "resume", "device", "listener", "settings"):
        assert f"{argument}:" in (q.fit.__doc__ or "")


def test_importing_the_package_waits_for_nothing() -> None:
    slow = {"torch", "numba", "pandas", "pyarrow"}
    code = f"import sys, quartet; dir(quartet); print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


# --- wrong types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [42, None, 3.5, ["orders.csv"]])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(UsageError):
        q.open(source)


@pytest.mark.parametrize("schema", [42, ["orders"]])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(UsageError):
        q.open(frames(), schema=schema)


@pytest.mark.parametrize("definition", [42, None, ["churn"]])
def test_what_is_no_task_is_refused(definition: Any, db: q.Database) -> None:
    with pytest.raises(UsageError):
        db.task(definition)


def test_what_cannot_be_fitted_is_refused(db: q.Database, task: q.Task, tmp_path: Path) -> None:
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("x",), {}),
        ((None,), {}),
        ((db,), {}),
        ((task, 3), {}),
        ((task, None), {"recipe": 3}),
        ((task, None), {"recipe": {"width": 16}}),
        ((task, None), {"preset": 3}),
        ((task, None), {"device": 3}),
        ((task, None), {"threads": -1}),
        ((task, None), {"threads": "two"}),
        ((task, None), {"runs": 3}),
        ((task, None), {"resume": 3}),
        ((task, None), {"listener": print}),
        ((task, None), {"width": "wide"}),
    ]
    for args, words in wrong:
        with pytest.raises(UsageError):
            q.fit(*args, **({"runs": tmp_path / "runs"} | words))
    assert not (tmp_path / "runs").exists()


def test_what_cannot_be_evaluated_is_refused(task: q.Task, models: dict[str, q.TrainedModel]) -> None:
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("x",), {}),
        ((task,), {"split": "train"}),
        ((task,), {"split": 3}),
        ((task,), {"protocol": "thawed"}),
        ((task,), {"device": "gpu"}),
    ]
    for name in ("quartet", "both"):
        for args, words in wrong:
            with pytest.raises(UsageError):
                models[name].evaluate(*args, **words)
    assert not any("train" in path.name for path in models["quartet"].folder.glob("evaluation-*"))


def test_what_cannot_be_bound_or_asked_is_refused(db: q.Database, models: dict[str, q.TrainedModel]) -> None:
    for name in ("quartet", "lightgbm", "both"):
        for database in ("x", None, frames()):
            with pytest.raises(UsageError, match="C02"):
                models[name].on(database)  # type: ignore[arg-type]
        live = models[name].on(db, listener=Heard())
        for entities in ("C17", b"C17", 17):
            with pytest.raises(UsageError, match="C02"):
                live.predict(entities)  # type: ignore[arg-type]
        for at in (3.5, True, [3.5], [None], object(), np.nan, b"x", 2**63, -(2**63)):
            with pytest.raises(UsageError, match="C02"):
                live.predict(["C17"], at=at)  # type: ignore[arg-type]


def test_what_cannot_be_loaded_or_joined_is_refused(
    models: dict[str, q.TrainedModel], tmp_path: Path
) -> None:
    wrong: list[Any] = [tmp_path / "absent", "", 3, None, models["quartet"], Path(__file__)]
    for folder in wrong:
        with pytest.raises(UsageError):
            q.load(folder)
    with pytest.raises(UsageError):
        q.load()
    for model in (3, None):
        with pytest.raises(UsageError):
            q.Ensemble(models["quartet"], model)  # type: ignore[arg-type]


def test_odd_values_are_refused(db: q.Database, models: dict[str, q.TrainedModel], tmp_path: Path) -> None:
    model, task = models["lightgbm"], models["lightgbm"].task
    live = model.on(db, listener=Heard())
    scores = live.predict(["C17"])
    odd: list[Callable[[], object]] = [
        lambda: live.predict([10**40]),
        lambda: scores.write(5),  # type: ignore[arg-type]
        lambda: scores.write("a\0b.csv"),
        lambda: q.fit(task, runs=None),  # type: ignore[arg-type]
        lambda: q.fit(task, runs="a\0b"),
        lambda: q.fit(task, resume="a\0b"),
        lambda: q.fit(task, cache="a\0b", runs=tmp_path),
        lambda: q.fit(task, preset="a\0b.toml", runs=tmp_path),
        lambda: q.fit(task, listener="x", runs=tmp_path),  # type: ignore[arg-type]
        lambda: q.fit(task, branches=5, runs=tmp_path),
        lambda: q.fit(task, learning_rate=10**400, runs=tmp_path),
        lambda: q.fit(task, architecture=[], runs=tmp_path),
        lambda: model.evaluate(listener="x"),  # type: ignore[arg-type]
        lambda: model.on(db, listener="x"),  # type: ignore[arg-type]
        lambda: q.load("a\0b"),
        lambda: q.Recipe(model=5),  # type: ignore[arg-type]
        lambda: q.Recipe(sampling=5),  # type: ignore[arg-type]
        lambda: db[[]],  # type: ignore[index]
    ]
    for attempt in odd:
        with pytest.raises(q.errors.QuartetError):
            attempt()
    assert list(tmp_path.iterdir()) == []
