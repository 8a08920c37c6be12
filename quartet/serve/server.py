"""The process that serves: uvicorn with limits, a journal, a watcher of the source, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from threading import Event, Thread
from typing import Any

import uvicorn

from quartet.errors import UsageError
from quartet.serve.guard import LOOPBACK, write_log
from quartet.serve.service import Service
from quartet.serve.web import create_app

_KEEP_ALIVE = 15
_MOST_HEAD = 16 * 1024


def check_token(host: str, token: str) -> None:
    """Raises an error where others than this machine could ask without a token, or by one that is soon guessed."""
    if host not in LOOPBACK and not token:
        what = f"others can reach {host}, and no token keeps them out"
        raise UsageError("H01", what, "set QUARTET_TOKEN to a secret, or serve on 127.0.0.1")
    if token and not re.fullmatch("[!-~]{16,}", token):
        what = "QUARTET_TOKEN is shorter than 16 letters, or holds others than printable ASCII"
        raise UsageError("H01", what, "make one: openssl rand -hex 32")


class Server(uvicorn.Server):
    """The server of one service. It listens at once, is ready when the model has answered once, and runs until the
    process is asked to end; questions under way are answered first."""

    def __init__(
        self, service: Service, host: str, port: int, token: str = "", watch: tuple[str, float] | None = None
    ) -> None:
        check_token(host, token)
        self.service, self._watch, self._is_over = service, watch, Event()
        self._waits: dict[tuple[Any, bool], float] = {}
        guard, self._desk = create_app(service, token)
        logger = logging.getLogger("uvicorn.error")
        logger.handlers, logger.propagate = [_JsonHandler()], False
        logger.setLevel(logging.WARNING)
        super().__init__(uvicorn.Config(
            guard, host, port, http="h11", ws="none", loop="asyncio", log_config=None, access_log=False, lifespan="off",
            server_header=False, proxy_headers=False, limit_concurrency=service.limits.connections,
            timeout_keep_alive=_KEEP_ALIVE, timeout_graceful_shutdown=int(service.limits.seconds) + 5,
            h11_max_incomplete_event_size=_MOST_HEAD,
        ))  # fmt: skip

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.servers:
            name = self.config.host if ":" not in self.config.host else f"[{self.config.host}]"
            write_log(event="listening", url=f"http://{name}:{self.port}/")
        Thread(target=self._prepare, daemon=True, name="prepare").start()

    def _prepare(self) -> None:
        try:
            self.service.warm()
        except Exception as error:  # nobody could ever be answered
            write_log(event="failed", error=type(error).__name__)
            self.should_exit = True
            return
        write_log(event="ready")
        if self._watch is not None:
            self.service.watch(*self._watch, self._is_over.wait)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, ends connections whose request does not arrive in time, however slowly it trickles, and
        those whose answers nobody reads. (The guard waits for bodies.)"""
        now, before, limits = time.monotonic(), self._waits, self.service.limits
        self._waits = {}
        for line in list[Any](self.server_state.connections):
            is_unread, cycle = line.transport.get_write_buffer_size() > 0, line.cycle
            has_begun = cycle is None or (cycle.response_complete and line.conn.trailing_data[0])
            if is_unread or has_begun:  # to send the head of a request
                since = self._waits[line, is_unread] = before.get((line, is_unread), now)
                if now - since > (limits.seconds if is_unread else limits.reading_seconds):
                    line.transport.abort()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        write_log(event="ending")
        self._is_over.set()
        await super().shutdown(sockets)
        await asyncio.to_thread(self._desk.close)
        if self.service.journal is not None:
            self.service.journal.close()
        self._captured_signals.clear()  # it was asked to end, and has: that is no failure
        write_log(event="ended")


class _JsonHandler(logging.Handler):
    """Writes what uvicorn says as a line of JSON, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        lines = str(record.msg).splitlines() or [""]
        write_log(event=lines[0][:200], level=record.levelname.lower())
