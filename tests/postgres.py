"""A PostgreSQL server for the tests: a temporary cluster, started once and gone at the end.

Import the fixture `new_database` into a test module. It is a function that creates an empty
database and returns its URL.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

USER = "tester"
PASSWORD = "s3cret/p@ss:word"
ENCODED_PASSWORD = "s3cret%2Fp%40ss%3Aword"


NewDatabase = Callable[..., str]
_STARTED = pytest.StashKey[NewDatabase]()


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest) -> NewDatabase:
    """`new_database(options="")`: creates a database (with options of CREATE DATABASE), returns its URL."""
    # Each module that imports a fixture has its own; the stash makes one server serve them all.
    stash = request.config.stash
    if _STARTED not in stash:
        stash[_STARTED] = _start(request.config)
    return stash[_STARTED]


def _start(config: pytest.Config) -> NewDatabase:
    """A new server, which is stopped and removed when pytest ends, or at once if it does not start."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (no initdb in PATH or /usr/lib/postgresql)")
    with ExitStack() as undone:
        folder = Path(tempfile.mkdtemp(prefix="pg-"))
        undone.callback(shutil.rmtree, folder)
        undone.callback(_stop, programs, folder)
        port = free_port()
        _give_to_server(folder)
        _create_cluster(programs, folder)
        _control(programs, folder, "start", "-l", folder / "log", "-o", _flags(folder, port))
        config.add_cleanup(undone.pop_all().close)
    return _creator(port)


def _stop(programs: Path, folder: Path) -> None:
    if (folder / "data" / "postmaster.pid").exists():
        _control(programs, folder, "stop", "-m", "immediate")


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl."""
    found = shutil.which("initdb")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "pg_ctl").is_file()), None)


def _server_user() -> str | None:
    """The user to run the server as: PostgreSQL refuses to run as root."""
    return "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None


def _give_to_server(folder: Path) -> None:
    if _server_user():
        shutil.chown(folder, _server_user())


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _create_cluster(programs: Path, folder: Path) -> None:
    password_file = folder / "password"
    password_file.write_text(PASSWORD)
    _give_to_server(password_file)
    _run(
        programs / "initdb", "-D", folder / "data", "-U", USER, "--pwfile", password_file,
        "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync",
    )  # fmt: skip


def _flags(folder: Path, port: int) -> str:
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    return f"{settings} -c fsync=off -c full_page_writes=off -c synchronous_commit=off"


def _control(programs: Path, folder: Path, action: str, *options: object) -> None:
    _run(programs / "pg_ctl", action, "-D", folder / "data", "-w", *options)


def _run(program: Path, *arguments: object) -> None:
    command = [str(program), *map(str, arguments)]
    # Output goes to a file: a server that inherits a pipe keeps it open, and reading it never ends.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command, user=_server_user(), cwd="/", stdout=output, stderr=subprocess.STDOUT, check=False
        )
        output.seek(0)
        assert done.returncode == 0, f"{program.name} failed: {output.read()}"


def _creator(port: int) -> NewDatabase:
    import psycopg

    numbers = count(1)

    def create(options: str = "") -> str:
        name = f"test_{next(numbers)}"
        server = psycopg.connect(
            host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres", autocommit=True
        )
        with server:
            server.execute(f"CREATE DATABASE {name} {options}".encode())
        return f"postgresql://{USER}:{ENCODED_PASSWORD}@127.0.0.1:{port}/{name}"

    return create
