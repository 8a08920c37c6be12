"""The guard stands before the service: who may ask, how much, for how long; and it writes down what was answered.

Nothing that it answers or writes holds a traceback, a path of this machine, or a secret. What goes wrong inside is
known by a reference alone, under which the log has the kind of error.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from quartet.serve.limits import Limits
from quartet.serve.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OPEN = ("/", "/page.js", "/page.css", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
_MOST_HEADERS, _MOST_HEADER_BYTES = 100, 16 * 1024
_MOST_NAMES = 16  # of a question, more than there are
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


class Refused(Exception):
    """A request that is not answered as it wishes: the status, a code, what is wrong and what to do."""

    def __init__(self, status: int, code: str, what: str, fix: str = "", retry_after: int = 0) -> None:
        super().__init__(what)
        self.status, self.code, self.what, self.fix, self.retry_after = status, code, what, fix, retry_after

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "what": self.what, "fix": self.fix}}


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, limits: Limits, metrics: Metrics, token: str = "") -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = token.encode()
        self.places: set[str] = set()  # that there are, as they may be counted and written down

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        begun, answer = time.perf_counter(), _Answer(send)
        path, reference = str(scope.get("path", "")), secrets.token_hex(4)
        place = path if path in self.places else "/v2/models/" if path.startswith("/v2/models/") else "other"
        kind = ""
        try:
            body = await self._admitted(scope, receive, path)
            await self.app(scope, _replayed(body, receive), answer)
        except Refused as refused:
            await answer.refuse(refused)
        except Exception as error:
            kind = type(error).__name__
            await answer.refuse(Refused(500, "H12", f"something went wrong here, reference {reference}"))
        seconds = time.perf_counter() - begun
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.request(place, method, answer.status, seconds)
        write_log(
            method=method, path=place, status=answer.status, ms=round(1000 * seconds, 2), bytes=answer.num_bytes,
            **({"reference": reference, "error": kind} if kind else {}),
        )  # fmt: skip

    async def _admitted(self, scope: Scope, receive: Receive, path: str) -> bytes:
        """Returns the body of a request that may go on; another one is refused."""
        headers: dict[bytes, list[bytes]] = {}
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if len(scope["headers"]) > _MOST_HEADERS or size > _MOST_HEADER_BYTES:
            raise Refused(431, "H03", "the head of the request is too long")
        if scope["http_version"] not in ("1.0", "1.1"):
            raise Refused(400, "H02", "this version of HTTP is not spoken here")
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts, origins = headers.get(b"host", []), headers.get(b"origin", [])
        if len(hosts) > 1 or (b"transfer-encoding" in headers and b"content-length" in headers):
            raise Refused(400, "H02", "the head of the request contradicts itself")
        host = hosts[0].decode("latin-1") if hosts else ""
        if (
            not self._token and _name_of(host) not in LOOPBACK
        ):  # a page elsewhere whose name leads to this machine
            raise Refused(421, "H10", "the service is not known by this name", "ask 127.0.0.1 or localhost")
        if any(origin.decode("latin-1").rpartition("://")[2] != host for origin in origins):
            raise Refused(
                403, "H10", "a page of another site asks", "ask from the service's own page, or without one"
            )
        if self._token and path not in OPEN:
            given = headers.get(b"authorization", [])
            scheme, _, secret = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
            is_right = hmac.compare_digest(secret.strip(), self._token)
            if scheme.lower() != b"bearer" or not is_right:
                raise Refused(
                    401, "H01", "no token, or not the right one", "send Authorization: Bearer TOKEN"
                )
        if scope["method"] != "POST":
            return b""
        kinds = headers.get(b"content-type", [b""])
        if kinds[0].split(b";")[0].strip().lower() != b"application/json":
            raise Refused(
                415, "H02", "the body is not said to be JSON", "send Content-Type: application/json"
            )
        if b"content-encoding" in headers:
            raise Refused(415, "H02", "the body is packed", "send it as it is")
        body = await self._body(headers.get(b"content-length", [b""])[0], receive)
        told = _read_json(body)
        if isinstance(told, dict) and len(told) > _MOST_NAMES:  # each would be an error of its own
            raise Refused(422, "H06", f"the body has {len(told):,} names", "see /openapi.json")
        return body

    async def _body(self, length: bytes, receive: Receive) -> bytes:
        most = self.limits.body
        too_long = Refused(413, "H03", f"the body is longer than {most:,} bytes", "ask for less at once")
        if length.isdigit() and int(length[:20]) > most:
            raise too_long
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.reading_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "H02", "the body has not arrived")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_long
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, "H03", "the body takes too long to arrive") from None


class _Answer:
    """Sends an answer on, with the headers that all have, and counts it."""

    def __init__(self, send: Send) -> None:
        self._send, self.status, self.num_bytes = send, 0, 0
        self._is_failed = self._is_refusing = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._is_failed = message["status"] == 500 and not self._is_refusing
            self.status = 0 if self._is_failed else message["status"]
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        if self._is_failed:  # the framework's own words; the guard has others
            return
        self.num_bytes += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        if self.status:  # the answer has begun: all that can be done is to end it
            return
        self._is_failed, self._is_refusing = False, True
        body = json.dumps(refused.body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if refused.retry_after:
            headers.append((b"retry-after", b"%d" % refused.retry_after))
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if refused.status in (
            400,
            408,
            413,
            431,
        ):  # what else is on the way would be read as the next request
            headers.append((b"connection", b"close"))
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def write_log(**fields: Any) -> None:
    """Writes a line of JSON to standard output."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stdout.write(json.dumps({"time": now, **fields}) + "\n")
    sys.stdout.flush()


def _name_of(host: str) -> str:
    """Returns the name in a Host header, without the port; nothing for what is no name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns what gives the body that was already read, once, and then whatever else comes."""
    waiting = [body]

    async def again() -> MutableMapping[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def _read_json(body: bytes) -> Any:
    """Returns what a body tells. What is no JSON by the letter is refused: numbers that are none, names twice in one
    object, half characters."""

    def number(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError("a number is too large")
        return value

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name stands twice in one object")
        return dict(pairs)

    try:
        text = body.decode("utf-8")
        told = json.loads(text, parse_float=number, parse_constant=constant, object_pairs_hook=once)
        json.dumps(told, ensure_ascii=False).encode("utf-8")
        return told
    except json.JSONDecodeError as error:
        what = f"the body is no JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise Refused(400, "H02", what) from None
    except RecursionError:
        raise Refused(400, "H02", "the body is nested too deeply") from None
    except UnicodeError:
        raise Refused(400, "H02", "the body is not UTF-8") from None
    except ValueError as error:
        known = str(error) if "digits" not in str(error) else "a number is too long"
        raise Refused(400, "H02", f"the body is no JSON: {known}") from None
