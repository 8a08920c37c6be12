"""The pictures of a study: what they show, and that nothing in them can run, whatever the names (P29)."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.paper import Result, Study, study_figures
from quartet.paper.arms import STUDIES
from tests.paper.test_tables import run, runs
from tests.strategies import examples

SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "title", "rect", "line", "circle", "path", "polyline", "text"}
ATTRIBUTES = {
    "width", "height", "viewBox", "font-family", "font-size", "fill", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy",
    "r", "d", "points", "stroke", "stroke-width", "stroke-dasharray", "text-anchor",
}  # fmt: skip


def pictures(study: Study, results: list[Result]) -> dict[str, ET.Element]:
    return {stem: ET.fromstring(svg) for stem, svg in study_figures(study, results).items()}


def texts(picture: ET.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def whole(study: Study, **words: object) -> list[Result]:
    return [
        run(arm.name, seed, 0.7 + 0.01 * place - 0.02 * seed, study=study, history=(0.6, 0.7, 0.65), **words)  # type: ignore[arg-type]
        for place, arm in enumerate(STUDIES[study])
        for seed in range(3)
    ]


def check_inert(picture: ET.Element) -> None:
    for element in picture.iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS
        assert set(element.attrib) <= ATTRIBUTES


def check_on_page(picture: ET.Element) -> None:
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for element in picture.iter():
        for name, end in (
            ("x", width),
            ("x1", width),
            ("x2", width),
            ("cx", width),
            ("y", height),
            ("cy", height),
        ):
            assert 0 <= float(element.attrib.get(name, 0)) <= end
    for line in picture.iter(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


@pytest.mark.parametrize(
    ("study", "stem"), [("main", "dots"), ("sampler", "bars"), ("ablation", "heat"), ("capacity", "dots")]
)
def test_each_study_has_its_picture_and_learning_curves(study: Study, stem: str) -> None:
    results = [
        *whole(study),
        *whole(study, task="driver-dnf"),
        *whole(study, task="driver-position", metric="mae"),
    ]
    found = pictures(study, results)
    assert list(found) == [stem, "curves-driver-top3", "curves-driver-dnf", "curves-driver-position"]
    for picture in found.values():
        assert float(picture.attrib["width"]) <= 720
        check_inert(picture)
        check_on_page(picture)


def test_dots_have_a_row_for_each_arm_and_a_hollow_mark_for_the_paper() -> None:
    results = [*runs("QUARTET", [0.8, 0.82, 0.84]), run("LightGBM", 0, 0.7), run("HGT", 0, math.nan)]
    picture = pictures("main", results)["dots"]
    shown = texts(picture)
    assert shown[0] == "rel-f1/driver-top3: test roc_auc ↑"
    assert [text for text in shown if "n=" in text] == ["0.820, n=3", "0.700, n=1"]
    assert "HGT" not in shown
    assert len(list(picture.iter(f"{SVG}path"))) == 1  # the paper has QUARTET, not LightGBM
    dots = [element.attrib["r"] for element in picture.iter(f"{SVG}circle")]
    assert (dots.count("2"), dots.count("4.5")) == (4, 2)
    bars = [line for line in picture.iter(f"{SVG}line") if line.attrib["stroke-width"] == "2"]
    assert len(bars) == 1  # one run has no interval


def test_an_interval_is_drawn_to_scale() -> None:
    """0.82 ± 4.303 · 0.02 / √3 beside its runs: the scale that the runs give is that of the interval."""
    picture = pictures("main", runs("QUARTET", [0.80, 0.82, 0.84]))["dots"]
    small = [float(dot.attrib["cx"]) for dot in picture.iter(f"{SVG}circle") if dot.attrib["r"] == "2"]
    (bar,) = (line.attrib for line in picture.iter(f"{SVG}line") if line.attrib["stroke-width"] == "2")
    ratio = (float(bar["x2"]) - float(bar["x1"])) / (small[2] - small[0])
    assert ratio == pytest.approx(4.303 / math.sqrt(3), abs=0.02)


def test_what_validation_selects_is_marked_among_the_capacities() -> None:
    results = [run("Z=16, R=128", 0, 0.9, 0.5, "capacity"), run("Z=32, R=128", 0, 0.7, 0.6, "capacity")]
    shown = texts(pictures("capacity", results)["dots"])
    assert "Z=32, R=128 ●" in shown
    assert "Z=16, R=128" in shown


def test_bars_stand_from_chance_to_their_mean() -> None:
    results = [
        *runs("BFS2, L=1", [0.6, 0.6], study="sampler"),
        *runs("CRW, L=1", [0.7, 0.7], study="sampler", validation=0.6),
        run("CRW, L=4", 0, 0.9, 0.5, "sampler"),
    ]
    picture = pictures("sampler", results)["bars"]
    heights = [float(bar.attrib["height"]) for bar in picture.iter(f"{SVG}rect")][1:]
    assert heights[1] / heights[0] == pytest.approx(2, abs=0.01)
    assert heights[2] / heights[0] == pytest.approx(4, abs=0.01)
    shown = texts(picture)
    assert shown.count("● CRW") == 1
    assert shown[shown.index("● CRW") + 1 : shown.index("● CRW") + 3] == ["n=2", "0.700"]
    assert [shown.count(label) for label in ("L=1", "L=4", "L=8", "–", "0.5")] == [1, 1, 1, 3, 1]


@pytest.mark.parametrize("value", [0.4, -0.2])
def test_bars_below_chance_begin_lower(value: float) -> None:
    picture = pictures(
        "sampler", [run("CRW, L=1", 0, value, study="sampler"), run("BFS2, L=1", 0, 0.8, study="sampler")]
    )
    check_on_page(picture["bars"])
    assert all(float(bar.attrib["height"]) >= 0 for bar in picture["bars"].iter(f"{SVG}rect"))


@pytest.mark.parametrize(("metric", "is_blue"), [("roc_auc", True), ("mae", False)])
def test_heat_is_blue_where_the_model_is_better_without_a_part(metric: str, is_blue: bool) -> None:
    results = [
        *runs("full", [1.0, 1.0], study="ablation", metric=metric, task="new"),
        *runs("no local", [1.2, 1.2], study="ablation", metric=metric, task="new"),
        *runs("no CRW", [1.0, 1.002], study="ablation", metric=metric, task="new"),
    ]
    picture = pictures("ablation", results)["heat"]
    fills = [cell.attrib["fill"] for cell in picture.iter(f"{SVG}rect")][1:]
    assert fills[0] == ("#2166ac" if is_blue else "#b2182b")
    assert fills[1] == "#ffffff"
    assert [text for text in texts(picture) if text[:1] in "+−"] == ["+20.0*", "+0.1"]


def test_the_papers_row_of_the_heat_table_is_below_ours() -> None:
    shown = texts(pictures("ablation", whole("ablation"))["heat"])
    at = shown.index("paper")
    assert shown[at + 1 : at + 10] == [
        "−16.9",
        "−7.0",
        "−3.5",
        "−8.9",
        "−4.0",
        "−4.5",
        "−3.7",
        "−1.3",
        "−3.2",
    ]
    assert shown[at - 10] == "rel-f1/driver-top3 ↑"


def test_learning_curves_have_a_line_for_each_run_and_their_mean() -> None:
    results = [
        run("QUARTET", 0, 0.8, history=(0.5, 0.7, 0.6)),
        run("QUARTET", 1, 0.8, history=(0.5, 0.6)),
        run("RelGT", 0, 0.8, history=(0.4, 0.8)),
        run("HGT", 0, 0.8, history=()),
        run("RGP", 0, 0.8, history=(0.5, math.nan)),
    ]
    picture = pictures("main", results)["curves-driver-top3"]
    lines = [
        (len(line.attrib["points"].split()), line.attrib["stroke-width"], "stroke-dasharray" in line.attrib)
        for line in picture.iter(f"{SVG}polyline")
    ]
    assert lines == [
        (3, "0.8", False), (2, "0.8", False), (2, "2.5", False),  # QUARTET: the mean ends with the shorter run
        (2, "0.8", False), (2, "1.5", True), (2, "2.5", False),  # RelGT, and QUARTET's mean dashed
    ]  # fmt: skip
    assert [text for text in texts(picture) if "n=" in text] == ["QUARTET, n=2", "RelGT, n=1"]


@pytest.mark.parametrize(("metric", "epoch"), [("roc_auc", 1), ("mae", 2)])
def test_the_selected_epoch_has_a_dot(metric: str, epoch: int) -> None:
    picture = pictures("main", [run("QUARTET", 0, 0.8, metric=metric, history=(0.5, 0.9, 0.3))])[
        "curves-driver-top3"
    ]
    thin = next(picture.iter(f"{SVG}polyline")).attrib["points"].split()
    (dot,) = (element.attrib for element in picture.iter(f"{SVG}circle"))
    assert thin[epoch] == f"{dot['cx']},{dot['cy']}"


def test_a_single_epoch_can_be_drawn() -> None:
    check_on_page(pictures("main", [run("QUARTET", 0, 0.8, history=(0.5,))])["curves-driver-top3"])


def test_without_results_there_are_no_pictures() -> None:
    assert study_figures("main", []) == {}
    assert study_figures("main", [run("QUARTET", 0, math.nan)]) == {}


def test_stems_are_file_names_and_no_two_are_the_same() -> None:
    tasks = ("../../etc/x", "..\\..\\etc x", "a" * 300)
    results = [run("QUARTET", 0, 0.5, task=task, history=(0.5,)) for task in tasks]
    results.append(run("QUARTET", 0, 0.5, task=tasks[0], preset="paper", history=(0.5,)))
    assert list(study_figures("main", results)) == [
        "dots", "curves--etc-x", "curves--etc-x-2", "curves-" + "a" * 53, "curves--etc-x-3",
    ]  # fmt: skip


@given(st.sampled_from(list(STUDIES)), st.text(max_size=12), st.text(max_size=12))
@examples(40)
def test_no_name_can_run_or_break_a_picture(study: Study, task: str, arm: str) -> None:
    name = f'{task}"><script>alert(1)</script>'
    known = STUDIES[study][0].name
    results = [run(one, 0, 0.6, study=study, task=name, history=(0.5, 0.6)) for one in (known, arm)]
    for picture in pictures(study, results).values():
        check_inert(picture)
