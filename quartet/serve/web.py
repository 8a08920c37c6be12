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
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from starlette.exceptions import HTTPException

from quartet.errors import DataError, QuartetError, ResourceError, UsageError
from quartet.serve.guard import Guard, Refused
from quartet.serve.metrics import Metrics
from quartet.serve.service import Service

_PATH = re.compile(r"(?<![\w.:])(?:/[\w.@+ -]+){2,}/?|[A-Za-z]:\\[\w.\\ -]+")
_RETRY_SECONDS = 1
_MOST_LISTED = 10_000  # in any request; the limits of a service are lower
Key = StrictStr | StrictInt


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Question(_Strict):
    """Whose prediction is wanted, and when."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"entities": [3, 17], "at": "2013-12-01"},
                {"entities": [3], "at": "2013-12-01T06:00:00", "explain": True},
                {"top": 5},
            ]
        },
    )
    entities: list[Key] | None = Field(
        None,
        min_length=1,
        max_length=_MOST_LISTED,
        fail_fast=True,
        description="Keys of the entity table; those whom the task asks about, if absent.",
    )
    at: StrictStr | None = Field(
        None,
        max_length=40,
        description="A time such as 2024-06-01T12:00:00; the last of the database, if absent.",
    )
    explain: StrictBool = Field(False, description="Whether reasons are wanted, too.")
    top: StrictInt | None = Field(
        None,
        ge=1,
        le=1000,
        description="The highest scores alone; of classes the most probable of each entity, of items the best.",
    )


class NewRows(_Strict):
    """Rows of one table. A cell that is absent is empty; times are texts of ISO 8601."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "table": "weather",
                    "rows": [
                        {"observation_id": 26116, "airport_id": 3, "observed_at": "2013-12-31T23:00:00"}
                    ],
                }
            ]
        },
    )
    table: StrictStr = Field(min_length=1, max_length=200)
    rows: list[dict[str, Any]] = Field(min_length=1, max_length=_MOST_LISTED, fail_fast=True)


def create_app(service: Service, token: str = "") -> tuple[Guard, Desk]:
    """Returns the application, and where its questions wait; with a token, only who knows it is answered."""
    limits, metrics = service.limits, Metrics()
    app = FastAPI(
        title="Quartet",
        version=version("quartet-rdl"),
        description=f"Predictions of the task {service.model.record.name}, and rows that count at once.",
        docs_url=None,  # FastAPI's pages of documentation load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # the address to go to would be made from the request
        openapi_url="/openapi.json",
        responses={
            status: {"description": words}
            for status, words in {
                400: "The request cannot be read",
                401: "No token, or not the right one",
                413: "The request is too large",
                422: "What is asked for is not there, or of the wrong type",
                429: "Too many are waiting: ask again after Retry-After seconds",
                503: "Not ready, or it took too long: ask again after Retry-After seconds",
            }.items()
        },
    )
    desk = Desk(service)

    @app.post("/predict", summary="Predict", tags=["predictions"])
    async def predict(asked: Question) -> JSONResponse:
        if asked.entities is not None and len(asked.entities) > limits.entities:
            what = f"{len(asked.entities):,} entities are asked about, at most {limits.entities:,} at once"
            raise Refused(413, "H07", what, "ask several times")
        told = await desk.ask(
            "explain"
            if asked.explain or asked.entities is None
            else "predict",  # SQL says who is asked about
            lambda: service.predict(asked.entities, asked.at, asked.explain, asked.top),
        )
        return JSONResponse(told)

    @app.post("/rows", summary="Add rows", tags=["rows"])
    async def add_rows(new: NewRows) -> JSONResponse:
        if len(new.rows) > limits.rows:
            what = f"{len(new.rows):,} rows, at most {limits.rows:,} at once"
            raise Refused(413, "H07", what, "send several requests")
        return JSONResponse(await desk.ask("grow", lambda: service.add(new.table, new.rows)))

    @app.get("/entities", summary="Find entities by key or name", tags=["predictions"])
    async def entities(
        search: Annotated[str, Query(max_length=100)] = "", most: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> JSONResponse:
        _check_text(search)
        return JSONResponse({"entities": await desk.ask("explain", lambda: service.entities(search, most))})

    @app.get("/context.svg", summary="The rows around an entity, as a picture", tags=["predictions"])
    async def context(
        entity: Annotated[str, Query(max_length=200)], at: Annotated[str | None, Query(max_length=40)] = None
    ) -> Response:
        _check_text(entity)
        picture = await desk.ask("explain", lambda: service.picture(entity, at))
        return Response(picture, media_type="image/svg+xml")

    @app.get("/model", summary="What the model predicts, how good it was, what it reads", tags=["model"])
    async def about() -> JSONResponse:
        return JSONResponse(await desk.ask("explain", service.about, at_once=True))

    @app.get("/metrics", summary="Counts for Prometheus", tags=["health"])
    async def counts() -> Response:
        bound = service.bound
        gauges = {
            "ready": float(service.is_ready),
            "in_flight": float(desk.num_waiting),
            "rows_added": float(bound.num_added),
            "version": float(bound.version),
            "watch_errors": float(service.num_watch_errors),
        }
        return Response(metrics.text(gauges), media_type="text/plain; version=0.0.4")

    # Health and metadata in the words of the open inference protocol (KServe v2), and as Kubernetes asks by custom.
    @app.get("/healthz", summary="Whether the process lives", tags=["health"])
    @app.get("/v2/health/live", include_in_schema=False)
    async def live() -> JSONResponse:
        return JSONResponse({"live": True})

    @app.get("/readyz", summary="Whether it answers questions", tags=["health"])
    @app.get("/v2/health/ready", include_in_schema=False)
    async def readiness() -> JSONResponse:
        headers = {} if service.is_ready else {"Retry-After": str(_RETRY_SECONDS)}
        return JSONResponse({"ready": service.is_ready}, 200 if service.is_ready else 503, headers)

    @app.get("/v2", summary="The server, as KServe v2 describes it", tags=["model"])
    async def server() -> JSONResponse:
        return JSONResponse({"name": "quartet", "version": version("quartet-rdl"), "extensions": []})

    @app.get("/v2/models/{name}", summary="The model, as KServe v2 describes it", tags=["model"])
    async def metadata(name: str) -> JSONResponse:
        _check_name(name)
        record = service.model.record
        number = {"shape": [-1], "datatype": "FP64"}
        is_class = record.spec.facts.has_classes
        told = {
            "name": record.name,
            "versions": [service.model.members[0][0].key],
            "platform": "quartet",
            "inputs": [{"name": "entities", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [
                {"name": "predicted", "datatype": "BYTES", "shape": [-1]}
                if is_class
                else {"name": "score"} | number
            ],
        }
        return JSONResponse(told)

    @app.get("/v2/models/{name}/ready", summary="Whether the model answers", tags=["health"])
    async def model_readiness(name: str) -> JSONResponse:
        _check_name(name)
        told = {"name": service.model.record.name, "ready": service.is_ready}
        return JSONResponse(told, 200 if service.is_ready else 503)

    def _check_name(name: str) -> None:
        if name != service.model.record.name:
            raise Refused(404, "H04", "there is no such model")

    for name, kind in {"html": "text/html", "js": "text/javascript", "css": "text/css"}.items():
        text = files("quartet.serve").joinpath(f"page.{name}").read_text(encoding="utf-8")
        page = Response(text, media_type=kind)
        asgi: Any = page
        app.add_route("/" if name == "html" else f"/page.{name}", asgi, ["GET"], include_in_schema=False)
    app.exception_handler(Refused)(_refused)
    app.exception_handler(QuartetError)(_failed)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_not_there)
    guard = Guard(app, limits, metrics, token)
    guard.places |= {route.path for route in app.routes if hasattr(route, "path") and "{" not in route.path}
    return guard, desk


class Desk:
    """Lets questions wait for their turn: one thread each for predictions, for explanations, and for rows.

    A question whose time is over is no longer waited for; it counts until its work, which cannot be stopped, is done.
    """

    def __init__(self, service: Service) -> None:
        self._service, self.num_waiting = service, 0
        self._most, self._seconds = service.limits.in_flight, service.limits.seconds
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("predict", "explain", "grow")}

    async def ask(self, thread: str, work: Callable[[], Any], at_once: bool = False) -> Any:
        if not (self._service.is_ready or at_once):
            fix = "ask again in a moment; /readyz tells when it is ready"
            raise Refused(503, "H11", "the model is being loaded", fix, _RETRY_SECONDS)
        if self.num_waiting >= self._most:
            raise Refused(429, "H08", "too many questions are waiting", "ask again later", _RETRY_SECONDS)
        self.num_waiting += 1
        loop, future = asyncio.get_running_loop(), self._threads[thread].submit(work)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._done))
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # told to nobody who has left
        try:
            return await asyncio.wait_for(asyncio.shield(answer), self._seconds)
        except TimeoutError:
            future.cancel()
            what = f"the answer takes longer than {self._seconds:g} s"
            raise Refused(503, "H08", what, "ask for less at once", _RETRY_SECONDS) from None

    def _done(self) -> None:
        self.num_waiting -= 1

    def close(self) -> None:
        for pool in self._threads.values():
            pool.shutdown(wait=True)


def _check_text(text: str) -> None:
    if not text.isprintable() and text:
        raise Refused(422, "H05", "the text holds characters that cannot be shown")


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    return JSONResponse(error.body, error.status, headers)


async def _failed(_: Request, error: Exception) -> Response:
    """Says what is wrong with a question or with rows; what is wrong with the machine is not told."""
    assert isinstance(error, QuartetError)
    if isinstance(error, ResourceError):
        return await _refused(
            _, Refused(503, error.code, "the service lacks room just now", retry_after=_RETRY_SECONDS)
        )
    if not isinstance(error, (DataError, UsageError)):
        raise error
    what, fix = (_PATH.sub("…", text)[:2000] for text in (error.what, error.fix))
    return await _refused(_, Refused(422, error.code, what, fix))


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])[:200]
    what = f"{where}: {first['msg']}"[:500]
    return await _refused(_, Refused(422, "H06", what, "see /openapi.json"))


async def _not_there(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: ("H04", "there is no such place"), 405: ("H09", "this is not how to ask here")}
    code, what = words.get(error.status_code, ("H02", "the request cannot be read"))
    refused = Refused(error.status_code, code, what, "see /openapi.json")
    return JSONResponse(refused.body, error.status_code, error.headers)
