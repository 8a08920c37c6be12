"""How hard Hypothesis tries: `suite` by default, `long` when QUARTET_TESTS=long is set.

`suite` draws the same examples every time, so that a test passes or fails for the code alone;
`long` draws new ones, twenty-five times as many, for the night.

Torch computes with one thread here: the tensors are small, and threads that wait for busy cores are slow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported
os.environ["QUARTET_CACHE"] = "off"  # what a test finds was not left there by another

settings.register_profile("suite", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "long", deadline=None, max_examples=2500, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("QUARTET_TESTS", "suite"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch with one thread, whatever was set before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
