"""A small shop that is served: the real server, in this process or its own, and a real client."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

from quartet.database import Database
from quartet.runs import TrainedModel
from quartet.serve import Journal, Limits, Server, Service
from tests.trained import command_environment, opened, shop_tables

AT = "2023-09-01"
TOKEN = "a-token-of-32-letters-0123456789"
JSON = {"content-type": "application/json"}


def shop() -> Database:
    return opened(shop_tables())


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Asks a server that listens on a port of this machine."""

    port: int
    token: str = ""

    def ask(
        self, path: str, body: Any = None, method: str = "", headers: dict[str, str] | None = None
    ) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = dict(JSON if body is not None else {}) | (headers or {})
        if self.token:
            given["authorization"] = f"Bearer {self.token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method or ("POST" if body is not None else "GET"), path, data, given)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()

    def raw(self, data: bytes, wait: float = 5.0) -> bytes:
        """Returns what the server sends back for bytes as they are, until it closes or says no more."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as plug:
            plug.sendall(data)
            return read_all(plug, wait)


def read_all(plug: socket.socket, wait: float) -> bytes:
    """Returns what comes until the other side closes, or a whole answer of known length is there."""
    read, end = b"", time.monotonic() + wait
    while time.monotonic() < end:
        ready, _, _ = select.select([plug], [], [], max(0.0, end - time.monotonic()))
        try:
            piece = plug.recv(65536) if ready else b""
        except ConnectionError:
            break
        if not piece:
            break
        read += piece
        head, _, body = read.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:") and len(body) >= int(line.split(b":")[1]):
                return read
    return read


@contextmanager
def running(
    service: Service, token: str = "", watch: tuple[str, float] | None = None, buffer: int = 0
) -> Iterator[Client]:
    """Serves in a thread of this process, on a port that is free, with so many bytes of each answer on their way."""
    server = Server(service, "127.0.0.1", 0, token, watch)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and service.is_ready):
        assert thread.is_alive()
        time.sleep(0.01)
    if buffer:  # connections have that of the socket that listens
        server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    try:
        yield Client(server.port, token)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def service_of(
    model: TrainedModel, journal: Path | None = None, limits: Limits | None = None, read: Any = shop
) -> Service:
    return Service(model, read, Journal(journal) if journal else None, limits)


@contextmanager
def process(run: Path, source: Path, journal: Path, *words: str, **environment: str) -> Iterator[Any]:
    """The command `quartet serve` in a process of its own; yields the process, a client and what it has written."""
    command = [sys.executable, "-m", "quartet", "serve", str(run), "--database", str(source), "--port", "0"]
    child = subprocess.Popen(
        [*command, "--journal", str(journal), *words],
        env={**command_environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1].get("event") != "ready":
            line = child.stdout.readline()
            assert line, child.stderr.read() if child.stderr else ""
            lines.append(json.loads(line))
        url = next(line["url"] for line in lines if line.get("event") == "listening")
        yield (
            child,
            Client(int(url.rstrip("/").rpartition(":")[2]), environment.get("QUARTET_TOKEN", "")),
            lines,
        )
    finally:
        if child.poll() is None:
            os.kill(child.pid, 9)
        child.wait(20)
        for pipe in (child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()
