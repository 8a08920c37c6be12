"""The staircase: a module imports only from the floors above it, and a few things have one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From top to bottom. Modules of one floor may import each other.
FLOORS = [
    "errors", "printable", "findings", "causal", "config", "files", "compiled", "times", "splits", "sandbox", "demo",
    "database.schema", "database.source", "database.columns", "database.names", "database.evidence",
    "database.time_readings", "database.infer_keys", "database.infer_links", "database.infer_times",
    "database.infer", "database.keys", "database.inherit", "database.hashing", "database.readers", "database.table",
    "database.relations", "database.structure", "database.database", "features", "database.describe",
    "tasks", "metrics", "baselines", "graph", "samplers", "cache", "contexts", "study.connectivity", "export",
    "recipe", "calibration", "tokens", "nn.dropout", "nn.attention", "nn.table_encoder", "nn.encoders",
    "nn.token_mix", "nn.local", "nn.branches", "nn.parts", "nn.model", "nn.relgt", "nn.message", "nn.hgt", "nn.sage",
    "nn.rgp", "nn.models", "nn.accumulate", "nn.precision", "nn.targets",
    "distributed", "memory", "checkpoint", "predict", "ensemble", "train", "boosting", "cost", "draw_curves", "run",
    "evaluate", "study", "tune", "board", "submit", "threads", "draw", "draw_context", "show", "show_context",
    "show_training", "show_study", "show_efficiency", "draw_study", "cli_models", "cli_tune", "cli_study", "cli",
    "__main__",
]  # fmt: skip
SENTINELS = {"NEVER", "STATIC", "None"}
# Where the times of rows are compared with something other than a sentinel, and why that is no leak.
NOT_CAUSAL = {
    # how many links were filled in later: a statistic for a warning, of rows with rows
    ("database.relations", "parent.known_at[relation.rows[linked]] > holder"),
}


def modules() -> dict[str, str]:
    """Name below `quartet` -> source text; the front door, which imports on demand, is left out."""
    found = {}
    for path in sorted((ROOT / "quartet").rglob("*.py")):
        parts = path.relative_to(ROOT / "quartet").with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path.read_text(encoding="utf-8")
    found.pop("")
    return found


MODULES = modules()


def floor(module: str) -> int:
    for place, name in enumerate(FLOORS):
        if module == name or module.startswith(f"{name}."):
            return place
    raise AssertionError(f"{module} has no floor: give it one in this file")


def imports(source: str) -> Iterator[str]:
    """The full names of all imported modules, wherever the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("module", [name for name in MODULES if name != "database"])
def test_imports_come_from_above(module: str) -> None:
    for name in imports(MODULES[module]):
        assert name != "quartet", "modules do not come in by the front door"
        if name.startswith("quartet."):
            imported = name.removeprefix("quartet.")
            assert floor(imported) <= floor(module), f"{module} imports {imported}, which is below it"


def importers(package: str) -> list[str]:
    return [name for name in MODULES if package in {i.split(".")[0] for i in imports(MODULES[name])}]


@pytest.mark.parametrize("package", ["pandas", "polars", "torch_frame"])
def test_nothing_here_imports_frames(package: str) -> None:
    assert importers(package) == []


def test_torch_begins_at_the_tokens() -> None:
    """What inspects, samples and shows answers at once: torch takes seconds to import."""
    assert all(floor(name) >= floor("tokens") for name in importers("torch"))
    assert not set(importers("torch")) & {"show", "show_context", "draw", "draw_context", "cli"}


def test_the_vault_is_opened_in_one_place() -> None:
    assert [name for name in MODULES if re.search(r"\bvault\.open\(", MODULES[name])] in ([], ["evaluate"])


def comparisons(source: str) -> Iterator[ast.Compare]:
    """The comparisons that have to do with `known_at`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            names = {getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(node)}
            if "known_at" in names:
                yield node


def test_times_of_rows_are_compared_in_one_place() -> None:
    found = {
        (name, ast.unparse(node))
        for name, source in MODULES.items()
        if name != "causal"
        for node in comparisons(source)
        if not SENTINELS & {ast.unparse(side) for side in (node.left, *node.comparators)}
    }
    assert found == NOT_CAUSAL


def test_the_one_predicate_is_where_it_should_be() -> None:
    assert [ast.unparse(node) for node in comparisons(MODULES["causal"])] == [
        "known_at <= time",
        "known_at < time",
    ]
