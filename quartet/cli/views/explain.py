"""Explanations on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from quartet.drawing import cell

if TYPE_CHECKING:
    from quartet.explain import Explanations


def explanations_view(explained: Explanations, most: int) -> RenderableType:
    """Returns one explanation below the other."""
    lines: list[RenderableType] = []
    for place, each in enumerate(explained):
        lines += [cell("")] * bool(place) + [each.grid(most)]
    return Group(*lines)
