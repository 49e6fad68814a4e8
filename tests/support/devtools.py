"""Chromium's DevTools protocol over pipes: what a page looks like, and what a screen reader is told of it."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgepack.runners import browser

__all__ = ["Page", "file_url", "open_page"]


class Page:
    """A page that is loaded."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._number, self._buffer, self._session = 0, b"", ""

    def call(self, method: str, **parameters: Any) -> Any:
        """A method of the protocol; AssertionError where it fails."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            data = os.read(self._reading, 1 << 16)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def load(self, url: str) -> None:
        """Open the URL and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, or of its promise, as JSON can have it."""
        how = {"returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def colour_scheme(self, scheme: str) -> None:
        """Prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def pixel(self, x: float, y: float) -> tuple[int, ...]:
        """Red, green and blue of a point of the page, of a screenshot."""
        clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        png = base64.b64decode(shot["data"])
        at, data = 8, b""
        while at < len(png):
            (size,) = struct.unpack_from(">I", png, at)
            if png[at + 4 : at + 8] == b"IDAT":
                data += png[at + 8 : at + 8 + size]
            at += size + 12
        # The first pixel of the first row: whatever the row's filter, what stands before it is zero.
        return tuple(zlib.decompress(data)[1:4])

    def accessible(self) -> list[tuple[str, str, str]]:
        """Role, name and description of what assistive technology sees."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            tuple(str(node.get(key, {}).get("value", "")) for key in ("role", "name", "description"))
            for node in nodes
            if not node["ignored"]
        ]  # type: ignore[misc]


@contextmanager
def open_page(url: str) -> Iterator[Page]:
    """A page in a headless browser, which is ended with it."""
    program = browser.find_browser()
    assert program is not None
    to_browser, writing = os.pipe()
    reading, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads from its descriptor 3 and writes to 4.
        arguments = [program, *browser._OPTIONS, *browser._sandbox(), "--remote-debugging-pipe"]
        arguments += [f"--user-data-dir={profile}", "--force-color-profile=srgb", "--window-size=1100,900"]
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            ["bash", "-c", script, "sh", *arguments],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (to_browser, from_browser):
            os.close(end)
        try:
            page = Page(reading, writing)
            page.load(url)
            yield page
        finally:
            process.kill()
            process.wait()
            for end in (reading, writing):
                os.close(end)


def file_url(path: Path) -> str:
    """Of a file on disk."""
    return path.resolve().as_uri()
