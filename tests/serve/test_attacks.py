"""Whoever means harm: each attack is refused, nothing leaks, and the next honest question is answered as before."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from quartet.errors import UsageError
from quartet.runs import TrainedModel
from quartet.serve import Limits, check_token
from tests.serve.small import AT, TOKEN, Client, read_all, running, service_of, shop

pytestmark = pytest.mark.usefixtures("one_thread")

HOST = b"Host: 127.0.0.1\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"
GOOD = json.dumps({"entities": ["C03"], "at": AT}).encode()
SECRETS = ("Traceback", "/tmp", "/root", "site-packages", ".py", TOKEN, "quartet/serve")


@pytest.fixture(scope="module")
def client(model: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A service behind a token that waits half a second for a request, so that slow clients are not waited for long."""
    journal = tmp_path_factory.mktemp("attacked") / "rows.journal"
    with running(service_of(model, journal, Limits(reading_seconds=0.5)), TOKEN) as client:
        yield client


@pytest.fixture(autouse=True)
def unharmed(client: Client, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """The same question has the same answer before and after, and the log holds nothing that it should not."""
    before = client.ask("/predict", GOOD)
    rows = client.ask("/model").json["tables"]
    yield
    after = client.ask("/predict", GOOD)
    assert (after.status, after.body) == (200, before.body)
    assert client.ask("/model").json["tables"] == rows
    log = capfd.readouterr()
    assert not log.err
    for line in log.out.splitlines():
        assert not any(secret in line for secret in SECRETS), line
        json.loads(line)


def request(
    body: bytes,
    path: bytes = b"/predict",
    method: bytes = b"POST",
    length: bool = True,
    head: bytes = HOST,
    more: bytes = b"",
) -> bytes:
    lines = [
        method + b" " + path + b" HTTP/1.1\r\n",
        head,
        b"Connection: close\r\nContent-Type: application/json\r\n",
        more,
    ]
    if length:
        lines.append(b"Content-Length: %d\r\n" % len(body))
    return b"".join([*lines, b"\r\n", body])


def asked(**question: Any) -> bytes:
    return request(json.dumps(question).encode())


def rows(table: str, *some: Any) -> bytes:
    return request(json.dumps({"table": table, "rows": list(some)}).encode(), b"/rows")


CHUNKED = b"Transfer-Encoding: chunked\r\n"
AUTH = b"Host: 127.0.0.1\r\nAuthorization: "
ATTACKS: dict[str, tuple[bytes, set[int]]] = {
    # too much
    "a body beyond the limit": (request(b'{"entities": ["' + b"x" * 2**20 + b'"]}'), {413}),
    "a length beyond the limit": (
        request(b"{", length=False, more=b"Content-Length: 99999999999999999999\r\n"), {400, 413}),
    "chunks beyond the limit": (
        request(b"100000\r\n" + b" " * 2**20 + b"\r\n2\r\n{}\r\n0\r\n\r\n", length=False, more=CHUNKED), {413}),
    "too many entities": (asked(entities=["C03"] * 1001), {413}),
    "too many rows": (rows("orders", *({"order": n} for n in range(1001))), {413}),
    "deep lists": (request(b"[" * 100_000 + b"]" * 100_000), {400}),
    "deep objects": (request(b'{"entities":' * 20_000 + b"1" + b"}" * 20_000), {400}),
    "deep cells": (rows("orders", {"customer": json.loads("[" * 300 + "]" * 300)}), {422}),
    "a number of a million digits": (request(b'{"entities": [' + b"9" * 10**6 + b"]}"), {400}),
    "a whole number beyond 64 bits": (asked(entities=[2**64]), {422}),
    "a key of half a megabyte": (asked(entities=["x" * 500_000]), {422}),
    "a time of half a megabyte": (asked(entities=["C03"], at="2" * 500_000), {422}),
    "a huge head": (request(GOOD, more=b"X: " + b"y" * 200_000 + b"\r\n"), {400, 431}),
    "ten thousand headers": (request(GOOD, more=b"".join(b"X%d: y\r\n" % n for n in range(10_000))), {400, 431}),
    "a long path": (request(b"", b"/" + b"a" * 10_000, b"GET"), {404}),
    "a hundred thousand wrong keys": (asked(entities=[1.5] * 100_000), {422}),
    "eighty thousand names": (request(json.dumps({f"a{n}": 1 for n in range(80_000)}).encode()), {422}),
    "a hundred thousand wrong rows": (rows("x", *[1] * 100_000), {422}),
    # wrong types
    "no object": (request(b'["entities"]'), {422}),
    "null": (request(b"null"), {422}),
    "an empty body": (request(b""), {400}),
    "NaN": (request(b'{"entities": [NaN]}'), {400}),
    "infinity": (request(b'{"entities": [1e999]}'), {400}),
    "a decimal as a key": (asked(entities=[1.5]), {422}),
    "true as a key": (asked(entities=[True]), {422}),
    "an object as a key": (asked(entities=[{"$ne": None}]), {422}),
    "a number as a time": (asked(entities=["C03"], at=1), {422}),
    "a name twice": (request(b'{"entities": ["C03"], "entities": ["C04"]}'), {400}),
    "an unknown name": (asked(entities=["C03"], __proto__={"admin": True}), {422}),
    "half a character": (request(b'{"entities": ["\\ud800"]}'), {400}),
    "bytes that are no text": (request(b'{"entities": ["\xff\xfe"]}'), {400}),
    "UTF-16": (request('{"entities": ["C03"]}'.encode("utf-16")), {400}),
    "a whole number as a decimal": (rows("orders", {"order": 9e4, "customer": "C03", "bought": AT}), {422}),
    "minus infinity in a cell": (request(b'{"table": "orders", "rows": [{"amount": -Infinity}]}', b"/rows"), {400}),
    "a cell twice": (request(b'{"table": "orders", "rows": [{"order": 1, "order": 2}]}', b"/rows"), {400}),
    "a key twice in one request": (
        rows("orders", *[{"order": 90_001, "customer": "C03", "bought": AT}] * 2), {422}),
    "an empty row": (rows("orders", {}), {422}),
    "no value for reasons": (asked(entities=["C03"], explain=None), {422}),
    "a time in other digits": (asked(entities=["C03"], at="٢٠٢٣-٠٩-٠١"), {422}),
    "the twenty-fourth hour": (asked(entities=["C03"], at="2023-09-01T24:00:00"), {422}),
    "a NUL in a key": (asked(entities=["C03\x00"]), {422}),
    "a form instead of JSON": (
        GOOD.join([b"POST /predict HTTP/1.1\r\n" + HOST + b"Connection: close\r\nContent-Type: text/plain\r\n"
                   b"Content-Length: %d\r\n\r\n" % len(GOOD), b""]), {415}),
    "a packed body": (request(GOOD, more=b"Content-Encoding: gzip\r\n"), {415}),
    # tricks with words
    "SQL as a key": (asked(entities=["C03'; DROP TABLE customers; --"]), {422}),
    "SQL as a time": (asked(entities=["C03"], at="2023-01-01' OR '1'='1"), {422}),
    "SQL as a table": (rows("orders; DROP TABLE orders", {"order": 1}), {422}),
    "a path as a table": (rows("../../etc/passwd", {"order": 1}), {422}),
    "a made table": (rows("known_labels", {"entity": "C03", "label": 1}), {422}),
    "a path as a key": (asked(entities=["/etc/passwd", "../../../etc/passwd"]), {422}),
    "a path as a path": (request(b"", b"/../../etc/passwd", b"GET"), {404}),
    "an encoded path": (request(b"", b"/%2e%2e/%2e%2e/etc/passwd", b"GET"), {404}),
    "a NUL in a path": (request(b"", b"/model%00.json", b"GET"), {404}),
    "a file of the package": (request(b"", b"/page.py", b"GET"), {404}),
    "the name of a model as a path": (request(b"", b"/v2/models/..%2f..%2fetc", b"GET"), {404}),
    "a place that is nearly there": (request(b"", b"/model/", b"GET"), {404}),
    "another model": (request(b"", b"/v2/models/other/ready", b"GET"), {404}),
    "a regular expression": (request(b"", b"/entities?search=(a%2B)%2B%24", b"GET"), {200}),
    "line breaks in a search": (request(b"", b"/entities?search=a%0d%0aX:%20y", b"GET"), {422}),
    "markup in a picture": (request(b"", b"/context.svg?entity=%3Cscript%3E", b"GET"), {422}),
    # who asks
    "no token": (request(GOOD, head=b"Host: 127.0.0.1\r\n"), {401}),
    "a wrong token": (request(GOOD, head=AUTH + b"Bearer wrong\r\n"), {401}),
    "an empty token": (request(GOOD, head=AUTH + b"Bearer \r\n"), {401}),
    "a part of the token": (request(GOOD, head=AUTH + b"Bearer " + TOKEN[:-1].encode() + b"\r\n"), {401}),
    "more than the token": (request(GOOD, head=AUTH + b"Bearer " + TOKEN.encode() + b"x\r\n"), {401}),
    "another scheme": (request(GOOD, head=AUTH + b"Basic " + TOKEN.encode() + b"\r\n"), {401}),
    "bytes as a token": (request(GOOD, head=AUTH + b"Bearer \xff\xfe\xff\r\n"), {401}),
    "two tokens": (request(GOOD, head=HOST + b"Authorization: Bearer wrong\r\n"), {401}),
    "the token in the address": (
        request(GOOD, b"/predict?token=" + TOKEN.encode(), head=b"Host: 127.0.0.1\r\n"), {401}),
    "rows without the token": (
        request(b'{"table":"customers","rows":[{"customer":"X"}]}', b"/rows", head=b"Host: 127.0.0.1\r\n"), {401}),
    "a page of another site": (request(GOOD, more=b"Origin: https://example.org\r\n"), {403}),
    "a page of nowhere": (request(GOOD, more=b"Origin: null\r\n"), {403}),
    # two readings of one request
    "two hosts": (request(GOOD, more=b"Host: example.org\r\n"), {400}),
    "two lengths": (request(GOOD, more=b"Content-Length: 1\r\n"), {400}),
    "a length and chunks": (request(b"0\r\n\r\n", more=CHUNKED), {400}),
    "chunks that are none": (request(b"zz\r\n{}\r\n0\r\n\r\n", length=False, more=CHUNKED), {400}),
    "a negative chunk": (request(b"-5\r\n{}\r\n0\r\n\r\n", length=False, more=CHUNKED), {400}),
    "an unknown encoding of transfer": (request(GOOD, more=b"Transfer-Encoding: gzip, chunked\r\n"), {400, 501}),
    "a negative length": (request(GOOD, length=False, more=b"Content-Length: -1\r\n"), {400}),
    "a length that is no number": (request(GOOD, length=False, more=b"Content-Length: +7\r\n"), {400}),
    "a space before the colon": (request(GOOD, more=b"X-A : b\r\n"), {400}),
    "a header on two lines": (request(GOOD, more=b"X-A: b\r\n c\r\n"), {200, 400}),
    "two lengths in one": (request(GOOD, length=False, more=b"Content-Length: 38, 39\r\n"), {400}),
    "chunks on two lines": (request(b"0\r\n\r\n", length=False, more=b"Transfer-Encoding:\r\n chunked\r\n"), {400}),
    "two encodings of transfer": (
        request(b"0\r\n\r\n", length=False, more=CHUNKED + b"Transfer-Encoding: identity\r\n"), {400, 501}),
    "nearly chunked": (request(b"0\r\n\r\n", length=False, more=b"Transfer-Encoding: xchunked\r\n"), {400, 501}),
    "a request behind the body": (request(b"{}" + request(b"", b"/metrics", b"GET"), length=False,
                                          more=b"Content-Length: 2\r\n"), {200}),
    "a host behind the body": (
        request(b"2\r\n{}\r\n0\r\nHost: example.org\r\nX: y\r\n\r\n", length=False, more=CHUNKED), {200}),
    "a body that is waited for": (
        request(b"", length=False, more=b"Expect: 100-continue\r\nContent-Length: 5000000\r\n"), {413}),
    "another method in a header": (request(b"", b"/rows", b"GET", more=b"X-HTTP-Method-Override: POST\r\n"), {405}),
    "a bare carriage return": (b"GET /healthz HTTP/1.1\rHost: 127.0.0.1\r\r\n\r\n", {400}),
    "HTTP of 1991": (b"GET /healthz\r\n\r\n", {400}),
    "a thousand names in an address": (
        request(b"", b"/entities?" + b"&".join(b"a%d=1" % n for n in range(1000)), b"GET"), {200}),
    "a number of many digits in an address": (request(b"", b"/entities?most=" + b"9" * 5000, b"GET"), {422}),
    "who asks before asking": (
        request(b"", b"/rows", b"OPTIONS", more=b"Origin: https://example.org\r\n"), {403}),
    "a bare line feed": (b"GET /healthz HTTP/1.1\n" + HOST + b"Connection: close\r\n\r\n", {200, 400}),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200 + b"\r\n\r\n", {400}),
    "another version": (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", {400, 505}),
    "an upgrade": (request(b"", b"/", b"GET", more=b"Connection: upgrade\r\nUpgrade: websocket\r\n"), {200, 400, 426}),
    # wrong ways
    "reading where one adds": (request(b"", b"/rows", b"GET"), {405}),
    "deleting": (request(b"", b"/model", b"DELETE"), {405}),
    "TRACE": (request(b"", b"/model", b"TRACE"), {405}),
    "a method of one's own": (request(b"", b"/model", b"DROP"), {405}),
    "CONNECT": (request(b"", b"example.org:443", b"CONNECT"), {400, 404, 405}),
    "an address of elsewhere": (request(b"", b"http://example.org/", b"GET"), {400, 404}),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused(client: Client, name: str) -> None:
    sent, allowed = ATTACKS[name]
    answer = client.raw(sent)
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
    assert status in allowed, answer[:300]
    assert answer.count(b"HTTP/1.1 ") == 1
    text = answer.decode("utf-8", "replace")
    assert not any(secret in text for secret in SECRETS), text
    assert len(answer) < 5000


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /pred",
        request(GOOD)[:60],
        request(GOOD)[:-5],
        request(b"5\r\n{", length=False, more=CHUNKED),
    ],
)
def test_a_slow_client_is_not_waited_for(client: Client, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as plug:
        plug.sendall(begun)
        answer = read_all(plug, 8.0)
        assert answer == b"" or b" 408 " in answer.split(b"\r\n")[0]


def test_a_client_that_trickles_is_not_waited_for(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as plug:
        end = time.monotonic() + 20
        try:
            for letter in request(GOOD):
                plug.sendall(bytes([letter]))
                time.sleep(0.05)
                assert time.monotonic() < end
        except ConnectionError:
            return
        raise AssertionError("the whole request was waited for")


def test_who_reads_no_answers_is_cut_off(model: TrainedModel) -> None:
    """Answers pile up until the buffers are full; then nobody holds the connection for ever."""
    sent = b"GET /model HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with (
        running(service_of(model, limits=Limits(seconds=0.5)), buffer=4096) as client,
        socket.create_connection(("127.0.0.1", client.port), timeout=300) as plug,
    ):
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):  # reset by the server, which has not waited
            plug.sendall(sent * 200_000)
        assert client.ask("/healthz").status == 200


def test_many_idle_connections_keep_nobody_out(client: Client) -> None:
    idle = [socket.create_connection(("127.0.0.1", client.port), timeout=10) for _ in range(100)]
    assert client.ask("/predict", GOOD).status == 200
    for plug in idle:
        plug.close()


def test_a_client_that_goes_away_harms_nobody(client: Client) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as plug:
            plug.sendall(request(GOOD))


def test_only_this_machine_is_answered_without_a_token(model: TrainedModel) -> None:
    """A page elsewhere whose name leads to this machine (DNS rebinding) is told that the service has another name."""
    with running(service_of(model)) as open_client:
        for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "localhost@evil.example:80"):
            answer = open_client.ask("/predict", GOOD, headers={"host": host})
            assert answer.status in (400, 421), host
        assert open_client.ask("/predict", GOOD, headers={"host": "localhost:80"}).status == 200


@pytest.mark.parametrize("token", ["", "short", "a" * 15, "ä" * 20, "with a space in it all"])
def test_others_are_not_served_without_a_good_token(token: str) -> None:
    with pytest.raises(UsageError, match="H01"):
        check_token("0.0.0.0", token)


def test_the_shop_is_what_it_was(client: Client) -> None:
    assert client.ask("/model").json["tables"]["orders"]["rows"] == shop()["orders"].num_rows
