"""Explanations on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from quartet.drawing import cell

if TYPE_CHECKING:
    from quartet.explain import Explanation, Explanations, ListedItem, ListExplanations


def explanations_view(explained: Explanations | ListExplanations, most: int) -> RenderableType:
    """Returns one explanation below the other."""
    lines: list[RenderableType] = []
    items: Sequence[Explanation | ListedItem] = explained.items
    for place, each in enumerate(items):
        lines += [cell("")] * bool(place) + [each.grid(most)]
    return Group(*lines)
