"""The base class of every network: it encodes a batch once and then answers one group of seeds after another."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quartet.config import ModelConfig, Recipe, with_tuples
from quartet.features import TableLayout
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.tasks import Seeds
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training.data import TrainingData, View
from quartet.training.logits import context_logits
from quartet.training.model import Fitted
from quartet.training.outputs import Output

_WEIGHTS, _SCHEMA = "weights.safetensors", "network.json"
_MOST_CODES = 64  # of a column that a tower reads: more of them name rows, and are learned by heart


@dataclass(frozen=True)
class ModelSchema:
    """The facts about the data that decide a network's parameters."""

    tables: tuple[TableLayout, ...]
    num_hops: int  # hop bins of the local sampler
    num_outputs: int = 1
    links: tuple[tuple[int, int], ...] = ()  # the places of child and parent table, each pair once
    columns: tuple[str, ...] = ()  # relational columns that the tower reads
    codes: tuple[
        tuple[int, int], ...
    ] = ()  # which of them are codes, and how many each has; 0: too many to read

    @property
    def sketch_size(self) -> int:
        return 4 + len(self.tables)


@dataclass(frozen=True, eq=False)
class Encoded:
    """The result of encoding a batch once. Subclasses add what else their network encodes.

    `backward_by_group` hands each group only the lines of its own rows, and `SeedGroup.row` then names places among
    those.
    """

    rows: Tensor  # (R, ...) a line for each distinct row of the batch


class Network(nn.Module):
    """A network: `network(batch)` gives (B, outputs) logits or standardised values. It is a `Model`."""

    readout: Any  # of `models/layers/readout.py`
    members = ()
    weights = ()
    is_refit = False
    chosen_readout: Mapping[
        str, Tensor
    ] = {}  # as validation has chosen it: before it saw the labels of validation

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__()
        self.config, self.schema = config, schema

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, batch: TokenBatch) -> Tensor:
        encoded = self.encode(batch)
        logits = torch.cat([self.forward_group(encoded, batch, group) for group in batch.groups])
        return torch.empty_like(logits).index_copy(0, batch.order, logits)  # (B, outputs)

    def encode(self, batch: TokenBatch) -> Any:
        """Computes once, as an `Encoded`, what all groups of a batch share."""
        raise NotImplementedError

    def views(self, encoded: Any, batch: TokenBatch, group: SeedGroup) -> dict[str, Tensor]:
        """Returns by name what the network has read of each seed of a group, each (b, ...), before it is joined.

        A name with a colon in it counts with what is named before the colon: `feature:seed` with `feature`.
        """
        raise NotImplementedError

    def joined(self, views: dict[str, Tensor]) -> Tensor:
        """Returns the (b, D) vectors that the readout reads, from all views."""
        raise NotImplementedError

    def forward_group(self, encoded: Any, batch: TokenBatch, group: SeedGroup) -> Tensor:
        """Returns the (b, outputs) logits of the seeds of one group."""
        return self.readout(self.joined(self.views(encoded, batch, group)), batch.columns[group.seed])

    def parts(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Returns all that the last steps put together, each (B, ...): the views, and what columns have become."""
        encoded = self.encode(batch)
        views = [self.views(encoded, batch, group) for group in batch.groups]
        parts = {}
        for name in views[0]:
            own = torch.cat([of_group[name] for of_group in views])
            parts[name] = torch.empty_like(own).index_copy(0, batch.order, own)
        return parts | ({"columns": self.readout.mixed(batch.columns)} if self.schema.columns else {})

    def of_parts(self, parts: dict[str, Tensor]) -> Tensor:
        """Returns the (B, outputs) logits of parts, of one seed or of several."""
        views = {name: part for name, part in parts.items() if name != "columns"}
        return self.readout.answer(self.joined(views), parts.get("columns"))

    def update_batch_stats(self, sketch: Tensor) -> None:
        """Updates running statistics in training, once a step: `sketch` is that of all its seeds."""

    def after_step(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Updates what no gradient reaches; `gathered` joins a tensor with those of other processes."""

    # --- a network as a model ------------------------------------------------------------------------

    @classmethod
    def new(cls, data: TrainingData, recipe: Recipe) -> Self:
        """Returns a network with random weights, whose first answer is the base rate."""
        torch.manual_seed(recipe.rng_seed)
        place = {name: number for number, name in enumerate(data.task.database.tables)}
        links = [(place[r.table], place[r.parent]) for r in data.task.database.relations]
        schema = ModelSchema(
            data.features.layouts,
            recipe.sampling.num_hops,
            data.output.num_outputs,
            tuple(dict.fromkeys(links)),
        )
        columns = data.columns("train") if recipe.model.tower else None
        if columns is not None:
            names = data.column_names
            schema = replace(schema, columns=names, codes=_code_sizes(names, data.highest_codes))
        network = cls(recipe.model, schema)
        gains = [data.gains.get(name, 0.0) for name in schema.columns]
        network.readout.begin(data.output.start(), columns, gains)
        if data.start is not None:
            network.readout.go_on_from(data.start)
        return network

    @classmethod
    def fit(
        cls,
        data: TrainingData,
        processes: Processes = ALONE,
        listener: Listener = SILENT,
        state: Path | None = None,
    ) -> Fitted | None:
        """Trains a network, from where `state` stands to the end of the recipe; None if it was stopped."""
        from quartet.training.cost import Pace  # they train networks, so they come after this page
        from quartet.training.trainer import Trainer

        with processes.first_alone():  # the others find the contexts in the cache
            data.context("train"), data.context("val")
        trainer = Trainer(data, processes)
        trainer.restore(state)
        processes.wait()  # until all have read the state, which goes away at the end
        listener.begin(Pace(trainer))
        if not trainer.run(listener, state):
            return None
        trainer.use_best()
        best, network = trainer.state.best, trainer.network
        assert best is not None
        chosen, validation = f"epoch {best.number + 1}", None
        network.chosen_readout = {name: t.clone() for name, t in network.readout.state_dict().items()}
        if data.recipe.refit == "always":
            validation = [network.logits(data.view, data.seeds["val"])]
            if not trainer.refit(listener):
                return None
            chosen += ", fitted further to train and validation"
        return Fitted(network, trainer.state.epochs, best, chosen, validation)

    def logits(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of seeds, of which a view shows the past."""
        precision, total = view.recipe.precision, len(seeds)
        parts = [
            context_logits(self, view.tokenizer, context, precision, listener, total)
            for context in view.contexts(seeds, self.schema.columns)
        ]
        return np.concatenate([np.empty((0, self.schema.num_outputs)), *parts])

    def fused(self, batch: TokenBatch) -> Tensor:
        """Returns the (B, D) vectors from which the last linear step makes logits: all that was read, as one."""
        encoded = self.encode(batch)
        vectors = torch.cat(
            [
                self.readout.vector(self.joined(self.views(encoded, batch, group)), batch.columns[group.seed])
                for group in batch.groups
            ]
        )
        return torch.empty_like(vectors).index_copy(0, batch.order, vectors)  # (B, D)

    def embeddings(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float64]:
        """Returns the (S, D) fused vectors of seeds, of which a view shows the past."""
        precision, total = view.recipe.precision, len(seeds)
        parts = [
            context_logits(self, view.tokenizer, context, precision, listener, total, self.fused)
            for context in view.contexts(seeds, self.schema.columns)
        ]
        return np.concatenate([np.empty((0, self.config.width)), *parts])

    def blend(self, logits: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return logits[0]

    @property
    def summary(self) -> str:
        return f"{self.num_parameters / 1e6:.2f} M parameters, width {self.config.width}"

    def save(self, folder: Path) -> None:
        save_file({name: t.cpu().contiguous() for name, t in self.state_dict().items()}, folder / _WEIGHTS)
        facts = asdict(self.schema) | {"is_refit": self.is_refit}
        (folder / _SCHEMA).write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Self:
        schema = json.loads((folder / _SCHEMA).read_text(encoding="utf-8"))
        tables = tuple(TableLayout(**with_tuples(table)) for table in schema["tables"])
        links, codes = (tuple(map(tuple, schema[name])) for name in ("links", "codes"))
        network = cls(
            recipe.model,
            ModelSchema(
                tables, schema["num_hops"], output.num_outputs, links, tuple(schema["columns"]), codes
            ),
        )
        network.load_state_dict(load_file(folder / _WEIGHTS))
        network.is_refit = bool(schema["is_refit"])
        return network.eval()


def _code_sizes(names: tuple[str, ...], highest: Mapping[str, float]) -> tuple[tuple[int, int], ...]:
    """Returns the places of code columns and how many codes each has in training; 0 where these are too many."""
    return tuple(
        (place, int(highest[name]) + 1 if highest[name] < _MOST_CODES else 0)
        for place, name in enumerate(names)
        if name in highest
    )
