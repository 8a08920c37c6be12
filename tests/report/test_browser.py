"""The page in a real browser: it says nothing wrong, fetches nothing, and can be searched, sorted, read and printed."""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quartet.runs import TrainedModel
from tests.browser import CHROMIUM, Tab, browser
from tests.report.small import NAMES, SCRIPT, shop_model
from tests.trained import Heard

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

CELLS = (
    "[...people.tBodies[0].rows].filter(row => !row.hidden)"
    ".map(row => [...row.cells].map(cell => cell.textContent.trim()))"
)
KEY = {"Enter": "\r", "Tab": "\t"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def model(folder: Path) -> TrainedModel:
    return shop_model(folder)


@pytest.fixture(scope="module")
def page(model: TrainedModel, folder: Path) -> Path:
    return model.report(folder / "page.html", listener=Heard())


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[Tab]:
    with browser(folder) as tab:
        yield tab


@pytest.fixture
def tab(opened: Tab, page: Path) -> Tab:
    opened.messages.clear()
    opened.requests.clear()
    opened.refused.clear()
    opened.show(page)
    return opened


def press(tab: Tab, key: str) -> None:
    about = {"key": key, "code": key, "windowsVirtualKeyCode": {"Enter": 13, "Tab": 9}[key]}
    tab.ask("Input.dispatchKeyEvent", type="keyDown", text=KEY[key], **about)
    tab.ask("Input.dispatchKeyEvent", type="keyUp", **about)


def cells(tab: Tab, place: int) -> list[str]:
    shown: list[list[str]] = tab.run(CELLS)
    return [row[place] for row in shown]


def test_it_is_quiet_and_asks_for_nothing(tab: Tab, page: Path) -> None:
    """Wild names of entities and of a table are on it; the policy of the page would report what they tried."""
    tab.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    tab.run("new Promise(done => setTimeout(done, 200))")
    assert tab.messages == []
    assert set(tab.requests) == {page.resolve().as_uri()}
    assert tab.run("document.scripts.length") == 1
    assert tab.run("document.images.length") == 0
    assert SCRIPT in cells(tab, 1)
    assert tab.run(
        f"[...document.querySelectorAll('svg text')].some(each => each.textContent === {SCRIPT!r})"
    )


def test_a_script_of_the_data_would_not_run(tab: Tab) -> None:
    """Even what somebody managed to put into the page is stopped by its policy."""
    tab.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}),"
        "Object.assign(new Image(), {src: 'http://example.org/x.png'}))"
    )
    tab.run("new Promise(done => setTimeout(done, 200))")
    assert tab.run("window.ran === undefined")
    assert tab.refused == ["csp"]


def test_search_finds(tab: Tab) -> None:
    before = tab.run(CELLS)

    def search(text: str) -> Any:
        tab.run(f"search.value = {text!r}; search.dispatchEvent(new Event('input'))")
        return tab.run(CELLS)

    wanted = [row for row in before if row[1].startswith("Person Ba")]
    assert 0 < len(wanted) < len(before)
    assert search("ba PERSON") == wanted  # all words, in any order
    assert tab.run("shown.textContent") == f"{len(wanted)} of {len(before)}"
    assert [row[1] for row in search(SCRIPT)] == [SCRIPT]
    assert search("nobody is called so") == []
    assert search("") == before


def test_headings_sort(tab: Tab) -> None:
    heads = tab.run("[...people.tHead.rows[0].cells].map(head => head.dataset.name)")
    score, name = heads.index("score"), heads.index("name")

    def sorts() -> dict[str, str]:
        told: list[str] = tab.run(
            "[...people.tHead.rows[0].cells].map(head => head.getAttribute('aria-sort'))"
        )
        return {key: value for key, value in zip(heads, told, strict=True) if value not in ("none", None)}

    values = "[...people.tBodies[0].rows].map(row => +row.cells[{}].dataset.value)"
    highest_first = tab.run(values.format(score))
    assert highest_first == sorted(highest_first, reverse=True)
    assert sorts() == {"score": "descending"}
    tab.run(f"people.tHead.rows[0].cells[{score}].querySelector('button').click()")
    assert tab.run(values.format(score)) == sorted(highest_first)
    assert sorts() == {"score": "ascending"}
    tab.run(f"people.tHead.rows[0].cells[{name}].querySelector('button').focus()")
    press(tab, "Enter")
    assert sorts() == {"name": "ascending"}
    names = [each for each in cells(tab, name) if each.startswith("Person")]
    assert names == sorted(names)
    press(tab, "Enter")
    assert sorts() == {"name": "descending"}
    assert [each for each in cells(tab, name) if each.startswith("Person")] == names[::-1]


def test_the_table_is_downloaded_as_it_is(tab: Tab, model: TrainedModel, folder: Path) -> None:
    tab.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    tab.run("document.getElementById('download').click()")
    path = folder / f"{model.record.name.replace('&', '_')}.csv"
    for _ in range(50):
        found = [each for each in folder.glob("*.csv") if each.stat().st_size]
        if found:
            path = found[0]
            break
        tab.run("new Promise(done => setTimeout(done, 100))")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    scores = model.on(model.task.full_database, listener=Heard()).predict().top().table
    assert [float(row["score"]) for row in rows] == scores["score"].to_pylist()
    assert [row["customer"] for row in rows] == scores["customer"].to_pylist()
    wanted = [f"'{name}" if name.startswith("=") else name for name in scores["name"].to_pylist()]
    assert [row["name"] for row in rows] == wanted
    assert "'=1+1" in wanted  # which no spreadsheet takes for a formula
    assert len(set(NAMES) & set(wanted)) >= 3
    assert {row["time"] for row in rows} == {str(scores["time"][0].as_py())}


def test_pictures_tell_what_is_pointed_at(tab: Tab) -> None:
    tab.run(
        "bar = document.querySelector('#data svg g rect'); bar.scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    box = tab.run("(b => ({x: b.x + b.width / 2, y: b.y + b.height - 1}))(bar.getBoundingClientRect())")
    assert tab.run("hint.hidden")
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", **box)
    assert not tab.run("hint.hidden")
    assert "orders, from 2023" in tab.run("hint.textContent")
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert tab.run("hint.hidden")


def test_the_keyboard_shows_where_it_is(tab: Tab) -> None:
    seen = []
    for _ in range(40):
        press(tab, "Tab")
        told = tab.run(
            "(e => [e.tagName, getComputedStyle(e).outlineStyle, getComputedStyle(e).outlineWidth])"
            "(document.activeElement)"
        )
        if told[0] == "BODY":
            break
        seen.append(tuple(told))
    assert {style for _, style, _ in seen} == {"solid"}
    assert {width for *_, width in seen} == {"3px"}
    assert {"A", "INPUT", "BUTTON", "SUMMARY"} <= {tag for tag, *_ in seen}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_theme_is_shown(tab: Tab, page: Path, scheme: str) -> None:
    tab.show(page, scheme)
    ground, ink, drawn = tab.run(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        "getComputedStyle(document.querySelector('#answer svg text')).fill]"
    )
    is_light = ground == "rgb(255, 255, 255)"
    assert is_light == (scheme == "light")
    assert drawn == ink != ground
    assert tab.messages == []


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_is_wider_than_the_window(tab: Tab, page: Path, width: int) -> None:
    """On a small screen tables scroll by themselves, and the page does not."""
    tab.show(page, width=width)
    assert tab.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints(tab: Tab, page: Path, scheme: str) -> None:
    """On paper it is dark on white, whatever the theme, and no table is wider than the page."""
    tab.show(page, scheme, width=700)
    tab.ask(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    try:
        assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.run("Math.max(...[...document.querySelectorAll('table')].map(t => t.scrollWidth))") <= 700
    finally:
        tab.ask("Emulation.setEmulatedMedia", media="")
    printed = base64.b64decode(tab.ask("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")
    assert tab.messages == []


def test_browsers_without_scripts_show_it_too(tab: Tab, page: Path) -> None:
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.show(page)
        assert tab.messages == []
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)
