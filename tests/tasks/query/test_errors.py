"""Every error of a query says what is wrong, what to do, and points at the place."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from quartet.errors import QuartetError, TaskError
from quartet.tasks import Task, check_labels, read_query
from tests.tasks.query.cases import CASES, COUNT, FOR
from tests.tasks.query.small import shop
from tests.tasks.small import small_shop


@pytest.mark.parametrize(("query", "code", "what", "fix", "pointed"), CASES, ids=[case[0] for case in CASES])
def test_errors(query: str, code: str, what: str, fix: str, pointed: str) -> None:
    with pytest.raises(QuartetError) as raised:
        read_query(query, shop())
    error = raised.value
    assert (error.code, error.exit_code) == (code, 3)
    assert what in error.what
    assert fix in error.fix
    line, caret = error.place
    assert line.strip() == query or "…" in line
    place = caret.index("^")
    assert line[place : place + caret.count("^")] == pointed or not pointed
    assert str(error) == f"{error.sentence}\n{line}\n{caret}"


def test_a_long_query_is_shown_around_the_place_and_in_its_line() -> None:
    text = (
        f"PREDICT {COUNT} > 0\n{FOR}\nWHERE "
        + " AND ".join(["customers.age > 3"] * 20)
        + " AND customers.old = 3"
    )
    with pytest.raises(QuartetError) as raised:
        read_query(text, shop())
    line, caret = raised.value.place
    assert len(line) < 110
    assert line[caret.index("^") :].startswith("old = 3")


def test_carets_stand_below_wide_letters() -> None:
    text = f"PREDICT {COUNT} > 0 {FOR} WHERE cities.name = '東京e\u0301' AND customers.\"都市\" = 1"
    with pytest.raises(QuartetError) as raised:
        read_query(text, shop())
    line, caret = raised.value.place
    before, pointed = line[: line.index('"都市"')], '"都市"'
    assert (caret.index("^"), caret.count("^")) == (cell_len(before), cell_len(pointed))


def test_conditions_may_be_nested() -> None:
    read_query(f"PREDICT {'NOT (' * 90}{COUNT} > 1{')' * 90} {FOR}", shop())


def test_nobody_is_asked_about() -> None:
    query = "PREDICT COUNT(orders.*, 0, 10) = 0 FOR EACH customers.customer WHERE customers.age > 200"
    with pytest.raises(TaskError, match="nobody is asked about at 2023-08-28") as raised:
        Task.load(small_shop(), query)
    assert raised.value.code == "Q09"
    assert raised.value.place[1].count("^") == len("customers.age > 200")


def test_one_class() -> None:
    task = Task.load(small_shop(), "PREDICT COUNT(orders.*, 0, 10) < 0 FOR EACH customers.customer")
    with pytest.raises(TaskError, match="all 920 training labels are 0") as raised:
        check_labels(task)
    assert raised.value.code == "L05"
    assert raised.value.place[1].count("^") == len("COUNT(orders.*, 0, 10) < 0")


def test_what_follows_from_a_query_is_not_given_beside_it() -> None:
    query = "PREDICT COUNT(orders.*, 0, 10) = 0 FOR EACH customers.customer"
    with pytest.raises(TaskError, match='"sql" is given beside a query'):
        Task.load(small_shop(), {"query": query, "sql": "SELECT 1"})
    with pytest.raises(TaskError, match='"timedelta" is given beside a query'):
        small_shop().query(query, timedelta="30 days")
