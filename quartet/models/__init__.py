"""The models. Other rooms reach them through `quartet.registry`, which knows each by its name."""

from quartet.models.dial import Dial, Limits, turn
from quartet.models.portfolio import Fitting
from quartet.models.tree_text import checked_text

__all__ = ["Dial", "Fitting", "Limits", "checked_text", "turn"]
