"""Curves, calibration and contexts as pictures: they hold what they show, whatever the numbers and names."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quartet.config import SamplingConfig
from quartet.drawing import Bin, curves_svg, reliability_svg, rendered, seed_svg, svg
from quartet.drawing.terminal import cell, new_grid
from quartet.errors import UsageError
from quartet.graph import TemporalGraph
from quartet.training import Epoch
from tests.drawing.inert import ATTACKS, SVG, is_inert
from tests.strategies import examples
from tests.trained import churn

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def epochs(values: list[tuple[float, float]]) -> list[Epoch]:
    return [Epoch(n, loss, value, 0.0, 0.0, n == 0) for n, (loss, value) in enumerate(values)]


@examples(50)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20), st.sampled_from(ATTACKS))
def test_any_run_has_curves(values: list[tuple[float, float]], metric: str) -> None:
    picture = curves_svg(epochs(values), metric)
    assert is_inert(picture)
    root = ET.fromstring(picture)
    lines = [line.attrib["points"].split() for line in root.iter(f"{SVG}polyline")]
    assert [len(line) for line in lines if line] == [len(values)] * 2
    assert len(list(root.iter(f"{SVG}circle"))) == 1  # the chosen epoch
    assert "nan" not in picture


@examples(50)
@given(st.lists(st.builds(Bin, st.floats(0, 1), st.floats(0, 1), st.integers(1, 99)), max_size=10))
def test_any_calibration_has_a_picture(bins: list[Bin]) -> None:
    picture = reliability_svg(bins, "came true")
    assert is_inert(picture)
    assert len(list(ET.fromstring(picture).iter(f"{SVG}circle"))) == len(bins)


@examples(200)
@given(numbers, numbers)
@example(3e25, 3e25)
def test_ticks_are_few_round_and_inside(one: float, other: float) -> None:
    low, high = svg.ends([one, other])
    assert low < high
    ticks = svg.ticks(low, high)
    slack = 1e-6 * (high - low) + 1e-12
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert len(ticks) <= 6
    assert all(math.isfinite(tick) for tick in ticks)


def test_a_seed_is_drawn_with_both_samplers() -> None:
    task = churn()
    graph, config = TemporalGraph.build(task.database), SamplingConfig(local_budget=20)
    picture = seed_svg(task, graph, config, 3)
    assert is_inert(picture)
    texts = " ".join(element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text"))
    for word in ("CRW", "BFS2", "customers", "orders", "churn"):
        assert word in texts
    assert len(list(ET.fromstring(picture).iter(f"{SVG}polygon"))) == 2  # a star in each panel
    for wrong in (-1, len(task.seeds("train"))):
        with pytest.raises(UsageError, match=r"C02.*no training seed"):
            seed_svg(task, graph, config, wrong)


@pytest.mark.parametrize("attack", ATTACKS)
def test_texts_of_pictures_and_tables_are_inert(attack: str) -> None:
    plain = attack.encode("utf-8", "replace").decode()
    assert is_inert(svg.page(10, 10, [svg.text(0, 0, plain)]))
    grid = new_grid(f"[red]{plain}", f"[link=x]{plain}")
    grid.add_row(cell(f"[bold]{plain}"))
    text = rendered(grid)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert all(mark in text for mark in ("[red]", "[link=x]", "[bold]"))
