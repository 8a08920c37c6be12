"""An explanation of a seed that is held speaks of the time as of which the model was asked, and says so."""

from __future__ import annotations

import numpy as np
import pytest

from quartet.tasks import KNOWN_LABELS
from quartet.times import DAY
from quartet.training import wait_limit
from tests.explain.small import bound, untrained
from tests.trained import Heard, churn

YEAR = 365 * DAY


@pytest.mark.parametrize("name", ["lightgbm", "quartet"])
def test_reasons_years_later_are_those_of_where_the_data_end(name: str) -> None:
    task = churn()
    model = untrained(task, name)
    live, heard = bound(task.database, model), Heard()
    view, table = live.views[0], task.database["customers"]
    key = table.data[table.primary_key[0]][2].as_py()
    last = int(view.database.newest(np.array([2**62]), "<=", KNOWN_LABELS)[0])
    waited = model.statistics.longest_wait
    assert waited is not None
    end = last + wait_limit(task.spec, waited)
    then, later = (
        live.explain([key], np.datetime64(at, "ns"), rows=True, listener=heard)[0]
        for at in (end, end + 3 * YEAR)
    )
    assert later.score == then.score
    assert later.time == then.time + 3 * YEAR
    values = [{column.name: column.value for column in each.columns} for each in (then, later)]
    shared = (
        values[0].keys() & values[1].keys()
    )  # effects are against known cases, of which there are others by then
    assert {values[0][column] == values[1][column] for column in shared} <= {True}
    assert shared or name != "lightgbm"
    rows = [{(row.path, row.span, row.key): row.effect for row in each.rows} for each in (then, later)]
    assert rows[0] == rows[1] != {}
    scores = live.predict([key], np.datetime64(end + 3 * YEAR, "ns"), listener=heard).table
    assert scores["score"][0].as_py() == pytest.approx(later.score, abs=1e-6)
    notes = [str(finding) for finding in heard.findings if "are asked as of" in str(finding)]
    assert len(notes) == 2  # of the later two questions, not of the first
