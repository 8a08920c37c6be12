"""The page in a real browser: whoever types or picks an entity sees its score, the reasons and what was looked at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartet.runs import TrainedModel
from tests.browser import CHROMIUM, Tab, browser
from tests.drawing.inert import ATTACKS
from tests.serve.small import AT, TOKEN, Client, running, service_of

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def until(tab: Tab, script: str) -> None:
    """Waits until a script is true in the page."""
    end = time.monotonic() + 30
    while not tab.run(script):
        assert time.monotonic() < end, (script, tab.run("document.body.innerText"))
        time.sleep(0.05)


def enter(tab: Tab, name: str, text: str) -> None:
    tab.run(f"by('{name}').focus(); by('{name}').value = ''")
    tab.ask("Input.insertText", text=text)
    tab.run(f"by('{name}').dispatchEvent(new Event('change'))")


def test_type_pick_and_read(tab: Tab, client: Client, tmp_path: Path) -> None:
    tab.visit(f"http://127.0.0.1:{client.port}/")
    until(tab, "by('task').textContent === 'churn' && by('found').options.length > 0")
    enter(tab, "entity", "person ad")
    until(tab, "by('found').options.length === 1")
    enter(tab, "entity", tab.run("by('found').options[0].value"))  # as if it had been picked
    enter(tab, "at", AT)
    tab.run("by('ask').click()")
    until(tab, "by('reasons').children.length > 0")
    assert tab.run("by('who').textContent") == "Person Ad (C03)"
    told = client.ask("/predict", {"entities": ["C03"], "at": AT}).json["predictions"][0]
    assert float(tab.run("by('score').textContent")) == pytest.approx(told["calibrated"], rel=1e-3)
    until(tab, "by('context').naturalWidth > 100")
    enter(tab, "entity", "nobody")
    tab.run("by('ask').click()")
    until(tab, "!by('error').hidden && by('error').textContent.includes('nobody')")
    assert {url.split("/")[2] for url in tab.requests if url.startswith("http")} == {
        f"127.0.0.1:{client.port}"
    }
    assert [each for each in tab.messages if "422" not in each] == []  # the one about nobody, and no other
    tab.picture(tmp_path / "page.png")


@pytest.mark.parametrize("attack", ATTACKS)
def test_whatever_an_entity_is_called_stays_text(tab: Tab, client: Client, attack: str) -> None:
    key = f"evil {attack}"
    client.ask(
        "/rows", {"table": "customers", "rows": [{"customer": key, "full_name": attack, "city": attack}]}
    )
    tab.messages.clear()
    tab.visit(f"http://127.0.0.1:{client.port}/")
    until(tab, "by('found').options.length > 0")
    enter(tab, "entity", key)
    enter(tab, "at", AT)
    tab.run("by('ask').click()")
    until(tab, "by('reasons').children.length > 0 || !by('error').hidden")
    assert (
        tab.run("document.querySelectorAll('main script, main iframe, main a, main [onerror]').length") == 0
    )
    assert not [each for each in tab.messages if "dialog" in each or "pwned" in each]


def test_with_a_token_the_page_asks_for_it(tab: Tab, model: TrainedModel) -> None:
    with running(service_of(model), TOKEN) as client:
        tab.visit(f"http://127.0.0.1:{client.port}/")
        until(tab, "!by('locked').hidden")
        assert tab.run("by('task').textContent") == "Quartet"
        enter(tab, "token", TOKEN)
        until(tab, "by('task').textContent === 'churn'")
        enter(tab, "entity", "C03")
        tab.run("by('ask').click()")
        until(tab, "!by('answer').hidden")
        assert TOKEN not in tab.run(
            "location.href + JSON.stringify({...localStorage, ...sessionStorage}) + document.cookie"
        )
