"""Sizes of memory as people write them: `2GB`, `512 MiB`."""

from __future__ import annotations

import re

from quartet.errors import UsageError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_UNITS |= {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_WRITTEN = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)


def parse_size(value: str | int, where: str) -> int:
    """Returns the bytes of a size such as `2GB` or `512 MiB`; above zero."""
    match = _WRITTEN.fullmatch(str(value).strip().lower())
    found = 0
    if match and match[2] in _UNITS and not isinstance(value, bool):
        found = int(float(match[1]) * _UNITS[match[2]])
    if found <= 0:
        raise UsageError("C02", f"{where} is {value!r}, which is no size", "write it as 2GB, 512MB or 1GiB")
    return found
