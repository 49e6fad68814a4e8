"""What a page may do to who opened it. The browser is a script that posts what a page could."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import ToolchainError
from edgepack.runners import chromium
from edgepack.runners.base import with_settings
from edgepack.runners.browser import browse
from edgepack.system.deadline import OutOfTimeError, time_limit

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the browser is a script")

#: Of its programs, `post(name, length, data)` posts and gives the answer's status.
BROWSER = """#!{python}
import http.client, sys, time, urllib.parse
if "--version" in sys.argv:
    sys.exit()
url = urllib.parse.urlsplit(sys.argv[-1])
root = "/" + url.path.split("/")[1] + "/"
def post(name, data=b"", length=None):
    connection = http.client.HTTPConnection(url.netloc)
    connection.putrequest("POST", root + name)
    connection.putheader("Content-Length", str(len(data) if length is None else length))
    connection.endheaders()
    try:
        connection.send(data)
        return connection.getresponse().status
    except OSError:
        return 0
{program}
time.sleep(60)
"""


def fake(folder: Path, program: str) -> str:
    path = folder / "browser"
    path.write_text(BROWSER.format(python=sys.executable, program=program))
    path.chmod(0o755)
    return str(path)


def visit(folder: Path, program: str) -> dict[str, bytes]:
    return browse(fake(folder, program), {}, "page", timeout=50)


def test_what_a_page_posts_is_joined_by_name(tmp_path: Path) -> None:
    program = "post('stdout', b'a' * (1 << 20)); post('stdout', b'b'); post('end', b'0')"
    posts = visit(tmp_path, program)
    assert posts == {"stdout": b"a" * (1 << 20) + b"b", "end": b"0"}


@pytest.mark.parametrize(
    "program",
    [
        "while True: post('stdout', bytes(4 << 20))",
        "n = 0\nwhile True: n += 1; post(f'name{n}', bytes(4 << 20))",
        "post('stdout', b'', 512 << 20)",
        "post('stdout', b'', 10 ** 17)",
        "post('end', bytes(65 << 20))",
    ],
)
def test_a_page_that_posts_more_than_a_program_may_print_is_ended(program: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ToolchainError, match="The page posted more than 64 MiB, and was ended") as caught:
            visit(tmp_path, program)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert len(caught.value.detail) < 20000


def test_names_of_posts_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.runners.browser._MOST_POSTED", 1 << 16)
    with pytest.raises(ToolchainError, match="posted more than"):
        visit(tmp_path, "n = 0\nwhile True: n += 1; post(f'{n}')")


@pytest.mark.parametrize("length", ["-1", "x", "", "1e3", "9" * 5000])
def test_a_length_that_is_no_number_is_refused(length: str, tmp_path: Path) -> None:
    program = f"status = post('stdout', b'', {length!r}); post('status', str(status).encode()); post('end')"
    assert visit(tmp_path, program)["status"] == b"413"


@pytest.mark.parametrize("code", ["", "-5", "x", "1" * 5000])
def test_an_exit_code_that_is_none_is_an_error(code: str, tmp_path: Path) -> None:
    settings = {"name": "chromium", "program": fake(tmp_path, f"post('end', {code.encode()!r})")}
    device = with_settings(load_device("wasm32-wasi"), settings)
    with pytest.raises(ToolchainError, match="net ended without an exit code"):
        chromium.run(device, ["net"], timeout=50, cwd=tmp_path)


def test_time_for_all_of_it_ends_a_page(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError), time_limit(1):
        visit(tmp_path, "")
