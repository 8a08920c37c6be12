"""Which floating point type a model computes in.

bfloat16 halves the work where the hardware has it. Some virtual machines announce it and then end the process at
its first use, so on a CPU it is tried in another process first.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch

from quartet.errors import UsageError
from quartet.recipe import Precision

_TRIAL = """
import torch
with torch.autocast("cpu", torch.bfloat16):
    tokens = torch.randn(64, 64, requires_grad=True)
    torch.nn.functional.linear(tokens, torch.randn(64, 64)).sum().backward()
assert tokens.grad.isfinite().all()
"""


@cache
def has_bf16(device: str) -> bool:
    """Whether a device can train in bfloat16; a CPU is asked once, in a process that may die."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported()
    if device != "cpu":
        return False
    try:
        return (
            subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, timeout=120).returncode == 0
        )
    except subprocess.TimeoutExpired:
        return False


def autocast(device: str, precision: Precision = "auto") -> AbstractContextManager[Any]:
    """The context in which a model runs: bfloat16 on a GPU that has it, single precision on a CPU.

    On a CPU bfloat16 is used only when it is asked for: without the matrix units it is slower than fp32.
    """
    if precision == "fp32" or (precision == "auto" and (device == "cpu" or not has_bf16(device))):
        return nullcontext()
    if not has_bf16(device):
        raise UsageError("C02", f"this machine's {device} cannot compute in bf16", "say precision=fp32")
    return torch.autocast(device, torch.bfloat16)
