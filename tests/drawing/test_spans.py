"""Pictures of time and size hold what they show, whatever the numbers and names."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from quartet.drawing import Lane, Span, bars_svg, hits_svg, steps_svg, timeline_svg
from quartet.drawing.spans import time_ticks
from tests.drawing.inert import ATTACKS, SVG, is_inert
from tests.strategies import examples

times = st.integers(-(2**62), 2**62)
words = st.sampled_from([*ATTACKS, "orders"]).map(lambda text: text.encode("utf-8", "replace").decode())
lanes = st.builds(Lane, words, words, st.lists(st.integers(0, 10**9), max_size=60).map(tuple))
numbers = st.floats(-1e6, 1e6, allow_nan=False)


def places(picture: str) -> list[tuple[float, float]]:
    """Returns where each bar begins and ends."""
    bars = [bar for group in ET.fromstring(picture).iter(f"{SVG}g") for bar in group.iter(f"{SVG}rect")]
    return [(float(b.attrib["x"]), float(b.attrib["x"]) + float(b.attrib["width"])) for b in bars]


@examples(60)
@given(st.lists(lanes, max_size=4), st.lists(times, min_size=5, max_size=5), words)
def test_any_time_has_a_line(counted: list[Lane], drawn: list[int], name: str) -> None:
    low, first, last, ends, high = sorted(drawn)
    picture = timeline_svg(low, high, counted, [Span(name, name, first, last, ends)], name)
    assert is_inert(picture)
    assert "nan" not in picture
    assert len(places(picture)) == sum(count > 0 for lane in counted for count in lane.counts) + 2
    assert all(-1 <= begin <= end <= 730 for begin, end in places(picture))


@examples(100)
@given(times, times)
def test_ticks_of_time_are_few_and_inside(one: int, other: int) -> None:
    low, high = sorted((one, other))
    ticks = time_ticks(low, high)
    assert all(low <= tick <= high for tick in ticks)
    assert ticks == sorted(ticks)
    assert 1 <= len(ticks) <= 8


@examples(60)
@given(st.lists(st.tuples(words, numbers, words), max_size=8))
def test_bars_have_the_length_of_their_numbers(rows: list[tuple[str, float, str]]) -> None:
    picture = bars_svg(rows, "effects")
    assert is_inert(picture)
    found = places(picture)
    assert len(found) == len(rows)
    largest = max((abs(size) for _, size, _ in rows), default=0.0)
    sides = {
        round(begin if size >= 0 else end, 0) for (begin, end), (_, size, _) in zip(found, rows, strict=True)
    }
    assert len(sides) <= 2  # all begin at zero, up to rounding
    for (begin, end), (_, size, _) in zip(found, rows, strict=True):
        widest = max(stop - start for start, stop in found)
        assert abs((end - begin) - widest * abs(size) / (largest or 1)) <= 2.0 or not largest


@examples(40)
@given(st.lists(st.integers(0, 1), max_size=40))
def test_hits_reach_all_in_the_end(outcomes: list[int]) -> None:
    counts = [(place, float(sum(outcomes[:place]))) for place in range(len(outcomes) + 1)]
    picture = hits_svg(counts, "found")
    assert is_inert(picture)
    assert "nan" not in picture
    assert is_inert(hits_svg([], "found"))


@examples(40)
@given(st.lists(st.tuples(words, numbers), max_size=12))
def test_steps_have_a_point_each(drawn: list[tuple[str, float]]) -> None:
    picture = steps_svg([name for name, _ in drawn], [value for _, value in drawn], "effect")
    assert is_inert(picture)
    assert len(list(ET.fromstring(picture).iter(f"{SVG}circle"))) == len(drawn)
