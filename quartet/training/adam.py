"""Adam over all parameters as one vector: a few large operations instead of some for each parameter.

torch's own classes import its compiler at their first step, which takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

_BETA, _BETA_SQUARE, _EPS = 0.9, 0.999, 1e-8


class Adam:
    """Adam with coupled weight decay (Kingma and Ba, 2015). `rate` is that of the last step."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float) -> None:
        self.parameters, self.weight_decay = list(parameters), weight_decay
        self.mean = torch.zeros_like(parameters_to_vector(self.parameters).detach())
        self.square = torch.zeros_like(self.mean)
        self.num_steps, self.rate = 0, 0.0

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> None:
        """Moves the parameters by a `flat` gradient."""
        self.num_steps, self.rate = self.num_steps + 1, rate
        if self.weight_decay:
            gradient = gradient.add(parameters_to_vector(self.parameters), alpha=self.weight_decay)
        self.mean.lerp_(gradient, 1 - _BETA)
        self.square.mul_(_BETA_SQUARE).addcmul_(gradient, gradient, value=1 - _BETA_SQUARE)
        spread = self.square.sqrt().div_(math.sqrt(1 - _BETA_SQUARE**self.num_steps)).add_(_EPS)
        change = torch.div(self.mean, spread, out=spread).mul_(-rate / (1 - _BETA**self.num_steps))
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, own in zip(self.parameters, change.split(sizes), strict=True):
            parameter.add_(own.view_as(parameter))


def flat(gradients: Sequence[Tensor | None], parameters: Sequence[nn.Parameter]) -> Tensor:
    """Returns the gradients of parameters as one vector, zero where there is none."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten() for g, p in pairs])
