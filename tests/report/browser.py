"""A headless Chromium, driven by the DevTools protocol over a pair of pipes."""

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

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
TIMEOUT_S = 90.0


def find_chromium() -> str | None:
    """The program; None where there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page. `requests` and `complaints` are what it asked for and what its console said."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._buffer = b""
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._is_loaded = False

    def open(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def visit(self, page: Path, *, width: int, is_dark: bool = False) -> None:
        """Show a file at a width; returns once it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._is_loaded = False
        self.call("Page.navigate", url=page.as_uri())
        while not self._is_loaded:
            self._take(self._receive())

    def ask(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path, *, max_height: int = 12_000) -> None:
        """The whole page as PNG."""
        width = self.ask("innerWidth")
        height = min(max_height, self.ask("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._take(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            new = os.read(self._from, 1 << 20)
            assert new, "the browser went away"
            self._buffer += new
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _take(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))
        elif method == "Page.loadEventFired":
            self._is_loaded = True


@contextmanager
def browsing(program: str, *, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in the folder `profile`, gone afterwards."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    # the protocol's pipes are the descriptors 3 and 4 of the browser
    wired = f'exec "$0" "$@" 3<&{in_read} 4>&{out_write}'
    process = subprocess.Popen(
        ["bash", "-c", wired, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(in_read, out_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(in_read)
    os.close(out_write)
    try:
        browser = Browser(in_write, out_read)
        browser.open()
        yield browser
        browser._session = ""
        browser.call("Browser.close")
        process.wait(timeout=TIMEOUT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
        os.close(in_write)
        os.close(out_read)
