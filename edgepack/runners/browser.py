"""Opens a page of this machine's own in a headless browser of the Chromium family and waits for what it
posts.

The page, and the folders that it may read, are served on loopback under a path that nobody can guess; nothing
but the browser is needed.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from edgepack.errors import ToolchainError
from edgepack.system.command_text import printed
from edgepack.system.deadline import TICK, check_time
from edgepack.system.paths import find_program
from edgepack.system.process import ask, kill_group, start
from edgepack.system.temporary import temporary_folder

__all__ = ["browse", "find_browser", "version_of"]

_NAMES = (
    *("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable"),
    *("chrome", "microsoft-edge", "msedge"),
)
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
_OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio"),
    *("--no-first-run", "--no-default-browser-check", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
_END = "end"

#: Bytes that a page may post, as many as a program may print, and what a post takes besides.
_MOST_POSTED, _OF_A_POST = 64 << 20, 256
#: Bytes at the end of what the browser prints that an error shows.
_LOGGED = 1 << 16


def find_browser(named: str | None = None) -> str | None:
    """The executable: the one that is named, or the first that is known and here."""
    names = [named] if named else [*_NAMES, *_PLACES]
    return next((found for name in names if (found := find_program(name))), None)


def version_of(browser: str) -> str:
    """``Chromium 156.0.8078.79``, or "" if it does not say so."""
    return " ".join(ask([browser, "--version"]).split()[:2])


def browse(
    browser: str,
    folders: Mapping[str, Path],
    page: str,
    *,
    timeout: float,
    flags: Sequence[str] = (),
    what: str = "The page",
) -> dict[str, bytes]:
    """Open ``page``, a URL relative to the server's root, and wait until it posts to ``end`` there.

    Args:
        folders: first part of a URL's path -> the folder that it is served from.
        timeout: seconds.
        flags: more options of the browser.
        what: what is run, for messages.

    Returns:
        all that the page posted to the root, by name: what it posts to ``NAME`` is joined.

    Raises:
        ToolchainError: the browser cannot be started, ended, posts more than 64 MiB, or the time is up; with
            the end of what was posted.
    """
    visit = _Visit(folders)
    with _served(visit) as root, temporary_folder() as profile:
        command = [browser, *_OPTIONS, f"--user-data-dir={profile}", *_sandbox(), *flags, root + page]
        with tempfile.TemporaryFile() as log:
            try:
                process = start(command, stdout=log, stderr=log)
            except OSError as error:
                raise ToolchainError(f"{browser} cannot be started: {error.strerror or error}.") from error
            try:
                _wait(process, visit, timeout, what)
            except ToolchainError as error:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOGGED))
                said = visit.text("stdout"), visit.text("stderr") + log.read().decode("utf-8", "replace")
                error.detail = printed(*said)
                raise
            finally:
                kill_group(process)
                process.wait()
    return {name: bytes(data) for name, data in visit.posts.items()}


class _Visit:
    """What is served, and what was posted."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = folders
        self.token = secrets.token_urlsafe(16)
        self.posts: dict[str, bytearray] = {}
        self.ended = threading.Event()
        self.too_much = False
        self._left = _MOST_POSTED
        self._lock = threading.Lock()

    def admits(self, nbytes: int) -> bool:
        """Whether so many bytes more may be posted; if not, the visit is over."""
        with self._lock:
            # What is known of a post takes memory too.
            self._left -= nbytes + _OF_A_POST
            if self._left < 0:
                self.too_much = True
                self.ended.set()
            return not self.too_much

    def keep(self, name: str, data: bytes) -> None:
        with self._lock:
            self.posts.setdefault(name, bytearray()).extend(data)

    def text(self, name: str) -> str:
        return self.posts.get(name, b"").decode("utf-8", "replace")


class _Handler(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - the base class has it so
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }
    protocol_version = "HTTP/1.1"

    def __init__(self, visit: _Visit, *arguments: Any) -> None:
        self.visit = visit
        super().__init__(*arguments)

    def translate_path(self, path: str) -> str:
        _, token, prefix, *rest = [*path.split("/", 3), "", ""]
        if token != self.visit.token or prefix not in self.visit.folders:
            return ""
        folder = self.visit.folders[prefix]
        self.directory = str(folder)
        found = super().translate_path("/" + rest[0])
        # A link that leads out of a folder is not there.
        return found if Path(found).resolve().is_relative_to(folder.resolve()) else ""

    def do_POST(self) -> None:
        _, token, name = [*self.path.split("/", 2), "", ""][:3]
        if token != self.visit.token:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "0")
        if not re.fullmatch(r"[0-9]{1,18}", length) or not self.visit.admits(int(length) + len(name)):
            self.close_connection = True
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        self.visit.keep(name, self.rfile.read(int(length)))
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()
        if name == _END:
            self.visit.ended.set()

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        # A page that is isolated from others gets the fine clock.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that is ended breaks its connections: nothing to tell."""


@contextmanager
def _served(visit: _Visit) -> Iterator[str]:
    """The URL of the root, while it is served."""
    server = _Server(("127.0.0.1", 0), partial(_Handler, visit))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{visit.token}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _sandbox() -> list[str]:
    """Chromium refuses to run as root in its sandbox."""
    return ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def _wait(process: subprocess.Popen[bytes], visit: _Visit, timeout: float, what: str) -> None:
    end = time.monotonic() + timeout
    while not visit.ended.wait(TICK):
        if process.poll() is not None and not visit.ended.wait(1):
            raise ToolchainError(
                f"The browser ended with exit code {process.returncode} while it ran {what}.",
                hint="In a container, the browser's sandbox may need: "
                "runner: {name: chromium, options: {flags: --no-sandbox}}.",
            )
        check_time()
        if time.monotonic() > end:
            raise ToolchainError(
                f"{what} did not end within {timeout:g} s.",
                hint="Give more time with --timeout, or look for what blocks it.",
            )
    if visit.too_much:
        raise ToolchainError(f"{what} posted more than {_MOST_POSTED >> 20} MiB, and was ended.")
