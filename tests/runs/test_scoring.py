"""Scores in shards: together they are the table of `predict`, bit by bit, whoever works, and none is made twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from quartet.cli.app import app
from quartet.database import Database
from quartet.errors import UsageError
from quartet.runs import TrainedModel, fit, load, scoring
from quartet.training import data
from tests.tasks.small import CHURN
from tests.trained import TINY, TREES, Heard, opened, shop_tables, write_shop

pytestmark = pytest.mark.usefixtures("one_thread")

AT = "2023-09-01"
FEW = 8  # entities of a shard, and of a batch


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "SHARD", FEW)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that begin where shards do, as they do at their real sizes."""
    monkeypatch.setattr(data, "_AT_ONCE", FEW)


@pytest.fixture(scope="module")
def shop() -> Database:
    return opened(shop_tables())


@pytest.fixture(scope="module")
def models(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    folder, task = tmp_path_factory.mktemp("runs"), shop.task(CHURN)
    recipes = {"network": TINY.changed(past_labels=True, epochs=1), "trees": TREES}
    made = {
        name: fit(task, recipe=recipe, runs=folder, cache=folder / "cache", listener=Heard())
        for name, recipe in recipes.items()
    }
    return made | {"both": load(*(model.folder for model in made.values()))}


def test_shards_begin_where_batches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert scoring.SHARD % data._AT_ONCE == 0


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("name", ["network", "trees", "both"])
def test_shards_are_the_table_bit_by_bit(
    name: str, models: dict[str, TrainedModel], shop: Database, tmp_path: Path
) -> None:
    live = models[name].on(shop, listener=Heard())
    whole = live.predict(at=AT, coverage=0.8)
    shards = live.predict_to(tmp_path, at=AT, coverage=0.8)
    assert shards.to_arrow().equals(whole.table.combine_chunks().replace_schema_metadata())
    assert (shards.num_rows, shards.num_new) == (len(whole), len(whole))
    assert shards.headline == whole.headline
    assert [path.name for path in sorted(tmp_path.iterdir())] == [path.name for path in shards.paths]
    assert len(shards.paths) == -(-len(whole) // FEW) > 2


@pytest.mark.parametrize("on", ["local:1", "local:3"])
def test_the_bytes_do_not_depend_on_who_works(
    on: str, models: dict[str, TrainedModel], shop: Database, tmp_path: Path
) -> None:
    heard = Heard()
    live = models["both"].on(shop, listener=heard)
    here = live.predict_to(tmp_path / "here", at=AT)
    there = live.predict_to(tmp_path / "there", at=AT, on=on)
    assert [path.read_bytes() for path in there.paths] == [path.read_bytes() for path in here.paths]


@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_gives_the_same_bytes(
    cluster: Any, models: dict[str, TrainedModel], shop: Database, tmp_path: Path
) -> None:
    assert cluster is not None
    live = models["both"].on(shop, listener=Heard())
    here = live.predict_to(tmp_path / "here", at=AT)
    there = live.predict_to(tmp_path / "there", at=AT, on="ray")
    assert [path.read_bytes() for path in there.paths] == [path.read_bytes() for path in here.paths]


def test_what_is_there_is_not_made_again(
    models: dict[str, TrainedModel], shop: Database, tmp_path: Path
) -> None:
    live = models["network"].on(shop, listener=Heard())
    first = live.predict_to(tmp_path, at=AT)
    before = [path.read_bytes() for path in first.paths]
    first.paths[1].unlink()  # as if the job had been stopped
    content = bytearray(before[2])
    content[60] ^= 1
    first.paths[2].write_bytes(content)
    again = live.predict_to(tmp_path, at=AT)
    assert [path.read_bytes() for path in again.paths] == before
    assert again.num_new == sum(pq.read_metadata(path).num_rows for path in first.paths[1:3])
    assert live.predict_to(tmp_path, at=AT).num_new == 0


def test_another_question_finds_nothing_done(
    models: dict[str, TrainedModel], shop: Database, tmp_path: Path
) -> None:
    """Another model, another time, another coverage, other rows: all files are made again."""
    live = models["network"].on(shop, listener=Heard())
    num = live.predict_to(tmp_path, everyone=True, at=AT).num_rows
    assert live.predict_to(tmp_path, everyone=True, at=AT).num_new == 0
    assert live.predict_to(tmp_path, everyone=True, at=AT, coverage=0.5).num_new == num
    assert live.predict_to(tmp_path, everyone=True, at="2023-09-02", coverage=0.5).num_new == num
    other = models["trees"].on(shop, listener=Heard())
    assert other.predict_to(tmp_path, everyone=True, at="2023-09-02", coverage=0.5).num_new == num


def test_files_of_a_longer_list_are_not_mixed_in(
    models: dict[str, TrainedModel], shop: Database, tmp_path: Path
) -> None:
    live = models["trees"].on(shop, listener=Heard())
    paths = live.predict_to(tmp_path, at=AT).paths
    keys = pq.read_table(paths[0]).column(0).to_pylist()
    with pytest.raises(UsageError, match=r"C08.*files of another question \(part-000001.parquet\)"):
        live.predict_to(tmp_path, keys[:3], at=AT)


def test_shards_have_one_time(models: dict[str, TrainedModel], shop: Database, tmp_path: Path) -> None:
    live = models["trees"].on(shop, listener=Heard())
    with pytest.raises(UsageError, match="one time"):
        live.predict_to(tmp_path, ["C17", "C30"], at=[AT, "2023-09-02"])


def test_the_command(models: dict[str, TrainedModel], tmp_path: Path) -> None:
    folder = write_shop(tmp_path / "shop")
    out, run = tmp_path / "scores", str(models["trees"].folder)
    asked = ["predict", run, str(folder), "--at", AT, "--json"]
    done = CliRunner().invoke(app, [*asked, "--out", str(out), "--on", "local:1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == told["new"] == sum(pq.read_metadata(path).num_rows for path in told["files"])
    assert pa.concat_tables([pq.read_table(path) for path in told["files"]]).num_rows == told["rows"]
    for wrong in (
        ["--on", "local"],
        ["--out", str(out), "--top", "3"],
        ["--out", str(out), "--abstain", "0.1"],
    ):
        with pytest.raises(UsageError, match="C02"):
            CliRunner().invoke(app, [*asked, *wrong], catch_exceptions=False)
