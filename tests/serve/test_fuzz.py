"""Random requests: each has an answer that is not our fault."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.serve.fuzzed import requests
from tests.serve.small import AT, Client
from tests.strategies import examples

COLUMNS = ["order", "customer", "bought", "amount", "age", "city", "full_name", "else"]


@examples(120)
@given(st.data())
def test_no_request_breaks_the_service(client: Client, data: st.DataObject) -> None:
    described = client.__dict__.setdefault("described", client.ask("/openapi.json").json)
    method, path, body = data.draw(requests(described, COLUMNS))
    answer = client.ask(path, body, method)
    assert answer.status < 500, (method, path, body, answer.body)
    if answer.status >= 400 and method != "HEAD":
        assert answer.json["error"]["what"]
    assert client.ask("/predict", {"entities": ["C03"], "at": AT}).status == 200
