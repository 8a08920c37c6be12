"""Small runs to report on, a report taken apart, and the names that would like to be more than names."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import yaml

from quartet.config import Recipe
from quartet.runs import TrainedModel, fit
from quartet.tasks import Task
from tests.trained import KINDS, TREES, Heard, opened, shop_tables

SCRIPT = "<script>alert(1)</script>"
NAMES = [
    SCRIPT,
    "=1+1",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "</table></script>&amp;",
    'O\'Neil, "Jo"',
]
_TASK = {"num_eval_timestamps": 2}  # so that protocols differ
_VOID = {"meta", "link", "input", "br", "img"}


def shop_task(folder: Path, kind: str = "binary_classification") -> Task:
    """A task of the small shop on disk; some customers have wild names, and a table of notes is called a script."""
    tables = shop_tables()
    names = [*NAMES, *tables["customers"]["full_name"].to_pylist()[len(NAMES) :]]
    customers = tables["customers"].set_column(
        tables["customers"].column_names.index("full_name"), "full_name", [names]
    )
    notes = (
        customers.select(["customer"])
        .append_column("<b>note</b>", [names])
        .rename_columns(["who", "<b>note</b>"])
    )
    schema = {
        "customers": {"pkey": "customer", "time_col": None, "fkeys": {}},
        "orders": {"pkey": "order", "time_col": "bought", "fkeys": {"customer": "customers"}},
        SCRIPT: {"pkey": None, "time_col": None, "fkeys": {"who": "customers"}},
    }
    database = opened({**tables, "customers": customers, SCRIPT: notes}, schema)
    path = folder / f"{kind}.yaml"
    path.write_text(
        yaml.safe_dump({"kind": "forecast", **KINDS[kind], **_TASK, "name": f"churn & {kind[:6]}"})
    )
    return database.task(str(path))


def shop_model(folder: Path, kind: str = "binary_classification", recipe: Recipe = TREES) -> TrainedModel:
    return fit(
        shop_task(folder, kind), recipe=recipe, runs=folder / "runs", cache=folder / "cache", listener=Heard()
    )


@dataclass
class Node:
    """An element of a page, what is in it, and its text."""

    tag: str
    attributes: dict[str, str]
    inside: list[Node] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def all(self, tag: str, **attributes: str) -> list[Node]:
        """Returns the elements inside that are called so and have these attributes; `_` stands for `-`."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        found = [self] if self.tag == tag and wanted.items() <= self.attributes.items() else []
        return found + [each for node in self.inside for each in node.all(tag, **attributes)]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]
        self.shape: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(node)
        self.shape.append((tag, tuple(name for name, _ in attrs)))
        if tag not in _VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Node(tag, {name: value or "" for name, value in attrs}))
        self.shape.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, (self.open[-1].tag, tag)
        self.shape.append((f"/{tag}", ()))
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for node in self.open:
            node.words.append(data)


def read_page(text: str) -> tuple[Node, list[tuple[str, tuple[str, ...]]]]:
    """Returns a page as a tree, and its shape: all tags in order, with the names of their attributes."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1, [node.tag for node in reader.open]
    return reader.root, reader.shape


def rows_of(table: Node) -> list[list[Node]]:
    """Returns the cells of a table's body, row by row."""
    return [row.inside for row in table.all("tbody")[0].all("tr")]
