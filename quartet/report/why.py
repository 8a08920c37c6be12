"""Why, in pictures and words: what the model goes by over all, and for the highest entities one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from quartet.drawing import bars_svg, steps_svg
from quartet.explain import Explanation, GlobalView, Use
from quartet.report.answer import number
from quartet.times import show_instant

_TINY = 5e-4  # of an effect: written with three decimals it is 0
_MOST_BARS, _MOST_CURVES, _MOST_LINES = 8, 4, 5
_KINDS = (
    ("parts", "Parts of the model"),
    ("columns", "Facts"),
    ("tables", "Tables"),
    ("links", "Links"),
    ("spans", "How long ago"),
)


def why_part(view: GlobalView | None, explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Returns the section on why: pictures of what is used, then each explanation."""
    used = () if view is None else ((title, getattr(view, kind)) for kind, title in _KINDS)
    curves = () if view is None else view.curves[:_MOST_CURVES]
    return {
        "num_seeds": view.num_seeds if view else 0,
        "base": view.base if view else 0.0,
        "pictures": [(title, _uses(uses, title)) for title, uses in used if uses],
        "curves": [(each.words, Markup(steps_svg(each.labels, each.scores, each.words))) for each in curves],
        "entities": [_entity(each) for each in explanations],
    }


def signed(effect: float) -> str:
    return f"{effect:+.3f}".replace("-", "−")


def _uses(uses: Sequence[Use], title: str) -> Markup:
    uses = [use for use in uses if use.effect >= _TINY] or uses[:1]
    return Markup(
        bars_svg([(use.words, use.effect, f"{use.effect:.3f}") for use in uses[:_MOST_BARS]], title)
    )


def _entity(one: Explanation) -> dict[str, Any]:
    name = one.name or one.key
    parts = [(p.words, p.effect, signed(p.effect)) for p in one.parts if abs(p.effect) >= _TINY]
    title = f"What moved {name} from {number(one.base)} to {number(one.score)}"
    strongest = sorted(one.columns, key=lambda each: (not each.name, -abs(each.effect)))[:_MOST_LINES]
    rows = sorted(one.rows, key=lambda each: -abs(each.effect))[:_MOST_LINES]
    return {
        "name": name,
        "score": one.score,
        "base": one.base,
        "predicted": one.predicted,
        "reasons": one.reasons(own=True),
        "picture": Markup(bars_svg(parts, title)),
        "columns": strongest,
        "rows": rows,
        "lookalikes": [
            {"name": each.name or each.key, "time": show_instant(each.time), "outcome": each.outcome}
            for each in one.lookalikes[:_MOST_LINES]
        ],
        "archetype": one.archetype,
        "changes": [change.words for change in one.changes],
    }
