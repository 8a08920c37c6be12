"""What the service counts, as Prometheus reads it."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from threading import Lock

_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 1.0, 3.0, 10.0, 30.0)


class Metrics:
    """Counts of requests by place, method and status, and how long they took."""

    def __init__(self) -> None:
        self.begun = time.time()
        self._lock = Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._count: Counter[str] = Counter()

    def request(self, place: str, method: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[place, method, status] += 1
            self._seconds[place] += seconds  # type: ignore[assignment]
            self._count[place] += 1
            for bound in _BUCKETS:
                self._buckets[place, bound] += seconds <= bound

    def text(self, gauges: dict[str, float]) -> str:
        """Returns all of it in the text format; `gauges` are what is so just now."""
        lines = ["# TYPE quartet_requests_total counter"]
        with self._lock:
            for (place, method, status), count in sorted(self._requests.items()):
                labels = f'path="{place}",method="{method}",status="{status}"'
                lines.append(f"quartet_requests_total{{{labels}}} {count}")
            lines.append("# TYPE quartet_request_seconds histogram")
            for place, count in sorted(self._count.items()):
                for bound in _BUCKETS:
                    number = self._buckets[place, bound]
                    lines.append(f'quartet_request_seconds_bucket{{path="{place}",le="{bound:g}"}} {number}')
                lines.append(f'quartet_request_seconds_bucket{{path="{place}",le="+Inf"}} {count}')
                lines.append(f'quartet_request_seconds_sum{{path="{place}"}} {self._seconds[place]:.6f}')
                lines.append(f'quartet_request_seconds_count{{path="{place}"}} {count}')
        gauges = gauges | {"uptime_seconds": time.time() - self.begun, "resident_bytes": _resident_bytes()}
        for name, value in gauges.items():
            lines += [f"# TYPE quartet_{name} gauge", f"quartet_{name} {value:.15g}"]
        return "\n".join(lines) + "\n"


def _resident_bytes() -> int:
    """Returns the memory of this process, where the system tells (Linux); else 0."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
