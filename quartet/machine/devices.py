"""Which device a network runs on, in which floating-point type, and how much memory is free there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from quartet.errors import ResourceError, UsageError, did_you_mean

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16"]

# Some virtual machines announce bfloat16 and then end the process at its first use: it is tried in another one.
_TRIAL = """
import torch
with torch.autocast("cpu", torch.bfloat16):
    tokens = torch.randn(64, 64, requires_grad=True)
    torch.nn.functional.linear(tokens, torch.randn(64, 64)).sum().backward()
assert tokens.grad.isfinite().all()
"""


def choose_device(wanted: str = "auto") -> str:
    """Returns the device to use: the wanted one, or with `auto` a GPU where there is one."""
    import torch

    if wanted not in get_args(Device):
        raise UsageError("C02", f'there is no device "{wanted}"' + did_you_mean(wanted, get_args(Device)))
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, is_there in available.items() if is_there)
    if not available[wanted]:
        raise ResourceError(
            "R02", f'torch finds no "{wanted}" device here', "say --device auto or --device cpu"
        )
    return wanted


@cache
def has_bf16(device: str) -> bool:
    """Tells whether a device can train in bfloat16; a CPU is asked once, in a process that may die."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device != "cpu":
        return False
    try:
        trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, timeout=120)
        return trial.returncode == 0
    except subprocess.TimeoutExpired:
        return False


def autocast(device: str, precision: Precision = "auto") -> AbstractContextManager[Any]:
    """Returns the context in which a network runs: bfloat16 on a GPU that has it, single precision elsewhere.

    On a CPU bfloat16 is used only when it is asked for: without matrix units it is slower than fp32.
    """
    import torch

    if precision == "fp32" or (precision == "auto" and (device == "cpu" or not has_bf16(device))):
        return nullcontext()
    if not has_bf16(device):
        raise UsageError("C02", f"this machine's {device} cannot compute in bf16", "say precision=fp32")
    return torch.autocast(device, torch.bfloat16)


# --- free memory --------------------------------------------------------------------------------------


def free_bytes(device: str = "cpu", root: Path = Path("/")) -> int:
    """Returns the memory that can still be had on a device; where nothing is known, as much as there could be.

    On Linux it is what the machine and the control groups around this process leave.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(device)[0]
    if device != "cpu" or not (root / "proc/meminfo").is_file():
        return sys.maxsize
    lines = (root / "proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min([available, *_left_by_groups(root)])


_GROUP_FILES = {
    "": ("memory.max", "memory.current"),  # version 2
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
}


def _left_by_groups(root: Path) -> Iterator[int]:
    """Yields what each control group around this process leaves: its limit less what is in use and not droppable."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if names not in _GROUP_FILES:
            continue
        base, (limit, usage) = root / "sys/fs/cgroup" / names, _GROUP_FILES[names]
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(base) or not (folder / limit).is_file():
                continue
            most = (folder / limit).read_text().strip()
            if most != "max":
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                dropped = stat.get(
                    "total_inactive_file", stat.get("inactive_file", 0)
                )  # the first in version 1
                yield int(most) - int((folder / usage).read_text()) + int(dropped)
