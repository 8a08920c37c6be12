"""The house: rooms in their order, each entered by its front door, and a few things that have one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the ground up: a room imports only from those before it. CONTRIBUTING.md has the same list, with a line each.
ROOMS = [
    "errors", "findings", "causal", "listener", "machine", "times", "registry", "config", "database", "tasks",
    "features", "graph", "contexts", "drawing", "evaluation", "tokens", "training", "models", "recommend", "runs",
    "explain", "report", "serve", "paper", "demo", "cli", "__main__",
]  # fmt: skip
# By name, at the moment of use: a person's way up from a database to its tasks, and from a model to its reasons and its
# report; and the demo that is a source.
UPWARD = {
    ("database", "quartet.tasks"),
    ("database", "quartet.demo"),
    ("runs", "quartet.explain"),
    ("runs", "quartet.report"),
}
SENTINELS = {"NEVER", "STATIC", "None"}
# Where the times of rows are compared with something other than a sentinel, and why that is no leak.
NOT_CAUSAL = {
    # how many links were filled in later: a statistic for a warning, of rows with rows
    ("database.relations", "parent.known_at[relation.rows[linked]] > holder"),
}


def modules() -> dict[str, str]:
    """Returns the source of each module by its name below `quartet`; the front door of the package is left out."""
    found = {}
    for path in sorted((ROOT / "quartet").rglob("*.py")):
        parts = path.relative_to(ROOT / "quartet").with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path.read_text(encoding="utf-8")
    found.pop("")
    return found


MODULES = modules()


def room(module: str) -> str:
    return module.split(".")[0]


def imports(source: str, top_level: bool = False) -> Iterator[str]:
    """Yields the full names of all imported modules, wherever the import stands."""
    tree = ast.parse(source)
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("module", MODULES)
def test_a_room_is_entered_by_its_front_door_and_from_above(module: str) -> None:
    for name in imports(MODULES[module]):
        assert name != "quartet", "modules do not come in by the front door of the package"
        if not name.startswith("quartet."):
            continue
        imported = name.removeprefix("quartet.")
        if room(imported) == room(module):
            continue
        assert ROOMS.index(room(imported)) < ROOMS.index(room(module)), f"{module} reaches up to {imported}"
        assert imported == room(imported), f"{module} reaches into a drawer: {imported}"


def test_the_way_up_by_name_is_short() -> None:
    by_name = {
        (room(module), text)
        for module, source in MODULES.items()
        for text in re.findall(r"import_module\(\"([\w.]+)\"\)", source)
    }
    assert by_name <= UPWARD


def test_every_room_has_a_line_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in ROOMS[:-1]:
        assert re.search(rf"`{name}(\.py|/)`", text), name
    assert {room(module) for module in MODULES} == set(ROOMS)


def test_a_front_door_exports_what_others_use() -> None:
    """Names in `__all__` of a room are imported by another room, by the tests or by the benchmarks."""
    texts = [*MODULES.items()]
    for folder in ("tests", "benchmarks"):
        texts += [(str(path), path.read_text(encoding="utf-8")) for path in (ROOT / folder).rglob("*.py")]
    texts.append(("", (ROOT / "quartet" / "__init__.py").read_text(encoding="utf-8")))
    used: set[tuple[str, str]] = set()
    for module, source in texts:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quartet."):
                other = (node.module or "").removeprefix("quartet.")
                if other != room(module):
                    used |= {(other, alias.name) for alias in node.names}
    exported = {
        (name, export)
        for name in {room(module) for module in MODULES}
        if name in MODULES and "__all__" in MODULES[name]
        for export in ast.literal_eval(MODULES[name].split("__all__ = ")[1])
    }
    by_name = {("demo", "demo_folder"), ("tasks", "is_query"), ("report", "write_report")}  # see UPWARD
    assert exported - used - by_name == set()


def importers(package: str, top_level: bool = False) -> set[str]:
    return {
        name
        for name in MODULES
        if package in {imported.split(".")[0] for imported in imports(MODULES[name], top_level)}
    }


@pytest.mark.parametrize("package", ["polars", "torch_frame"])
def test_nothing_here_imports_frames(package: str) -> None:
    assert importers(package) == set()


def test_torch_begins_at_the_tokens() -> None:
    """Whoever inspects, samples or shows waits for no torch: it takes seconds to import."""
    assert all(
        ROOMS.index(room(name)) >= ROOMS.index("tokens") for name in importers("torch", top_level=True)
    )
    assert not {name for name in importers("torch") if room(name) == "cli"}


def test_the_vault_is_opened_in_one_place() -> None:
    assert {name for name in MODULES if re.search(r"\bvault\.open\(", MODULES[name])} <= {"runs.evaluate"}


def comparisons(source: str) -> Iterator[ast.Compare]:
    """Yields the comparisons that have to do with `known_at`."""
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
