"""A device that does not exist: tensors that say they are on an accelerator, and refuse to meet those of the CPU.

Every operation is done, on a CPU tensor inside, so that values and sizes that depend on values are real. An operation
on tensors here and there fails as it does with a GPU: only numbers without dimensions may come from the CPU. So does
reading the memory of a tensor here (`numpy`), which stands in no memory of the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda")
# Inside of torch they make a tensor on their input's device, which torch takes for the CPU. They have no gradient.
_FACTORIES = (F.one_hot, Tensor.new_tensor, Tensor.unique, torch.randint)


class There(Tensor):
    """A tensor on the device."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> There:
        made: There = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inside.shape, inside.stride(), inside.storage_offset(), dtype=inside.dtype
        )
        made.inside = inside
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    def tolist(self) -> Any:
        return self.inside.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a tensor of the device to numpy: copy it to the CPU first")

    __array__ = numpy

    def cpu(self, *_: Any) -> Tensor:
        return self.inside.clone()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        strangers = [leaf for leaf in inputs if not isinstance(leaf, There) and leaf.dim()]
        if torch._C._current_autograd_node() is not None:  # where torch itself fills in gradients of zero
            strangers = [leaf for leaf in strangers if leaf.any()]
        if strangers:
            raise RuntimeError(f"{function} met tensors of both devices, one of the CPU {strangers[0].shape}")
        made = function(*tree_map(_inside, args), **tree_map(_inside, kwargs or {}))
        for changed, leaf in zip(inputs, map(_inside, inputs), strict=True):
            if any(leaf is one for one in tree_leaves(made)):
                return changed  # an operation in place
        return tree_map(there, made)


def _inside(value: Any) -> Any:
    return value.inside if isinstance(value, There) else value


def there(value: Any) -> Any:
    return There(value) if isinstance(value, Tensor) and not isinstance(value, There) else value


class Accelerator(TorchFunctionMode):
    """Inside, the device exists: tensors can be made on it and moved to it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") == DEVICE:
            return there(function(*args, **(kwargs | {"device": "cpu"})))
        if function is Tensor.to and any(word == DEVICE or isinstance(word, There) for word in args[1:]):
            types = [word.dtype if isinstance(word, There) else word for word in args[1:] if word != DEVICE]
            return there(function(args[0], *types, **kwargs) if types or kwargs else args[0])
        if function in _FACTORIES and args and isinstance(args[0], There):
            return tree_map(there, function(args[0].inside, *args[1:], **kwargs))
        return function(*args, **kwargs)


def moved(module: nn.Module) -> nn.Module:
    """Puts the parameters and buffers of a module on the device."""
    for each in module.modules():
        for name, parameter in each._parameters.items():
            if parameter is not None:
                each._parameters[name] = nn.Parameter(there(parameter.data))
        for name, buffer in each._buffers.items():
            each._buffers[name] = there(buffer)
    return module
