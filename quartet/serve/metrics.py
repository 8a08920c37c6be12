"""What the service counts, as Prometheus reads it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 1.0, 3.0, 10.0, 30.0, float("inf"))


class Metrics:
    """Counts of requests by place, method and status, and how long they took. One thread counts and tells."""

    def __init__(self) -> None:
        self._begun, self._seconds = time.time(), dict[str, float]()
        self._requests, self._buckets = Counter[tuple[str, str, int]](), Counter[tuple[str, float]]()

    def request(self, place: str, method: str, status: int, seconds: float) -> None:
        self._requests[place, method, status] += 1
        self._seconds[place] = self._seconds.get(place, 0.0) + seconds
        self._buckets.update((place, most) for most in _BUCKETS if seconds <= most)

    def text(self, gauges: Mapping[str, float]) -> str:
        """Returns all of it in the text format; `gauges` are what is so just now."""
        lines = ["# TYPE quartet_requests_total counter"]
        for (place, method, status), count in sorted(self._requests.items()):
            labels = f'path="{place}",method="{method}",status="{status}"'
            lines.append(f"quartet_requests_total{{{labels}}} {count}")
        lines.append("# TYPE quartet_request_seconds histogram")
        for place, seconds in sorted(self._seconds.items()):
            name, of = "quartet_request_seconds", f'path="{place}"'
            counts = [self._buckets[place, most] for most in _BUCKETS]
            ends = [f"{most:g}".replace("inf", "+Inf") for most in _BUCKETS]
            lines += [f'{name}_bucket{{{of},le="{e}"}} {n}' for e, n in zip(ends, counts, strict=True)]
            lines += [f"{name}_sum{{{of}}} {seconds:.6f}", f"{name}_count{{{of}}} {counts[-1]}"]
        own = {"uptime_seconds": time.time() - self._begun, "resident_bytes": _resident_bytes()}
        for name, value in {**gauges, **own}.items():
            lines += [f"# TYPE quartet_{name} gauge", f"quartet_{name} {value:.15g}"]
        return "\n".join(lines) + "\n"


def _resident_bytes() -> int:
    """Returns the memory of this process, where the system tells (Linux); else 0."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
