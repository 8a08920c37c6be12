"""The service over HTTP: what can be asked where, in which words, and what is answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from quartet.errors import DataError, ResourceError, UsageError
from quartet.serve.guard import Guard, Refused
from quartet.serve.metrics import Metrics
from quartet.serve.service import Service

_PATH = re.compile(r"(?<![\w.:])(?:/[\w.@+ -]+){2,}/?|[A-Za-z]:\\[\w.\\ -]+")
_MOST_LISTED = 10_000  # in any request; the limits of a service are lower
_STATUSES = {
    400: "The request cannot be read",
    401: "No token, or not the right one",
    413: "The request is too large",
    422: "What is asked for is not there, or of the wrong type",
    429: "Too many are waiting: ask again after Retry-After seconds",
    503: "Not ready, or it took too long: ask again after Retry-After seconds",
}
_WORDS = {404: ("H04", "there is no such place"), 405: ("H09", "this is not how to ask here")}
_QUESTIONS: list[Any] = [
    {"entities": [3, 17], "at": "2013-12-01"},
    {"entities": [3], "at": "2013-12-01T06:00:00", "explain": True},
    {"top": 5},
]
_CELLS: Any = {"observation_id": 26116, "airport_id": 3, "observed_at": "2013-12-31T23:00:00"}


class Question(BaseModel):
    """Whose prediction is wanted, and when."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": _QUESTIONS})
    entities: list[StrictStr | StrictInt] | None = Field(
        None, min_length=1, max_length=_MOST_LISTED, fail_fast=True,
        description="Keys of the entity table; those whom the task asks about, if absent.",
    )  # fmt: skip
    at: StrictStr | None = Field(
        None,
        max_length=40,
        description="A time such as 2024-06-01T12:00:00; the last of the database, if absent.",
    )
    explain: StrictBool = Field(False, description="Whether reasons are wanted, too.")
    top: StrictInt | None = Field(
        None, ge=1, le=1000,
        description="The highest scores alone; of classes the most probable of each entity, of items the best.",
    )  # fmt: skip


class NewRows(BaseModel):
    """Rows of one table. A cell that is absent is empty; times are texts of ISO 8601."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"table": "weather", "rows": [_CELLS]}]}
    )
    table: StrictStr = Field(min_length=1, max_length=200)
    rows: list[dict[str, Any]] = Field(min_length=1, max_length=_MOST_LISTED, fail_fast=True)


def create_app(service: Service, token: str = "") -> tuple[Guard, Desk]:
    """Returns the application, and where its questions wait; with a token, only who knows it is answered."""
    limits, metrics, desk, record = service.limits, Metrics(), Desk(service), service.model.record
    app = FastAPI(
        title="Quartet",
        version=version("quartet-rdl"),
        description=f"Predictions of the task {record.name}, and rows that count at once.",
        docs_url=None,  # FastAPI's pages of documentation load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # the address to go to would be made from the request
        responses={status: {"description": words} for status, words in _STATUSES.items()},
    )

    @app.post("/predict", summary="Predict", tags=["predictions"])
    async def predict(asked: Question) -> Response:
        _check_count(len(asked.entities or ()), limits.entities, "entities")
        takes_long = asked.explain or asked.entities is None  # SQL says who is asked about
        question = asked.entities, asked.at, asked.explain, asked.top
        return _answer(await desk.ask("explain" if takes_long else "predict", service.predict, *question))

    @app.post("/rows", summary="Add rows", tags=["rows"])
    async def add_rows(new: NewRows) -> Response:
        _check_count(len(new.rows), limits.rows, "rows")
        return _answer(await desk.ask("grow", service.add, new.table, new.rows))

    @app.get("/entities", summary="Find entities by key or name", tags=["predictions"])
    async def entities(
        search: Annotated[str, Query(max_length=100)] = "", most: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> Response:
        _check_text(search)
        return _answer({"entities": await desk.ask("explain", service.entities, search, most)})

    @app.get("/context.svg", summary="The rows around an entity, as a picture", tags=["predictions"])
    async def context(
        entity: Annotated[str, Query(max_length=200)], at: Annotated[str | None, Query(max_length=40)] = None
    ) -> Response:
        _check_text(entity)
        return Response(await desk.ask("explain", service.picture, entity, at), media_type="image/svg+xml")

    @app.get("/model", summary="What the model predicts, how good it was, what it reads", tags=["model"])
    async def about() -> Response:
        return _answer(await desk.ask("explain", service.about, at_once=True))

    @app.get("/metrics", summary="Counts for Prometheus", tags=["health"])
    async def counts() -> Response:
        gauges = {
            "ready": service.is_ready, "in_flight": desk.num_waiting, "rows_added": service.bound.num_added,
            "version": service.bound.version, "watch_errors": service.num_watch_errors,
        }  # fmt: skip
        return Response(metrics.text(gauges), media_type="text/plain; version=0.0.4")

    # Health and metadata in the words of the open inference protocol (KServe v2), and as Kubernetes asks by custom.
    @app.get("/healthz", summary="Whether the process lives", tags=["health"])
    @app.get("/v2/health/live", include_in_schema=False)
    async def live() -> Response:
        return _answer({"live": True})

    @app.get("/readyz", summary="Whether it answers questions", tags=["health"])
    @app.get("/v2/health/ready", include_in_schema=False)
    async def readiness() -> Response:
        return _readiness({})

    @app.get("/v2", summary="The server, as KServe v2 describes it", tags=["model"])
    async def server() -> Response:
        return _answer({"name": "quartet", "version": version("quartet-rdl"), "extensions": []})

    @app.get("/v2/models/{name}", summary="The model, as KServe v2 describes it", tags=["model"])
    async def metadata(name: str) -> Response:
        check_name(name)
        is_class = record.spec.facts.has_classes
        kind = (
            {"name": "predicted", "datatype": "BYTES"} if is_class else {"name": "score", "datatype": "FP64"}
        )
        return _answer({
            "name": record.name, "versions": [service.model.members[0][0].key], "platform": "quartet",
            "inputs": [{"name": "entities", "datatype": "BYTES", "shape": [-1]}], "outputs": [kind | {"shape": [-1]}],
        })  # fmt: skip

    @app.get("/v2/models/{name}/ready", summary="Whether the model answers", tags=["health"])
    async def model_readiness(name: str) -> Response:
        check_name(name)
        return _readiness({"name": record.name})

    def _readiness(told: dict[str, Any]) -> Response:
        status, headers = (200, {}) if service.is_ready else (503, {"Retry-After": "1"})
        return _answer(told | {"ready": service.is_ready}, status, headers)

    def check_name(name: str) -> None:
        if name != record.name:
            raise Refused(404, "H04", "there is no such model")

    for path, kind in {"": "text/html", "page.js": "text/javascript", "page.css": "text/css"}.items():
        text = files("quartet.serve").joinpath(path or "page.html").read_text(encoding="utf-8")
        page: Any = Response(text, media_type=kind)
        app.add_route(f"/{path}", page, ["GET"], include_in_schema=False)
    for error in (
        Refused,
        DataError,
        UsageError,
        ResourceError,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(error, _refused)
    return Guard(app, limits, metrics, token), desk


class Desk:
    """Lets questions wait for their turn: one thread each for predictions, for explanations, and for rows.

    A question whose time is over is no longer waited for; it counts until its work, which cannot be stopped, is done.
    """

    def __init__(self, service: Service) -> None:
        self._service, self.num_waiting = service, 0
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("predict", "explain", "grow")}

    async def ask(self, thread: str, work: Callable[..., Any], *told: Any, at_once: bool = False) -> Any:
        limits = self._service.limits
        if not (self._service.is_ready or at_once):
            fix = "ask again in a moment; /readyz tells when it is ready"
            raise Refused(503, "H11", "the model is being loaded", fix)
        if self.num_waiting >= limits.in_flight:
            raise Refused(429, "H08", "too many questions are waiting", "ask again later")
        self.num_waiting += 1
        loop, future = asyncio.get_running_loop(), self._threads[thread].submit(work, *told)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._done))
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # told to nobody who has left
        try:
            return await asyncio.wait_for(asyncio.shield(answer), limits.seconds)
        except TimeoutError:
            future.cancel()
            what = f"the answer takes longer than {limits.seconds:g} s"
            raise Refused(503, "H08", what, "ask for less at once") from None

    def _done(self) -> None:
        self.num_waiting -= 1

    def close(self) -> None:
        for pool in self._threads.values():
            pool.shutdown(wait=True)


def _answer(told: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns JSON: times as texts, numbers that are none as null."""
    text = to_json(told, inf_nan_mode="null", serialize_unknown=True)
    return Response(text, status, headers, "application/json")


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise Refused(413, "H07", f"{count:,} {what}, at most {most:,} at once", "send several requests")


def _check_text(text: str) -> None:
    if not text.isprintable() and text:
        raise Refused(422, "H05", "the text holds characters that cannot be shown")


async def _refused(request: Request, error: Exception) -> Response:
    """Says what is wrong with a question or with rows; what is wrong with the machine is not told."""
    match error:
        case Refused():
            return error.answer
        case ResourceError():
            return Refused(503, error.code, "the service lacks room just now").answer
        case DataError() | UsageError():
            what, fix = (_PATH.sub("…", text)[:2000] for text in (error.what, error.fix))
            return Refused(422, error.code, what, fix).answer
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])[:200]
            return Refused(422, "H06", f"{where}: {first['msg']}"[:500], "see /openapi.json").answer
        case HTTPException():
            code, what = _WORDS.get(error.status_code, ("H02", "the request cannot be read"))
            return Refused(error.status_code, code, what, "see /openapi.json", error.headers).answer
    return Refused.broken(request.scope["reference"]).answer
