"""What the service answers: the predictions of the library to the last digit, and what it says of itself."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from quartet.listener import Listener
from quartet.runs import TrainedModel
from quartet.serve import Limits, Service
from tests.serve.small import AT, TOKEN, Answer, Client, running, service_of, shop

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("entities", [["C03"], ["C03", "C17", "C00"]])
def test_scores_are_those_of_the_library(client: Client, model: TrainedModel, entities: list[str]) -> None:
    answer = client.ask("/predict", {"entities": entities, "at": AT})
    assert answer.status == 200
    own = model.on(shop(), listener=Listener()).predict(entities, AT).to_arrow()
    told = answer.json["predictions"]
    assert [row["customer"] for row in told] == entities
    for name in ("score", "calibrated"):
        assert [repr(row[name]) for row in told] == [repr(x) for x in own[name].to_pylist()]
    assert [row["set"] for row in told] == own["set"].to_pylist()
    assert [row["name"] for row in told] == own["name"].to_pylist()
    assert answer.json["task"] == "churn"


def test_whom_the_task_asks_about_the_highest_first(client: Client, model: TrainedModel) -> None:
    told = client.ask("/predict", {"at": AT, "top": 3}).json["predictions"]
    own = model.on(shop(), listener=Listener()).predict(None, AT).top(3).to_arrow()
    assert [row["customer"] for row in told] == own["customer"].to_pylist()


def test_reasons_come_with_the_prediction(client: Client) -> None:
    told = client.ask("/predict", {"entities": ["C03"], "at": AT, "explain": True}).json
    (why,) = told["explanations"]
    assert why["key"] == "C03"
    assert why["score"] == pytest.approx(told["predictions"][0]["score"], abs=1e-5)
    assert why["reasons"]
    assert all(isinstance(reason, str) for reason in why["reasons"])


def test_too_many_reasons_are_refused(client: Client) -> None:
    answer = client.ask("/predict", {"entities": [f"C{n:02d}" for n in range(11)], "at": AT, "explain": True})
    assert answer.status == 422
    assert answer.json["error"]["code"] == "H07"


@pytest.mark.parametrize(
    ("question", "status", "code"),
    [
        ({"entities": ["nobody"]}, 422, "L11"),
        ({"entities": ["C03"], "at": "yesterday"}, 422, "T02"),
        ({"entities": ["C03"], "at": "2500-01-01"}, 422, "T06"),
        ({"entities": []}, 422, "H06"),
        ({"entities": "C03"}, 422, "H06"),
        ({"entities": ["C03"], "explain": "yes"}, 422, "H06"),
        ({"entities": ["C03"], "top": 0}, 422, "H06"),
        ({"entities": ["C03"], "else": 1}, 422, "H06"),
        ({"entities": ["C03"] * 1001}, 413, "H07"),
    ],
)  # fmt: skip
def test_a_question_that_has_no_answer_says_why(
    client: Client, question: Any, status: int, code: str
) -> None:
    answer = client.ask("/predict", question)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_the_model_tells_what_it_is(client: Client, model: TrainedModel) -> None:
    told = client.ask("/model").json
    assert (told["task"], told["horizon"], told["entity_table"]) == ("churn", "10 days", "customers")
    assert told["fingerprint"]["training_data"] == model.record.fingerprint
    assert told["tables"]["orders"]["links"] == {"customer": "customers"}
    assert "roc_auc" in told["quality"]


def test_health_and_metadata_have_the_shapes_of_kserve(client: Client) -> None:
    assert client.ask("/healthz").json == client.ask("/v2/health/live").json == {"live": True}
    assert client.ask("/readyz").json == client.ask("/v2/health/ready").json == {"ready": True}
    assert client.ask("/v2").json["name"] == "quartet"
    told = client.ask("/v2/models/churn").json
    assert {"name", "versions", "platform", "inputs", "outputs"} <= told.keys()
    assert client.ask("/v2/models/churn/ready").json == {"name": "churn", "ready": True}
    assert client.ask("/v2/models/other").status == 404


def test_it_is_not_ready_before_the_model_has_answered_once(model: TrainedModel) -> None:
    service = service_of(model)
    with running(service) as client:
        service.is_ready = False
        for path, body in [
            ("/readyz", None),
            ("/predict", {"entities": ["C03"]}),
            ("/rows", {"table": "x", "rows": [{}]}),
        ]:
            answer = client.ask(path, body)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert client.ask("/healthz").status == 200


def test_metrics_are_text_that_prometheus_reads(client: Client) -> None:
    before = client.ask("/metrics").body.decode()
    client.ask("/predict", {"entities": ["C03"], "at": AT})
    text = client.ask("/metrics").body.decode()
    line = re.compile(r'^(# TYPE \w+ (counter|gauge|histogram)|\w+(\{(\w+="[^"\\]*",?)+\})? [\d.e+-]+)$')
    assert all(line.match(each) for each in text.splitlines())

    def count(text: str) -> int:
        found = re.search(r'requests_total\{path="/predict",method="POST",status="200"\} (\d+)', text)
        return int(found[1]) if found else 0

    assert count(text) == count(before) + 1
    buckets = [int(n) for n in re.findall(r'seconds_bucket\{path="/predict",le="[^"]+"\} (\d+)', text)]
    assert buckets == sorted(buckets)


def test_the_description_is_whole_and_its_examples_are_valid(client: Client) -> None:
    told = client.ask("/openapi.json").json
    assert {"/predict", "/rows", "/model", "/healthz", "/readyz", "/metrics"} <= told["paths"].keys()
    schemas = told["components"]["schemas"]
    assert schemas["Question"]["examples"]
    assert schemas["NewRows"]["examples"]
    assert client.ask("/docs").status == client.ask("/redoc").status == 404
    assert "cdn" not in json.dumps(told)


def test_a_picture_of_the_rows_around_an_entity(client: Client) -> None:
    answer = client.ask(f"/context.svg?entity=C03&at={AT}")
    assert answer.headers["content-type"] == "image/svg+xml"
    ElementTree.fromstring(answer.body)
    assert client.ask("/context.svg?entity=nobody").status == 422


def test_entities_are_found_by_key_and_name(client: Client) -> None:
    assert client.ask("/entities?search=c03").json["entities"] == [{"entity": "C03", "name": "Person Ad"}]
    found = client.ask("/entities?search=person&most=2").json["entities"]
    assert [each["entity"] for each in found] == ["C00", "C01"]
    assert client.ask("/entities?search=%25%27%20OR%201=1").json["entities"] == []


def test_without_the_token_only_health_and_the_empty_page_are_shown(model: TrainedModel) -> None:
    with running(service_of(model), TOKEN) as client:
        assert client.ask("/predict", {"entities": ["C03"], "at": AT}).status == 200
        stranger = Client(client.port)
        for path, body in [
            ("/model", None),
            ("/metrics", None),
            ("/openapi.json", None),
            ("/predict", {}),
            ("/rows", {}),
        ]:
            answer = stranger.ask(path, body)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        for path in ("/", "/page.js", "/page.css", "/healthz", "/readyz"):
            assert stranger.ask(path).status == 200


def test_too_many_questions_are_told_to_come_back(model: TrainedModel) -> None:
    service = service_of(model, limits=Limits(in_flight=1))
    with running(service) as client, ThreadPoolExecutor(8) as pool:
        everybody = [f"C{n:02d}" for n in range(40)]
        answers = list(
            pool.map(lambda _: client.ask("/predict", {"entities": everybody, "at": AT}), range(8))
        )
    assert {answer.status for answer in answers} == {200, 429}
    assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status == 429)


def test_questions_under_way_are_answered_before_it_ends(
    model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, begun, go_on = service_of(model), threading.Event(), threading.Event()
    answers: list[Answer] = []

    def slowly(*_: Any) -> dict[str, Any]:
        begun.set()
        go_on.wait(30)
        return {"predictions": []}

    monkeypatch.setattr(service, "predict", slowly)
    with running(service) as client:
        asker = threading.Thread(target=lambda: answers.append(client.ask("/predict", {"entities": ["C03"]})))
        asker.start()
        assert begun.wait(30)
        threading.Timer(0.3, go_on.set).start()  # by then the server has been asked to end
    asker.join(30)
    assert [answer.status for answer in answers] == [200]
    with pytest.raises(OSError):  # noqa: PT011 (whichever way the system refuses)
        client.ask("/healthz")


def test_an_answer_that_takes_too_long_is_not_waited_for(model: TrainedModel) -> None:
    with running(service_of(model, limits=Limits(seconds=0.001))) as client:
        answer = client.ask("/predict", {"entities": ["C03"], "at": AT})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_what_goes_wrong_inside_is_not_told(
    model: TrainedModel, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service: Service = service_of(model)
    with running(service) as client:

        def broken(*_: Any) -> Any:
            raise RuntimeError(f"a secret in {Path(__file__)}")

        monkeypatch.setattr(service, "predict", broken)
        answer = client.ask("/predict", {"entities": ["C03"]})
        assert answer.status == 500
        reference = answer.json["error"]["what"].rpartition(" ")[2]
        assert client.ask("/healthz").status == 200
    log = capfd.readouterr()
    for text in (answer.body.decode(), log.out, log.err):
        assert "secret" not in text
        assert "Traceback" not in text
        assert "test_answers" not in text
    assert any(reference in line and "RuntimeError" in line for line in log.out.splitlines())
    assert all(json.loads(line) for line in log.out.splitlines())
