"""The figures of a study: what they show, and that nothing in them can run, whatever the names (P29)."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.paper import STUDIES, Result, StudyName, study_figures
from tests.paper.results import result, results
from tests.strategies import examples

SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "rect", "line", "circle", "path", "polyline", "text"}


def pictures(study: StudyName, rows: list[Result]) -> dict[str, ET.Element]:
    return {stem: ET.fromstring(svg) for stem, svg in study_figures(study, rows).items()}


def texts(picture: ET.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def count(picture: ET.Element, tag: str, **attributes: str) -> int:
    wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
    return sum(wanted.items() <= element.attrib.items() for element in picture.iter(f"{SVG}{tag}"))


def check(picture: ET.Element) -> None:
    """Nothing can run, and nothing stands outside of the page."""
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for element in picture.iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS
        assert not any(name.startswith("on") or "href" in name for name in element.attrib)
        for names, end in ((("x", "x1", "x2", "cx"), width), (("y", "y1", "y2", "cy"), height)):
            assert all(0 <= float(element.attrib.get(name, 0)) <= end for name in names)
        for point in element.attrib.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


@pytest.mark.parametrize("study", STUDIES)
def test_each_study_has_its_picture_and_learning_curves(study: StudyName) -> None:
    rows = [
        result(arm.name, seed, 0.7 + 0.01 * place - 0.02 * seed, study=study, curve=(0.6, 0.7, 0.65), **words)  # type: ignore[arg-type]
        for words in ({}, {"task": "driver-dnf"}, {"task": "driver-position", "metric": "mae"})
        for place, arm in enumerate(STUDIES[study])
        for seed in range(3)
    ]
    drawn = pictures(study, rows)
    own = "heat" if study == "ablation" else "dots"
    assert list(drawn) == [own, "curves-driver-top3", "curves-driver-dnf", "curves-driver-position"]
    for picture in drawn.values():
        check(picture)


def test_dots_have_a_row_for_each_arm_and_a_hollow_mark_for_the_paper() -> None:
    rows = [*results("QUARTET", [0.8, 0.82, 0.84]), result("LightGBM", 0, 0.7), result("HGT", 0, math.nan)]
    picture = pictures("main", rows)["dots"]
    assert [text for text in texts(picture) if "n=" in text] == ["0.820, n=3", "0.700, n=1"]
    assert "HGT" not in texts(picture)
    assert count(picture, "path") == 1  # the paper has QUARTET, not LightGBM
    assert count(picture, "circle", r="2") == 4
    assert count(picture, "circle", r="4.5") == 2
    assert count(picture, "line", stroke_width="2") == 1  # one run has no interval


def test_an_interval_is_drawn_to_scale() -> None:
    """0.82 ± 4.303 · 0.02 / √3 beside its runs: the scale that the runs give is that of the interval."""
    picture = pictures("main", results("QUARTET", [0.80, 0.82, 0.84]))["dots"]
    small = [float(dot.attrib["cx"]) for dot in picture.iter(f"{SVG}circle") if dot.attrib["r"] == "2"]
    (bar,) = (line.attrib for line in picture.iter(f"{SVG}line") if line.attrib["stroke-width"] == "2")
    ratio = (float(bar["x2"]) - float(bar["x1"])) / (small[2] - small[0])
    assert ratio == pytest.approx(4.303 / math.sqrt(3), abs=0.02)


def test_what_validation_selects_is_marked() -> None:
    capacity = [("Z=16, R=128", 0.9, 0.5), ("Z=32, R=128", 0.7, 0.6)]
    rows = [result(arm, 0, test, validation, study="capacity") for arm, test, validation in capacity]
    shown = texts(pictures("capacity", rows)["dots"])
    assert "Z=32, R=128 ●" in shown
    assert "Z=16, R=128" in shown


@pytest.mark.parametrize(("metric", "colour"), [("roc_auc", "#2166ac"), ("mae", "#b2182b")])
def test_heat_is_blue_where_the_model_is_better_without_a_part(metric: str, colour: str) -> None:
    words = {"study": "ablation", "metric": metric, "task": "new"}
    rows = [
        *results("full", [1.0, 1.0], **words),
        *results("no local", [1.2, 1.2], **words),
        *results("no CRW", [1.0, 1.002], **words),
    ]
    picture = pictures("ablation", rows)["heat"]
    assert count(picture, "rect", fill=colour) == 1
    assert [text for text in texts(picture) if text[:1] in "+−"] == ["+20.0*", "+0.1"]


def test_the_papers_row_of_the_heat_table_is_below_ours() -> None:
    rows = [result(arm.name, 0, 0.7, study="ablation") for arm in STUDIES["ablation"]]
    shown = texts(pictures("ablation", rows)["heat"])
    first = shown.index("paper") + 1
    assert shown[first : first + 9] == [
        "−16.9", "−7.0", "−3.5", "−8.9", "−4.0", "−4.5", "−3.7", "−1.3", "−3.2",
    ]  # fmt: skip


def test_learning_curves_have_a_line_for_each_run_and_their_mean() -> None:
    rows = [
        result("QUARTET", 0, 0.8, curve=(0.5, 0.7, 0.6)),
        result("QUARTET", 1, 0.8, curve=(0.5, 0.6)),
        result("RelGT", 0, 0.8, curve=(0.4, 0.8)),
        result("HGT", 0, 0.8, curve=()),
        result("RGP", 0, 0.8, curve=(0.5, math.nan)),
    ]
    picture = pictures("main", rows)["curves-driver-top3"]
    lines = [
        (len(line.attrib["points"].split()), line.attrib["stroke-width"], "stroke-dasharray" in line.attrib)
        for line in picture.iter(f"{SVG}polyline")
    ]
    assert lines == [
        (3, "0.8", False), (2, "0.8", False), (2, "2.5", False),  # QUARTET: the mean ends with the shorter run
        (2, "0.8", False), (2, "1.5", True), (2, "2.5", False),  # RelGT, and QUARTET's mean dashed
    ]  # fmt: skip


@pytest.mark.parametrize(("metric", "epoch"), [("roc_auc", 1), ("mae", 2)])
def test_the_selected_epoch_has_a_dot(metric: str, epoch: int) -> None:
    rows = [result("QUARTET", 0, 0.8, metric=metric, curve=(0.5, 0.9, 0.3))]
    picture = pictures("main", rows)["curves-driver-top3"]
    thin = next(picture.iter(f"{SVG}polyline")).attrib["points"].split()
    (dot,) = (element.attrib for element in picture.iter(f"{SVG}circle"))
    assert thin[epoch] == f"{dot['cx']},{dot['cy']}"


def test_a_single_epoch_can_be_drawn_and_none_need_be() -> None:
    check(pictures("main", [result("QUARTET", 0, 0.8, curve=(0.5,))])["curves-driver-top3"])
    assert study_figures("main", []) == {}
    assert study_figures("main", [result("QUARTET", 0, math.nan)]) == {}


def test_stems_are_file_names_and_no_two_are_the_same() -> None:
    tasks = ("../../etc/x", "..\\..\\etc x", "a" * 300)
    rows = [result("QUARTET", 0, 0.5, task=task, curve=(0.5,)) for task in tasks]
    rows.append(result("QUARTET", 0, 0.5, task=tasks[0], preset="paper", curve=(0.5,)))
    assert list(study_figures("main", rows)) == [
        "dots", "curves--etc-x", "curves--etc-x-2", "curves-" + "a" * 53, "curves--etc-x-3",
    ]  # fmt: skip


@given(st.sampled_from(list(STUDIES)), st.text(max_size=12), st.text(max_size=12))
@examples(20)
def test_no_name_can_run_or_break_a_picture(study: StudyName, task: str, arm: str) -> None:
    name = f'{task}"><script>alert(1)</script>'
    known = STUDIES[study][0].name
    rows = [result(one, 0, 0.6, study=study, task=name, curve=(0.5, 0.6)) for one in (known, arm)]
    for picture in pictures(study, rows).values():
        check(picture)
