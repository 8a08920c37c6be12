"""The process that serves: uvicorn with limits, a journal, a watcher of the source, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
from threading import Event, Thread
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quartet.errors import UsageError
from quartet.serve.guard import LOOPBACK, write_log
from quartet.serve.service import Service
from quartet.serve.web import create_app

_SHORTEST_TOKEN = 16
_KEEP_ALIVE = 15
_MOST_HEAD = 16 * 1024


def check_token(host: str, token: str) -> None:
    """Raises an error where others than this machine could ask without a token, or by one that is soon guessed."""
    if host not in LOOPBACK and not token:
        what = f"others can reach {host}, and no token keeps them out"
        raise UsageError("H01", what, "set QUARTET_TOKEN to a secret, or serve on 127.0.0.1")
    if token and (
        len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        what = (
            f"QUARTET_TOKEN is shorter than {_SHORTEST_TOKEN} letters, or holds others than printable ASCII"
        )
        raise UsageError("H01", what, "make one: openssl rand -hex 32")


class Server(uvicorn.Server):
    """The server of one service. It listens at once, is ready when the model has answered once, and runs until the
    process is asked to end; questions under way are answered first."""

    def __init__(
        self, service: Service, host: str, port: int, token: str = "", watch: tuple[str, float] | None = None
    ) -> None:
        check_token(host, token)
        limits = service.limits
        self.service, self._watch = service, watch
        guard, self._desk = create_app(service, token)
        self._is_over = Event()
        logger = logging.getLogger("uvicorn.error")
        logger.handlers, logger.propagate = [_JsonHandler()], False
        logger.setLevel(logging.WARNING)
        super().__init__(
            uvicorn.Config(
                guard,
                host,
                port,
                http=_protocol(limits.reading_seconds, limits.seconds),
                ws="none",
                loop="asyncio",
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=limits.connections,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=int(limits.seconds) + 5,
                h11_max_incomplete_event_size=_MOST_HEAD,
            )
        )

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        write_log(event="ending")
        self._is_over.set()
        await super().shutdown(sockets)
        await asyncio.to_thread(self._desk.close)
        if self.service.journal is not None:
            self.service.journal.close()
        self._captured_signals.clear()  # it was asked to end, and has: that is no failure
        write_log(event="ended")


def _protocol(seconds: float, for_answer: float) -> type[H11Protocol]:
    """Returns the protocol that ends a connection whose request does not arrive in time, however slowly it trickles,
    and one whose answers nobody reads."""

    class Timed(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(seconds, self._give_up)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()  # the head is there, and the guard waits for the body
            elif self._deadline is None and not self.transport.is_closing():
                self._deadline = self.loop.call_later(seconds, self._give_up)

        def pause_writing(self) -> None:
            self._unread = self.loop.call_later(for_answer, self.transport.abort)
            super().pause_writing()

        def resume_writing(self) -> None:
            self._read()
            super().resume_writing()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            if (
                self.transport.get_write_buffer_size() and self._unread is None
            ):  # a close waits until all is read
                self._unread = self.loop.call_later(for_answer, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            self._read()
            super().connection_lost(exc)

        def _stop(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _read(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def _give_up(self) -> None:
            self._deadline = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.abort()

    return Timed


class _JsonHandler(logging.Handler):
    """Writes what uvicorn says as a line of JSON, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        write_log(
            event=str(record.msg).splitlines()[0][:200] if record.msg else "", level=record.levelname.lower()
        )
