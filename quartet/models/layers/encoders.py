"""The components of a token besides its features (section 2.3, appendix A.1.4), and the mix of all of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.neighbours import neighbour_sums

_LAYER_NORM_EPS = nn.LayerNorm(1).eps


class TimeEncoder(nn.Module):
    """h_time of ages in days (eq. 20): a linear map of their waves, or with time="linear" of the age itself.

    Rows without a time count as age 0, and one more input tells them apart: its weights are the learned "no time"
    vector. `inputs` and `linear` are apart so that `Mix.fold` can fold what follows.
    """

    rate: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        rates = torch.logspace(0, -4, config.num_frequencies) if config.time == "sinusoid" else torch.empty(0)
        self.register_buffer("rate", rates, persistent=False)  # radians a day
        self.linear = nn.Linear(2 * len(rates) + 1 if len(rates) else 2, config.width)

    def inputs(self, age: Tensor) -> Tensor:
        days, has_none = age.nan_to_num()[..., None], age.isnan()[..., None].to(age.dtype)
        angle = days * self.rate
        waves = [angle.sin(), angle.cos()] if len(self.rate) else [days]
        return torch.cat([*waves, has_none], -1)  # (..., frequencies)

    def forward(self, age: Tensor) -> Tensor:
        return self.linear(self.inputs(age))  # (..., D)


class PositionEncoder(nn.Module):
    """h_pe of local tokens (eq. 21): a GIN over the causal links among them, started from noise.

    It is a quarter as wide as the model, with sums over neighbours and residuals. `inputs` and `linear` are apart for
    the same reason as in `TimeEncoder`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width // 4
        self.start = nn.Linear(1, width)
        self.epsilon = nn.Parameter(torch.zeros(config.position_layers))
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 2 * width),
                nn.LayerNorm(2 * width),
                nn.ReLU(),
                nn.Linear(2 * width, width),
                nn.LayerNorm(width),
                nn.ReLU(),
            )
            for _ in range(config.position_layers)
        )
        self.linear = nn.Linear(width, config.width)

    def inputs(self, noise: Tensor, edge: Tensor) -> Tensor:
        nodes = self.start(noise.reshape(-1, 1))  # (tokens, D/4)
        for epsilon, layer in zip(self.epsilon, self.layers, strict=True):
            # (1 + epsilon) x_i + the sum over neighbours x_j
            gathered = (1 + epsilon) * nodes + neighbour_sums(nodes, edge)
            nodes = nodes + layer(gathered)
        return nodes.unflatten(0, noise.shape)  # (..., D/4)

    def forward(self, noise: Tensor, edge: Tensor) -> Tensor:
        return self.linear(self.inputs(noise, edge))  # (..., D)


class Mix(nn.Module):
    """The mix of n components (eq. 22): W_mix of their LayerNorms side by side, by default a two-layer MLP.

    The first matrix is kept in one block for each component, because W [a | b] = W_a a + W_b b: components that depend
    on a row alone go through their block once for each distinct row, not once for each token.
    """

    def __init__(self, components: int, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        inside = 2 * width if config.mix == "mlp" else width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(components))
        whole = nn.Linear(components * width, inside)
        self.blocks = nn.ParameterList(block.clone() for block in whole.weight.detach().split(width, 1))
        self.bias = nn.Parameter(whole.bias.detach().clone())
        self.finish = (
            nn.Sequential(nn.ReLU(), nn.Linear(inside, width)) if config.mix == "mlp" else nn.Identity()
        )

    def block(self, number: int, component: Tensor) -> Tensor:
        """Returns what one component adds inside the mix: (..., D) to (..., M)."""
        return F.linear(self.norms[number](component), self.blocks[number])

    def forward(self, components: list[Tensor]) -> Tensor:
        inside = sum(
            (self.block(number, component) for number, component in enumerate(components)), self.bias
        )
        return self.finish(inside)  # (..., D)

    def fold(self, number: int, linear: nn.Linear) -> Folded:
        """Returns `block(number, linear(x))` as a function of the few inputs x, without their D-wide image.

        LN(A x + c): the mean is taken out of the columns of [A | c], and the variance is a quadratic form of [x | 1],
        so that block and LayerNorm need no more than a matrix as narrow as the inputs.
        """
        norm = self.norms[number]
        whole = torch.cat([linear.weight, linear.bias[:, None]], 1)  # (D, inputs + 1)
        centred = whole - whole.mean(0, keepdim=True)
        return Folded(
            form=centred.T @ centred / len(centred),
            weight=(self.blocks[number] * norm.weight) @ centred,
            bias=self.blocks[number] @ norm.bias,
        )


class Folded(NamedTuple):
    """A component's linear map, LayerNorm and block in one: weight @ normalised(x, form) + bias."""

    form: Tensor  # (inputs + 1, inputs + 1)
    weight: Tensor  # (M, inputs + 1)
    bias: Tensor  # (M,)


def normalised(inputs: Tensor, form: Tensor) -> Tensor:
    """Divides [x | 1] by the standard deviation of its D-wide image: (..., inputs + 1)."""
    inputs = F.pad(inputs, (0, 1), value=1.0)
    variance = (F.linear(inputs, form) * inputs).sum(-1, keepdim=True).clamp(min=0)
    return inputs * (variance + _LAYER_NORM_EPS).rsqrt()
