"""The gradient of a batch, gathered part by part: only one part's activations are in memory at a time.

What the parts share is computed once, before them. Each part runs backward into it and stops there, except for the
last: with it, what the others left goes on backward too, in one go. The result is the gradient of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from quartet.tokens import Part, TokenBatch, with_tensors
from quartet.training.network import PartModel, Shared

Answer = Callable[[Shared, TokenBatch, Part], Tensor]  # (b, outputs) of a part
Loss = Callable[[Tensor, Tensor], Tensor]  # answers (b, outputs) and their places (b,) in the batch


class PartAnswer(nn.Module):
    """`PartModel.answer` as a module's forward, which DistributedDataParallel can wrap and then synchronises.

    `no_sync` is DistributedDataParallel's: where nothing is synchronised, there is nothing to hold back.
    """

    def __init__(self, model: PartModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, shared: Shared, batch: TokenBatch, part: Part) -> Tensor:
        return self.model.answer(shared, batch, part)

    def no_sync(self) -> AbstractContextManager[None]:
        return nullcontext()


def backward_in_parts(
    model: PartModel, batch: TokenBatch, loss: Loss, last_answer: Answer | None = None
) -> Tensor:
    """Adds the gradient of the parts' summed losses to the model's parameters; returns that sum.

    `last_answer` is how the last part is answered (default: by the model). The backward pass from there is the only
    one that reaches every parameter.
    """
    shared = model.share(batch)
    ends: list[tuple[Tensor, Tensor]] = []

    def cut_off(tensor: Tensor) -> Tensor:
        """A copy without history; what it gathers goes on from the tensor itself at the end."""
        ends.append((tensor, tensor.detach().requires_grad_()))
        return ends[-1][1]

    cut: Shared = with_tensors(shared, cut_off)
    total = []
    *parts, last = batch.parts
    for part in parts:
        rows, place = part.row.unique(return_inverse=True)
        own = _with_rows(cut, rows)
        value = loss(model.answer(own, batch, replace(part, row=place)), part.seed)
        value.backward()
        total.append(value.detach())
        _give_back(own, cut, rows)
    value = loss((last_answer or model.answer)(shared, batch, last), last.seed)
    ends = [(tensor, copy) for tensor, copy in ends if copy.grad is not None]
    torch.autograd.backward(
        [value, *(tensor for tensor, _ in ends)], [None, *(copy.grad for _, copy in ends)]
    )
    return torch.stack([*total, value.detach()]).sum()


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
