"""The page on queries tells the truth: its queries and commands run, and its codes are those of the errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quartet.database import Database
from quartet.tasks import check_labels
from tests.pages import ROOT, blocks, commands, run, with_examples
from tests.tasks.query.cases import CASES, SAID

PAGE = ROOT / "docs" / "query.md"


def test_the_queries_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_examples(tmp_path, monkeypatch)
    [make, show, ask] = commands(PAGE)
    run(make, monkeypatch)
    run(show, monkeypatch)
    printed = capsys.readouterr().out
    for line in blocks(PAGE, "text")[0][1].splitlines():
        assert line in re.sub(r" +$", "", printed, flags=re.MULTILINE), line
    run([*ask[:-2], "--model", "lightgbm"], monkeypatch)
    database = Database.load("shop.sqlite")
    queries = [query for _, block in blocks(PAGE, "pql") for query in block.strip().split("\n\n")]
    assert len(queries) == 10
    for query in queries:
        task = database.query(query)
        if task.spec.type != "recommendation":
            check_labels(task)
        assert len(task.seeds("train"))


def test_the_table_of_stored_tasks_has_the_queries_that_are_tested() -> None:
    said = {task.query for task in SAID}
    shown = [
        query
        for query in re.findall(r"`(PREDICT [^`…]+)`", PAGE.read_text(encoding="utf-8"))
        if "shop" not in query
    ]
    assert len(shown) >= 9
    for query in shown:
        assert query in said, query


def test_every_code_is_on_the_page() -> None:
    codes = set(re.findall(r"^\| (Q\d\d) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert codes == {case[1] for case in CASES} | {"Q09"}
    assert all(re.search(rf'"{code}"', source) for code in codes for source in [_sources()])


def _sources() -> str:
    files = [*(ROOT / "quartet" / "tasks").rglob("*.py")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)
