"""Reasons on the page are those of the explanations: every effect, row, known case and change."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartet.explain import (
    Change,
    ColumnEffect,
    Curve,
    Effect,
    Explanation,
    GlobalView,
    LookAlike,
    RowEffect,
    Use,
    explain,
)
from quartet.report import render
from quartet.report.page import gather
from quartet.report.why import signed, why_part
from quartet.runs import TrainedModel
from tests.report.small import SCRIPT, Node, read_page, rows_of, shop_model
from tests.trained import TINY, TREES, Heard

DAY = 86_400 * 10**9
WILD = f"{SCRIPT} & co."
ROW = RowEffect(
    "orders", "7", WILD, 19_723 * DAY, "orders by customer", "", (("amount", "3"),), 1, -0.25, (7,)
)
MANY = RowEffect(
    "orders", "", "", 19_723 * DAY, "orders by customer", "in the last 30 days", (), 14, 0.5, (1, 2)
)
TOLD = Explanation(
    key="C1",
    name=WILD,
    time=19_723 * DAY,
    score=0.75,
    base=0.25,
    predicted="",
    parts=(
        Effect("trees", "aggregates", 0.375),
        Effect("local", "rows around it", 0.125),
        Effect("own", "nothing", 0.0),
    ),
    columns=(
        ColumnEffect("a", "orders in the last 90 days", "0", "4", 0.3125, "orders"),
        ColumnEffect("", "12 others", "", "", 0.5, ""),
        ColumnEffect("b", WILD, "x", "x", -0.125, "orders"),
    ),
    rows=(ROW, MANY),
    lookalikes=(LookAlike("C2", "Ann", 19_000 * DAY, "churned: yes", 0.9),),
    archetype="archetype 3, of 17 known cases",
    changes=(Change((MANY,), 0.375, 0.5, "without 14 orders it would be 0.375"),),
)
VIEW = GlobalView(
    200,
    0.25,
    parts=(Use("trees", "aggregates", 0.375), Use("own", "nothing", 0.0)),
    columns=(Use("a", WILD, 0.3125),),
    spans=(Use("s", "in the last 30 days", 0.5),),
    curves=(Curve("a", WILD, (0.0, 1.0), ("none", "one"), (0.125, 0.875)),),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return shop_model(tmp_path_factory.mktemp("why"))


def why_of(page: Node) -> Node:
    return page.all("section", id="why")[0]


def test_everything_that_is_told_is_shown(model: TrainedModel) -> None:
    context = gather([model], None, listener=Heard()) | {"why": why_part(VIEW, [TOLD])}
    section = why_of(read_page(render(context))[0])
    text = section.text
    for words in (
        WILD, "0.375", "0.500", "over 200 cases", "orders in the last 90 days: 0, usually 4",
        "Ann on 2022-01-08 (churned: yes)",
        "archetype 3, of 17 known cases", "without 14 orders it would be 0.375", "14 orders in the last 30 days",
    ):  # fmt: skip
        assert words in text
    assert "nothing" not in text  # a part without an effect
    facts, rows = (table for table in section.all("details")[0].all("table"))
    assert [line[-1].text for line in rows_of(facts)] == [
        "+0.312",
        "−0.125",
        "+0.500",
    ]  # what has no name comes last
    assert [line[-1].text for line in rows_of(rows)] == ["+0.500", "−0.250"]
    assert TOLD.reasons() == ["orders in the last 90 days: 0, usually 4", f"{WILD}: x"]


@pytest.mark.parametrize("recipe", [TREES, TINY], ids=["trees", "network"])
def test_reasons_are_those_of_the_explanations(recipe: object, tmp_path: Path) -> None:
    model = shop_model(tmp_path, recipe=recipe)  # type: ignore[arg-type]
    context = gather([model], None, listener=Heard())
    section = why_of(read_page(render(context))[0])
    live = model.on(model.task.full_database, listener=Heard())
    ranked = live.predict().top().table
    told = explain(live, ranked[0].to_pylist(), rows=False, lookalikes=0)
    assert [row["reasons"] for row in context["who"]["rows"]] == [each.reasons(own=True) for each in told]
    assert len(section.all("details")) == min(10, len(ranked))
    for node, name, score in zip(
        section.all("summary"), ranked["name"].to_pylist(), ranked["score"].to_pylist(), strict=False
    ):
        assert node.text.startswith(f"{name} {score:.4f}")
    for node, each in zip(section.all("details"), told, strict=False):
        shown = [signed(part.effect) for part in each.parts if abs(part.effect) >= 5e-4]
        labels = node.all("svg")[0].text
        assert all(effect in labels for effect in shown)
