"""The page itself: whatever the data hold stays text, nothing is fetched, and everybody can read it."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from quartet.drawing.svg import INK
from quartet.report import render
from quartet.report.page import MOST_BYTES, fitted, gather
from tests.drawing.inert import ATTACKS
from tests.report.small import SCRIPT, Node, read_page, shop_model
from tests.strategies import examples
from tests.trained import KINDS, Heard


class Context(dict[str, Any]):
    """What a page tells, of few words where a test names it."""

    def __repr__(self) -> str:
        return "Context"


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.sampled_from([SCRIPT, *ATTACKS])


@pytest.fixture(scope="module", params=KINDS)
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Context:
    model = shop_model(tmp_path_factory.mktemp("page"), request.param)
    database = model.task.full_database
    model.keep(model.on(database, listener=Heard()).predict(at="2023-09-01"))
    model.evaluate_said(database, listener=Heard())
    return Context(gather([model], None, listener=Heard()))


def page_of(context: Context) -> Node:
    return read_page(render(context))[0]


def with_text(value: Any, text: str) -> Any:
    """Returns what a page tells with each text in it another one; pictures, and what the template asks for, stay."""
    if isinstance(value, str):
        return (
            value
            if isinstance(value, Markup) or value in ("model", "member", "rule", "calibrated", "score")
            else text
        )
    if isinstance(value, dict):
        return {key: with_text(each, text) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(with_text(each, text) for each in value)
    return value


@examples(20)
@given(text=TEXT)
def test_any_text_is_inert(context: Context, text: str) -> None:
    """Whatever stands in cells and names, the page has the same elements with the same attributes."""
    _, expected = read_page(render(with_text(context, "plain")))
    page, shape = read_page(render(with_text(context, text)))
    assert shape == expected
    assert all(letter.isprintable() or letter == "\n" for letter in page.text)
    assert len(page.all("script")) == 1


def test_names_of_tables_and_entities_stay_text(context: Context) -> None:
    page = page_of(context)
    assert SCRIPT in page.all("table", id="people")[0].text
    assert any(SCRIPT in picture.text for picture in page.all("svg"))  # a table of the schema
    assert [node.tag for node in page.all("script")] == ["script"]
    assert not page.all("img")
    assert not page.all("b")


def test_what_was_said_is_told_with_what_came(context: Context) -> None:
    [section] = page_of(context).all("section", id="said")
    assert re.search(r"(\d+) of \1 predictions have a label by now", section.text)
    assert "2023-09-01" in section.text
    page = read_page(render({**context, "said": None}))[0]
    assert not page.all("section", id="said")


def test_nothing_is_fetched(context: Context) -> None:
    text = render(context)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text.replace("url(#tip)", "")
    page = page_of(context)
    for tag in ("iframe", "object", "embed", "form", "base", "video", "audio"):
        assert not page.all(tag)
    nodes = [node for tag in ("a", "link", "img", "script") for node in page.all(tag)]
    assert {node.attributes.get("src") for node in nodes} == {None}
    for node in nodes:
        assert node.attributes.get("href", "#").startswith(("#", "data:,"))
    [policy] = [node for node in page.all("meta") if "http-equiv" in node.attributes]
    assert policy.attributes["content"].startswith("default-src 'none';")


def test_everybody_can_read_it(context: Context) -> None:
    page = page_of(context)
    assert page.all("html")[0].attributes["lang"] == "en"
    levels = [int(tag[1]) for tag in re.findall(r"<(h[1-6])\b", render(context))]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for node in page.all("th"):
        assert node.attributes["scope"] in ("col", "row")
        assert node.text
    assert all(table.all("caption") for table in page.all("table"))
    for picture in page.all("svg"):
        assert picture.attributes["role"] == "img"
        assert picture.inside[0].tag == "title"
        assert picture.inside[1].tag == "desc"
    labels = {node.attributes["for"] for node in page.all("label")}
    assert {node.attributes["id"] for node in page.all("input")} == labels
    names = {
        node.attributes["id"]
        for tag in ("section", "h2", "table")
        for node in page.all(tag)
        if "id" in node.attributes
    }
    links = {node.attributes["href"].removeprefix("#") for node in page.all("a")}
    named = {node.attributes[key] for node in page.all("section") for key in ("id", "aria-labelledby")}
    assert links | named <= names
    sorted_by = [
        node.attributes.get("aria-sort") for node in page.all("table", id="people")[0].all("th", scope="col")
    ]
    assert sorted_by.count("descending") == (1 if context["who"]["is_ranked"] else 0)
    ids = re.findall(r'\bid="([^"]+)"', render(context))
    assert len(ids) == len(set(ids))


def test_a_long_table_is_cut_and_says_so(context: Context) -> None:
    row = context["who"]["rows"][0]
    many = {**context, "who": {**context["who"], "rows": [row] * 1000, "num_all": 123_456}}
    long = {**row, "reasons": ["an unusually long reason " * 20] * 3}
    many["who"] |= {"rows": [long] * 1000, "has_reasons": True}
    text = fitted(many)
    assert len(text.encode()) <= MOST_BYTES
    page, _ = read_page(text)
    num = len(page.all("table", id="people")[0].all("tbody")[0].all("tr"))
    assert 100 < num < 1000
    assert f"{num:,} of 123,456 are here" in page.all("section", id="who")[0].text


def test_no_text_and_no_number_of_classes_makes_it_too_large(context: Context) -> None:
    """Letters are cut where nobody reads on, and of very many classes no table is shown."""
    text = fitted(Context(with_text(context, "long " * 100_000)))
    assert len(text.encode()) <= MOST_BYTES
    assert "long …" in text or "long…" in text
    answer = context["evaluations"][0]
    names = [f"class {number}" for number in range(400)]
    wide = {**answer, "classes": names, "confusion": [[7] * 400] * 400}
    page, _ = read_page(text := fitted(Context({**context, "evaluations": [wide]})))
    assert len(text.encode()) <= MOST_BYTES
    assert "What came (down)" not in page.text
    assert "400 classes" in page.all("section", id="answer")[0].text
    assert page.all("table", id="people")[0].all("tbody")[0].all("tr")


# --- colours ------------------------------------------------------------------------------------------


def themes() -> dict[str, dict[str, str]]:
    style = (files("quartet.report") / "page.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{([^}]+)\}", style)
    )
    return {"light": light, "dark": light | dark}


def luminance(color: str) -> float:
    """The relative luminance of the Web Content Accessibility Guidelines."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(theme: str) -> None:
    colors = themes()[theme]
    assert len(colors) == 7
    for text in ("ink", "grey", "line", "mark"):
        for ground in ("ground", "panel"):
            assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_pictures_follow_the_theme(context: Context) -> None:
    """Each colour of a picture has a name in the themes: nothing is drawn black on black."""
    text = render(context)
    for picture in re.findall(r"<svg .*?</svg>", text, re.DOTALL):
        for color in re.findall(r'(?:fill|stroke)="([^"]+)"', picture):
            assert color in ("none", "transparent") or f'svg [fill="{color}"]{{fill:var(--' in text, color
    assert f'svg [stroke="{INK}"]{{stroke:var(--ink)}}' in text


def test_the_page_is_in_the_package() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"report/page.*"' in project
    for name in ("page.html.jinja", "page.css", "page.js"):
        assert (files("quartet.report") / name).is_file()
