"""A device behind ssh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.support.sshd import Board, serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """The server of a module's tests."""
    with serve(tmp_path_factory.mktemp("sshd")) as board:
        yield board


@pytest.fixture
def board(server: Board, monkeypatch: pytest.MonkeyPatch) -> Board:
    """The device, with nothing on it."""
    monkeypatch.setenv("PATH", f"{server.client}{os.pathsep}{os.environ['PATH']}")
    server.behave()
    shutil.rmtree(server.home, ignore_errors=True)
    server.home.mkdir()
    return server
