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
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from quartet.serve.limits import Limits
from quartet.serve.metrics import Metrics

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OPEN = ("/", "/page.js", "/page.css", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
_MOST_HEADERS, _MOST_HEADER_BYTES = 100, 16 * 1024
_MOST_NAMES = 16  # of a question, more than there are: each would be an error of its own
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_AFTER_WHICH_IT_ENDS = (400, 408, 413, 431)  # what else is on the way would be read as the next request
_SENT = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
_HEADERS = [(name.encode(), value.encode()) for name, value in _SENT.items()]


class Refused(Exception):
    """A request that is not answered as it wishes: the status, a code, what is wrong and what to do."""

    def __init__(
        self, status: int, code: str, what: str, fix: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(what)
        self.status, self.told = status, {"error": {"code": code, "what": what, "fix": fix}}
        self.headers = dict(headers or {})
        self.headers |= {"retry-after": "1"} if status in (429, 503) else {}
        self.headers |= {"www-authenticate": "Bearer"} if status == 401 else {}
        self.headers |= {"connection": "close"} if status in _AFTER_WHICH_IT_ENDS else {}

    @property
    def answer(self) -> JSONResponse:
        return JSONResponse(self.told, self.status, self.headers)

    @staticmethod
    def broken(reference: str) -> Refused:
        return Refused(500, "H12", f"something went wrong here, reference {reference}")


class Guard:
    """An ASGI application around another one; with a token, only who knows it is answered."""

    def __init__(self, app: FastAPI, limits: Limits, metrics: Metrics, token: str = "") -> None:
        self.app, self.limits, self.metrics, self._token = app, limits, metrics, token.encode()
        paths = {str(getattr(route, "path", "")) for route in app.routes}
        self._places = {path for path in paths if "{" not in path}  # as they may be counted and written down

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, path, method = time.perf_counter(), scope["path"], scope["method"]
        reference = scope["reference"] = secrets.token_hex(4)
        status, size, wrong = 0, 0, {}

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            size += len(message.get("body", b""))
            await send(message)

        try:
            body = await self._admitted(scope, receive)
            await self.app(scope, _again(body, receive), counted)
        except Refused as refused:
            await refused.answer(scope, receive, counted)
        except Exception as error:
            wrong = {"reference": reference, "error": type(error).__name__}
            if not status:  # else it was told already
                await Refused.broken(reference).answer(scope, receive, counted)
        seconds = time.perf_counter() - begun
        is_model = path.startswith("/v2/models/")
        place = path if path in self._places else "/v2/models/" if is_model else "other"
        method = method if method in _METHODS else "other"
        self.metrics.request(place, method, status, seconds)
        write_log(method=method, path=place, status=status, ms=round(1000 * seconds, 2), bytes=size, **wrong)

    async def _admitted(self, scope: Scope, receive: Receive) -> bytes:
        """Returns the body of a request that may go on; another one is refused."""
        headers = Headers(scope=scope)
        size = sum(len(name) + len(value) for name, value in headers.raw)
        if len(headers.raw) > _MOST_HEADERS or size > _MOST_HEADER_BYTES:
            raise Refused(431, "H03", "the head of the request is too long")
        if scope["http_version"] not in ("1.0", "1.1"):
            raise Refused(400, "H02", "this version of HTTP is not spoken here")
        host = headers.get("host", "")
        if len(headers.getlist("host")) > 1 or {"transfer-encoding", "content-length"} <= {*headers.keys()}:
            raise Refused(400, "H02", "the head of the request contradicts itself")
        # Without a token, a page elsewhere whose name leads to this machine must not ask, either.
        if not self._token and _name_of(host) not in LOOPBACK:
            raise Refused(421, "H10", "the service is not known by this name", "ask 127.0.0.1 or localhost")
        if any(origin.rpartition("://")[2] != host for origin in headers.getlist("origin")):
            fix = "ask from the service's own page, or without one"
            raise Refused(403, "H10", "a page of another site asks", fix)
        if self._token and scope["path"] not in _OPEN:
            given = headers.getlist("authorization")
            scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
            is_right = hmac.compare_digest(secret.strip().encode("latin-1"), self._token)
            if scheme.lower() != "bearer" or not is_right:
                what = "no token, or not the right one"
                raise Refused(401, "H01", what, "send Authorization: Bearer TOKEN")
        if scope["method"] != "POST":
            return b""
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            what = "the body is not said to be JSON"
            raise Refused(415, "H02", what, "send Content-Type: application/json")
        if "content-encoding" in headers:
            raise Refused(415, "H02", "the body is packed", "send it as it is")
        body = await self._body(headers.get("content-length", ""), Request(scope, receive))
        told = _read_json(body)
        if isinstance(told, dict) and len(told) > _MOST_NAMES:
            raise Refused(422, "H06", f"the body has {len(told):,} names", "see /openapi.json")
        return body

    async def _body(self, length: str, request: Request) -> bytes:
        most, body = self.limits.body, bytearray()
        too_long = Refused(413, "H03", f"the body is longer than {most:,} bytes", "ask for less at once")
        if length.isdigit() and int(length[:20]) > most:
            raise too_long
        try:
            async with asyncio.timeout(self.limits.reading_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise too_long
        except TimeoutError:
            raise Refused(408, "H03", "the body takes too long to arrive") from None
        except ClientDisconnect:
            raise Refused(400, "H02", "the body has not arrived") from None
        return bytes(body)


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


def _again(body: bytes, receive: Receive) -> Receive:
    """Returns what gives the body that was already read, once, and then whatever else comes."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return next(messages, None) or await receive()

    return again


def _read_json(body: bytes) -> Any:
    """Returns what a body tells. What is no JSON by the letter is refused: numbers that are none, names twice in one
    object, half characters."""

    def finite(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError("a number is too large, or none")
        return value

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(told := dict(pairs)) < len(pairs):
            raise ValueError("a name stands twice in one object")
        return told

    try:
        told = json.loads(body.decode(), parse_float=finite, parse_constant=finite, object_pairs_hook=once)
        json.dumps(told, ensure_ascii=False).encode()
    except RecursionError:
        raise Refused(400, "H02", "the body is nested too deeply") from None
    except UnicodeError:
        raise Refused(400, "H02", "the body is not UTF-8") from None
    except ValueError as error:
        known = "a number is too long" if "digits" in str(error) else str(error)
        raise Refused(400, "H02", f"the body is no JSON: {known}") from None
    return told
