"""The gradient of a batch, gathered part by part: only one part's activations are in memory at a time.

What the parts share is computed once, before them. Each part runs backward into it and stops there; when all
have, what they left goes on backward through it, once. The result is the gradient of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quartet.nn.model import Quartet, Shared
from quartet.tokens import TokenBatch

Loss = Callable[[Tensor, Tensor], Tensor]  # answers (b, outputs) and their places (b,) in the batch


def backward_in_parts(model: Quartet, batch: TokenBatch, loss: Loss) -> Tensor:
    """Adds the gradient of the parts' summed losses to the model's parameters; returns that sum."""
    shared = model.share(batch)
    ends: list[tuple[Tensor, Tensor]] = []
    cut = _cut(shared, ends)
    total = []
    for part in batch.parts:
        rows, place = part.row.unique(return_inverse=True)
        own = _with_rows(cut, rows)
        value = loss(model.answer(own, batch, replace(part, row=place)), part.seed)
        value.backward()
        total.append(value.detach())
        _give_back(own, cut, rows)
    ends = [(tensor, copy) for tensor, copy in ends if copy.grad is not None]
    torch.autograd.backward([tensor for tensor, _ in ends], [copy.grad for _, copy in ends])
    return torch.stack(total).sum()


def _with_rows(shared: Shared, rows: Tensor) -> Shared:
    """What a part needs of all rows: else each part would make a gradient as large as all rows."""
    if shared.local is None:
        return shared
    return replace(shared, local=shared.local._replace(row=shared.local.row.detach()[rows].requires_grad_()))


def _give_back(own: Shared, shared: Shared, rows: Tensor) -> None:
    """Adds the gradient of a part's rows to that of all rows."""
    if shared.local is None or own.local is None or own.local.row.grad is None:
        return
    whole = shared.local.row
    whole.grad = torch.zeros_like(whole) if whole.grad is None else whole.grad
    whole.grad.index_add_(0, rows, own.local.row.grad)


def _cut(value: Any, ends: list[tuple[Tensor, Tensor]]) -> Any:
    """The value with every tensor cut from its history; `ends` gets each with its copy."""
    if isinstance(value, Tensor):
        copy = value.detach().requires_grad_()
        ends.append((value, copy))
        return copy
    if isinstance(value, tuple):
        return type(value)(*(_cut(item, ends) for item in value))
    if is_dataclass(value):
        return replace(value, **{f.name: _cut(getattr(value, f.name), ends) for f in fields(value)})  # type: ignore[type-var]
    return value
