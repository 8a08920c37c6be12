"""One tiny model for all tests of the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quartet.runs import TrainedModel, fit, load
from quartet.serve import Service
from tests.serve.small import Client, running, service_of, shop
from tests.tasks.small import CHURN
from tests.trained import QUICK, Heard


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("runs")
    model = fit(
        shop().task(CHURN), preset="small", runs=folder, cache=folder / "cache", listener=Heard(), **QUICK
    )
    return load(model.folder)


@pytest.fixture(scope="module")  # some modules add rows
def service(model: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Service:
    return service_of(model, tmp_path_factory.mktemp("journal") / "rows.journal")


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with running(service) as client:
        yield client
