"""Sizes of memory as people write them: `2GB`, `512 MiB`."""

from __future__ import annotations

import re

from quartet.errors import UsageError

_SHOWN = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS = {"": 1, "b": 1, **{unit.lower(): size for unit, size in _SHOWN.items()}}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_UNITS |= {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_WRITTEN = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)


def parse_size(value: str | int, where: str, least: int = 1) -> int:
    """Returns the bytes of a size such as `2GB` or `512 MiB`."""
    match = _WRITTEN.fullmatch(str(value).strip().lower())
    found = -1
    if match and match[2] in _UNITS and not isinstance(value, bool):
        found = int(float(match[1]) * _UNITS[match[2]])
    if found < least:
        raise UsageError("C02", f"{where} is {value!r}, which is no size", "write it as 2GB, 512MB or 1GiB")
    return found


def show_size(num_bytes: int) -> str:
    """Returns a size as people read it: `1.5 kB`, `2.0 GB`."""
    unit = max((unit for unit in _SHOWN if _SHOWN[unit] <= num_bytes), key=_SHOWN.__getitem__, default="")
    return f"{num_bytes / _SHOWN[unit]:.1f} {unit}" if unit else f"{num_bytes} bytes"
