"""The documentation runs: pages name only what there is, and the page for beginners works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from quartet.config import Recipe, SamplingConfig, changes_from_text
from tests.pages import COMMANDS, PAGES, ROOT, blocks, commands, run, with_examples

LOG = ROOT / "docs" / "log.md"  # history: it speaks of what there was
STARTED = ROOT / "docs" / "getting-started.md"
NAMES = {page: str(page.relative_to(ROOT)) for page in PAGES}
CURRENT = [page for page in PAGES if page != LOG and page.name != "CHANGELOG.md"]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


def test_every_page_is_in_the_index() -> None:
    index = text_of(ROOT / "docs" / "README.md")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def verb(words: list[str]) -> tuple[click.Command, list[str]]:
    """Returns the command that some words call, and the words that are left for it."""
    command: Any = COMMANDS
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    return command, words


def parsed(words: list[str]) -> dict[str, Any]:
    """Returns the options of a `quartet` command, refused as the command line would refuse them; nothing runs."""
    command, rest = verb(words)
    return command.make_context(command.name, [word for word in rest if word != "…"]).params


@pytest.mark.parametrize("page", CURRENT, ids=NAMES.get)
def test_commands_have_these_options_and_fields(page: Path) -> None:
    for program, *words in commands(page):
        if program != "quartet" or words[0].startswith("-"):
            continue
        changes = changes_from_text(parsed(words).get("change") or [])
        assert (SamplingConfig if words[0] == "sample" else Recipe)().changed(**changes)


def test_options_in_the_text_exist() -> None:
    known = set(re.findall(r"--[\w-]+", text_of(ROOT / "Makefile"))) | {"--nproc-per-node", "--help"}
    open_commands: list[Any] = [COMMANDS]
    while open_commands:
        command = open_commands.pop()
        open_commands += getattr(command, "commands", {}).values()
        known |= {option for parameter in command.params for option in parameter.opts}
    for page in CURRENT:
        for code in re.findall(r"`([^`\n]+)`", text_of(page)):
            if not code.startswith("python"):  # benchmarks have options of their own
                assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code)) <= known, f"{page.name}: {code}"


def test_the_map_of_the_paper_names_what_there_is() -> None:
    rows = re.findall(r"^\|[^|]+\| (`[\w/]+\.py`.*?) \|$", text_of(ROOT / "docs" / "paper.md"), re.MULTILINE)
    assert len(rows) > 30
    for row in rows:
        source = ""
        for code in re.findall(r"`([^`]+)`", row):
            if code.endswith(".py"):
                source = (ROOT / "quartet" / code).read_text(encoding="utf-8")
            elif re.fullmatch(r"[A-Za-z_.]+", code):
                for name in code.split("."):
                    assert re.search(rf"\b{name}\b", source), f"{code} in: {row}"


def test_the_beginning_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_examples(tmp_path, monkeypatch)
    [(_, task)] = blocks(STARTED, "yaml")
    assert task == text_of(tmp_path / "examples" / "churn.yaml")
    for words in commands(STARTED):
        run(words, monkeypatch)
    assert len(Path("scores.csv").read_text().splitlines()) == 1 + 62  # who ordered in the last 60 days
    names: dict[str, Any] = {}
    for _, block in blocks(STARTED, "python"):
        exec(compile(block, STARTED.name, "exec"), names)
    assert not names["task"].check()
    assert names["model"].validation > 0.9
