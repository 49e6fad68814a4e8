"""``edgepack tune`` on a board behind ssh, whose connections are lost now and then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import edgepack
from edgepack.commands import tune_device
from edgepack.config.tuned import read_tuned
from edgepack.runners.base import host_os
from tests.support.sshd import Board
from workbench.models import NETWORKS, save

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="the tests' sshd is set up for Linux")


@pytest.mark.slow
def test_a_board_that_drops_connections_is_tuned_all_the_same(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first round on each 23rd call of the client is closed before anything is done."""
    path, file = save(NETWORKS["mlp"](), tmp_path, "mlp.onnx"), tmp_path / "tuned.json"
    drops = tmp_path / "drops"
    client, calls = shutil.which("ssh"), tmp_path / "calls"
    wrapper = tmp_path / "unreliable" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"""#!/bin/sh
if [ -e "{drops}" ]; then
    echo >> "{calls}"
    if [ $(($(wc -l < "{calls}") % 23)) = 0 ]; then
        echo "Connection closed by remote host" >&2
        exit 255
    fi
fi
exec "{client}" "$@"
"""
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)
    monkeypatch.setattr(tune_device, "PAUSE", 0.1)

    def on_stage(stage: str, detail: str) -> None:
        if stage == "round 1":
            drops.touch()

    found = edgepack.tune(path, "host", file, trials=6, runner="ssh:board", progress=on_stage)
    assert found.where.startswith("board") and (found.trials, found.failed) == (6, 0)
    assert len(calls.read_text()) >= 2 * 23, "some were closed"
    assert read_tuned(file).tried
