"""How much one request, and all of them together, may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is beyond any of these is refused before any work is done."""

    entities: int = 1000  # of one question
    explained: int = 10  # of them, with reasons
    rows: int = 1000  # that are added at once
    body: int = 2**20  # bytes of a request
    seconds: float = 30.0  # until a question must have its answer
    reading_seconds: float = 10.0  # until a request must have arrived, head and body
    in_flight: int = 64  # questions that wait or are being answered
    connections: int = 512
