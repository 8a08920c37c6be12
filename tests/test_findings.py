"""Findings as people read them: many of one code are one line."""

from __future__ import annotations

import pytest

from quartet.drawing import as_shown, set_verbosity
from quartet.findings import Findings, grouped, note, warning
from quartet.runs import ProgressView

MANY = [warning("S05", f"t{k}", f'table "t{k}" has no primary key', 2) for k in range(23)]


def test_many_of_one_code_are_one_line_with_a_count_and_examples() -> None:
    few = [note("S19", "main", "a view is left out"), warning("V03", "a.b", "a.b: 3 values are unseen", 3)]
    first, *others = grouped([few[0], *MANY, few[1]])
    assert first is few[0]
    assert others[1] is few[1]
    assert others[0].count == 46
    assert str(others[0]) == (
        'warning[S05] table "t0" has no primary key; and 22 more like it: t1, t2, t3, ...'
    )


@pytest.mark.parametrize("number", [0, 1, 3])
def test_few_of_a_code_stay_as_they_are_and_where_they_are(number: int) -> None:
    mixed = [finding for k in range(number) for finding in (MANY[k], note("S19", "x", f"left out {k}"))]
    assert grouped(mixed) == mixed


def test_leaks_are_told_one_by_one() -> None:
    leaks = [warning("D03", f"t.c{k}", f"t.c{k} is filled in later", 1, f"hide c{k}") for k in range(6)]
    assert grouped(leaks) == leaks


def test_a_level_is_a_group_of_its_own() -> None:
    mixed = [*MANY[:3], note("S05", "x", "x"), note("S05", "y", "y")]
    assert grouped(mixed) == mixed


def test_findings_print_in_groups_and_hold_all() -> None:
    findings = Findings(MANY)
    assert len(str(findings).splitlines()) == 1
    assert len(findings) == 23


def test_a_listener_that_shows_them_groups_them_unless_all_are_wanted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = ProgressView()
    view.noticed(MANY)
    assert len(capsys.readouterr().err.splitlines()) == 1
    set_verbosity(1)
    try:
        view.noticed(MANY)
        assert as_shown(MANY) == MANY
    finally:
        set_verbosity(0)
    assert len(capsys.readouterr().err.splitlines()) == 23
