"""A MariaDB server for the tests: a temporary data folder, started once and gone at the end.

Import the fixture `new_mysql_database` into a test module. It is a function that creates an empty
database and returns its URL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM
from socket import socket as Socket
from typing import Any

import pytest

from tests.postgres import free_port

USER = "tester"
PASSWORD = "s3cret/p@ss:word"
ENCODED_PASSWORD = "s3cret%2Fp%40ss%3Aword"
_SECONDS = 60  # in which a server starts

NewDatabase = Callable[..., str]
_STARTED = pytest.StashKey[NewDatabase]()


@pytest.fixture(scope="session")
def new_mysql_database(request: pytest.FixtureRequest) -> NewDatabase:
    """`new_mysql_database(*statements)`: creates a database, runs statements in it, returns its URL."""
    stash = request.config.stash
    if _STARTED not in stash:
        stash[_STARTED] = _start(request.config)
    return stash[_STARTED]


def _start(config: pytest.Config) -> NewDatabase:
    """A new server, which is stopped and removed when pytest ends, or at once if it does not start."""
    pytest.importorskip("pymysql")
    server, install = (_program(name) for name in ("mariadbd", "mariadb-install-db"))
    if server is None or install is None:
        pytest.skip("MariaDB is not installed (no mariadbd in PATH or /usr/sbin)")
    with ExitStack() as undone:
        folder = Path(tempfile.mkdtemp(prefix="my-"))
        undone.callback(shutil.rmtree, folder, ignore_errors=True)
        flags = ["--no-defaults", f"--datadir={folder / 'data'}"]
        user = ["--user=root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        with (folder / "log").open("w") as log:
            made = subprocess.run(
                [install, *flags, *user, "--auth-root-authentication-method=normal", "--skip-test-db"],
                stdout=log, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            assert made.returncode == 0, (folder / "log").read_text()
            socket, port = folder / "socket", free_port()
            process = subprocess.Popen(
                [server, *flags, *user, f"--socket={socket}", f"--port={port}", "--bind-address=127.0.0.1",
                 "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin",
                 f"--pid-file={folder / 'pid'}", "--default-time-zone=+02:00"],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        undone.callback(_stop, process)
        root = _root(socket, process, folder / "log")
        undone.callback(root.close)
        with root.cursor() as cursor:
            cursor.execute(f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY %s", (PASSWORD,))
        config.add_cleanup(undone.pop_all().close)
    return _creator(root, port)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _root(socket: Path, process: subprocess.Popen[bytes], log: Path) -> Any:
    """A connection of the server's owner, as soon as it answers."""
    import pymysql

    begin = time.monotonic()
    while not _answers(socket):
        is_dead = process.poll() is not None or time.monotonic() - begin > _SECONDS
        assert not is_dead, log.read_text()
        time.sleep(0.1)
    return pymysql.connect(user="root", unix_socket=str(socket), autocommit=True)


def _answers(socket: Path) -> bool:
    with Socket(AF_UNIX, SOCK_STREAM) as probe:
        return probe.connect_ex(str(socket)) == 0


def _creator(root: Any, port: int) -> NewDatabase:
    numbers = count(1)

    def run(statement: str) -> None:
        with root.cursor() as cursor:
            cursor.execute(statement)

    def create(*statements: str) -> str:
        name = f"test_{next(numbers)}"
        with root.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            cursor.execute(f"GRANT SELECT, SHOW VIEW ON {name}.* TO {USER}@'127.0.0.1'")
            cursor.execute(f"USE {name}")
            cursor.execute("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
            for statement in statements:
                cursor.execute(statement)
        return f"mysql://{USER}:{ENCODED_PASSWORD}@127.0.0.1:{port}/{name}"

    create.run = run  # type: ignore[attr-defined]
    return create
