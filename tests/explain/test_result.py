"""What an explanation says, made by hand: reasons, tables, files, and names of any kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from quartet.errors import UsageError
from quartet.explain import (
    Change,
    ColumnEffect,
    Curve,
    Effect,
    Explanation,
    Explanations,
    GlobalView,
    LookAlike,
    RowEffect,
    Use,
    explanation_writer,
)
from tests.shop import day

FEW = ColumnEffect("a", "orders in the last 90 days", "0", "4", 0.2, "orders", 3)
OLD = ColumnEffect("b", "age", "70", "40", -0.3, "customers")
REST = ColumnEffect("", "12 other cells and aggregates", "", "", 0.15, "", 12)
ROW = RowEffect("orders", "17", "", day(3), "orders by buyer", "", (("state", "late"),), 1, 0.1, (5,))
GROUP = RowEffect("visits", "", "", day(4), "visits by who", "in the last 3 days", (), 14, 0.05, (7, 8))
TOLD = Explanation(
    key="101",
    name="[bold]Ann\x1b[31m",
    time=day(5),
    score=0.35,
    base=0.2,
    predicted="",
    parts=(Effect("local", "rows around it", 0.1), Effect("trees", "aggregates, read by trees", 0.05)),
    columns=(OLD, FEW, REST),
    rows=(ROW, GROUP),
    lookalikes=(LookAlike("102", "Bob", day(1), "churned: yes", 0.9),),
    archetype="archetype 3",
    changes=(Change((ROW,), 0.15, 0.2, "without orders 17 it would be 15.0%, below the base rate of 20.0%"),),
)
VIEW = GlobalView(
    200,
    0.2,
    (Use("local", "rows around it", 0.1),),
    columns=(Use("a", "orders in the last 90 days", 0.05),),
    curves=(Curve("a", "orders in the last 90 days", (0.0, 1.0), ("0", "1"), (0.3, 0.2)),),
)


def test_reasons_are_those_that_took_the_score_where_it_is_and_then_the_others() -> None:
    assert TOLD.reasons(2) == ["orders in the last 90 days: 0, usually 4", "age: 70, usually 40"]
    assert TOLD.reasons(1) == ["orders in the last 90 days: 0, usually 4"]
    alone = Explanation("1", "", day(5), 0.1, 0.2, "", TOLD.parts, rows=(GROUP, ROW))
    assert alone.reasons(1) == ["orders 17 of 2024-01-04"]
    assert Explanation("1", "", day(5), 0.3, 0.2, "", TOLD.parts).reasons(1) == ["rows around it"]


def test_a_row_is_said_with_its_cells_and_by_links_that_say_more_than_its_table() -> None:
    assert ROW.sentence == "orders 17 of 2024-01-04 (state late), by buyer"
    assert replace(ROW, path="orders of its carts").sentence.endswith("(state late) of its carts")
    assert replace(ROW, path="orders").sentence == "orders 17 of 2024-01-04 (state late)"
    assert (
        replace(GROUP, cells=(("kind", "b"),), path="").sentence
        == "14 visits in the last 3 days (all with kind b)"
    )
    label = RowEffect("known_labels", "3", "", day(3), "past labels", "", (("label", "1"),), 1, 0.1, (5,))
    assert label.sentence == "its past label known since 2024-01-04 (1)"


def test_effects_that_are_written_as_0_share_a_line_without_a_bar() -> None:
    faint = (Effect("local", "rows around it", -1e-6), Effect("feature", "its own row", 2e-6))
    text = str(replace(TOLD, parts=(*TOLD.parts, *faint)))
    assert "-0.0 pp" not in text
    assert ["0.0", "pp", "its", "own", "row;", "rows", "around", "it"] in [
        line.split() for line in text.splitlines()
    ]
    value = replace(TOLD, parts=(Effect("trees", "trees", 4.22), *faint), is_chance=False)
    assert "+4.22 " in str(value)
    assert "e-0" not in str(value)


def test_own_reasons_leave_out_what_is_the_same_for_all() -> None:
    shared = ColumnEffect("c", "weekday", "Monday", "Friday", 0.4, "", is_shared=True)
    told = replace(TOLD, columns=(shared, *TOLD.columns))
    assert told.reasons(1) == ["weekday: Monday, usually Friday"]
    assert told.reasons(own=True) == TOLD.reasons()
    assert replace(told, columns=(shared, REST)).reasons(own=True) == ["orders 17 of 2024-01-04", GROUP.words]


def test_a_group_is_said_as_one() -> None:
    assert GROUP.words == "14 visits in the last 3 days"


def test_it_prints_any_name_as_it_is() -> None:
    text = str(TOLD)
    assert "[bold]Ann" in text
    assert "\x1b" not in text
    for words in (
        "35.0%",
        "20.0%",
        "usually 4",
        "14 visits",
        "churned: yes",
        "archetype 3",
        "would be 15.0%",
    ):
        assert words in text
    assert "orders in the last 90 days" in str(VIEW)


def test_it_goes_into_files(tmp_path: Path) -> None:
    several = Explanations((TOLD, TOLD), "who and when")
    several.write(tmp_path / "why.json")
    kept = json.loads((tmp_path / "why.json").read_text())
    assert kept == json.loads(json.dumps(several.to_dict()))
    assert kept["explanations"][0]["time"] == "2024-01-06"
    assert kept["explanations"][0]["reasons"] == TOLD.reasons()
    several.write(tmp_path / "why.parquet")
    table = pq.read_table(tmp_path / "why.parquet")
    assert table.column_names[-4:] == ["part_trees", "reason_1", "reason_2", "reason_3"]
    assert table["reason_3"].to_pylist() == [None, None]
    several.write(tmp_path / "why.csv")
    assert csv.read_csv(tmp_path / "why.csv").num_rows == 2
    VIEW.write(tmp_path / "uses.csv")
    assert csv.read_csv(tmp_path / "uses.csv")["kind"].to_pylist() == ["parts", "columns"]
    VIEW.write(tmp_path / "uses.json")
    assert json.loads((tmp_path / "uses.json").read_text())["curves"][0]["scores"] == [0.3, 0.2]


def test_other_files_are_refused_before_the_work() -> None:
    with pytest.raises(UsageError, match=r'cannot be written as "\.xlsx"'):
        explanation_writer("why.xlsx")
