"""Chromium without a window, told what to do over a pipe by its DevTools protocol: nothing is installed for it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe", "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--force-device-scale-factor=1",
)  # fmt: skip


class Tab:
    """A page in the browser, and all that it has said: `messages` of the console, `requests`, and why some failed."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._read = 0, b""
        self.session = ""
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.refused: list[str] = []
        self._events: list[str] = []

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the answer of the browser to one command; what happens meanwhile is written down."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        asked |= {"sessionId": self.session} if self.session else {}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._message()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told["error"])
                answer: dict[str, Any] = told["result"]
                return answer

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has ended"
            self._read += piece
        line, self._read = self._read.split(b"\0", 1)
        told: dict[str, Any] = json.loads(line)
        method, about = told.get("method", ""), told.get("params", {})
        self._events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(each.get("value")) for each in about["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(about["exceptionDetails"]["text"])
        elif method == "Log.entryAdded":
            self.messages.append(about["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.messages.append(f"dialog: {about['message']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Network.loadingFailed":
            self.refused.append(about.get("blockedReason", about["errorText"]))
        return told

    def show(self, path: Path, scheme: str = "light", width: int = 1100, height: int = 900) -> None:
        """Opens a file, in the light or the dark theme, and waits until it is there."""
        self.visit(path.resolve().as_uri(), scheme, width, height)

    def visit(self, url: str, scheme: str = "light", width: int = 1100, height: int = 900) -> None:
        """Opens an address, and waits until it is there."""
        for room in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{room}.enable")
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self._events.clear()
        self.ask("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._message()

    def run(self, script: str) -> Any:
        """Returns the value of a script in the page."""
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def picture(self, path: Path, selector: str = "html", most: int = 20_000) -> None:
        """Writes a part of the page as a PNG."""
        box = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height} })()"
        )
        clip = {**box, "height": min(box["height"], most), "scale": 1}
        told = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Yields a page of a browser whose files are in a folder; it is gone afterwards."""
    assert CHROMIUM is not None
    read_there, write_here = os.pipe()
    read_here, write_there = os.pipe()

    def place() -> None:  # the browser reads commands from 3 and answers on 4
        inlet, outlet = os.dup(read_there), os.dup(write_there)
        os.dup2(inlet, 3)
        os.dup2(outlet, 4)

    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder)},
    )  # fmt: skip
    os.close(read_there)
    os.close(write_there)
    tab = Tab(write_here, read_here)
    try:
        targets = tab.ask("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        tab.session = tab.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        yield tab
    finally:
        os.close(write_here)
        os.close(read_here)
        process.terminate()
        process.wait(20)
