"""The verb `quartet recipe`."""

from __future__ import annotations

from typing import Annotated

import typer

from quartet.cli.options import Changes, Json, ModelName, Preset


def recipe(
    model: ModelName = None,
    preset: Preset = "small",
    task: Annotated[
        str, typer.Option(metavar="DATASET/TASK", help="Show the preset's settings for this task.")
    ] = "",
    change: Changes = None,
    json: Json = False,
) -> None:
    """List every setting of a recipe: its value in a preset, the paper's default, and its meaning."""
    from quartet.config import Recipe, changes_from_text, recipe_fields

    values = Recipe.load(preset, task, model, **changes_from_text(change or [])).to_dict()
    if json:
        from json import dumps

        print(dumps(values))
        return
    from quartet.drawing import cell, console, new_grid

    def shown(value: object) -> str:
        if isinstance(value, tuple):
            return ",".join(value) or "(none)"
        return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    title = ""
    grid = new_grid(f"Recipe {preset}", "setting", "value", "default", "meaning")
    for part, each, meaning in recipe_fields():
        if part != title:
            title = part
            grid.add_row(cell(part, "bold"), "", "", "")
        value, default = shown(values[each.name]), shown(each.default)
        style = "" if value == default else "bold"
        grid.add_row(cell(f"  {each.name}", "cyan"), cell(value, style), cell(default, "dim"), cell(meaning))
    console().print(grid)
