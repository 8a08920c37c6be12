"""The verb `quartet sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import (
    Changes,
    On,
    PastLabels,
    ProtocolName,
    SchemaFile,
    Source,
    TaskName,
    Views,
    open_database,
    write_picture,
)  # fmt: skip


def sample(
    source: Source,
    name: TaskName,
    schema: SchemaFile = None,
    views: Views = False,
    protocol: ProtocolName = None,
    past_labels: PastLabels = False,
    change: Changes = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the contexts (default: in the user's cache).")
    ] = None,
    on: On = None,
    draw: Annotated[
        Path | None, typer.Option(help="Draw the context of one seed, CRW beside BFS2, as an SVG picture.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which training seed to draw, counted from 0.")] = 0,
) -> None:
    """Gather the contexts of all seeds of a task into the cache, and show what was gathered."""
    from quartet.machine import Place

    Place.parse(on)
    task = open_database(source, schema, views).task(name)
    from quartet.cli.views.contexts import SamplingView, contexts_view
    from quartet.config import SamplingConfig, changes_from_text
    from quartet.contexts import default_cache, task_context
    from quartet.drawing import console, say, seed_svg
    from quartet.graph import TemporalGraph
    from quartet.tasks import SPLITS

    config = SamplingConfig().changed(**changes_from_text(change or []))
    task = task.under(protocol or "auto", past_labels)
    graph, folder = TemporalGraph.build(task.database), cache or default_cache()
    sampled = {}
    for split in SPLITS:
        view = SamplingView(graph, task.asked_seeds(split), config)
        context = task_context(task, graph, config, split, folder, view, on=on)
        sampled[split] = (context, view.seconds)
    console().print(contexts_view(sampled, config))
    say(f"Contexts are in {folder}")
    if draw is not None:
        write_picture(draw, seed_svg(task, graph, config, seed), f"the context of training seed {seed}")
