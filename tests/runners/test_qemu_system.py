"""The runner for firmware on qemu's boards; tests/targets/test_cortex_m.py runs bundles with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.bundle.firmware.project import link_trial
from edgepack.config.device import load_device
from edgepack.errors import ToolchainError
from edgepack.runners import qemu_system, select_runner
from edgepack.toolchains import resolve


def test_a_board_that_qemu_lacks_is_named() -> None:
    device = load_device("cortex-m4")
    runner = device.runner.model_copy(update={"options": {"machine": "no-such-board"}})
    ok, _, hint = qemu_system.available(device.model_copy(update={"runner": runner}))
    assert not ok
    assert "no-such-board" in hint


def test_it_runs_firmware_only() -> None:
    ok, _, hint = qemu_system.available(load_device("linux-armv7"))
    assert not ok
    assert "os: none" in hint
    assert select_runner(load_device("cortex-m4")).name == "qemu-system"


def test_an_image_that_hangs_is_ended(tmp_path: Path) -> None:
    toolchain = resolve(load_device("cortex-m4"))
    (tmp_path / "trial_program.c").write_text("int main(void);\nint main(void) { for (;;) {} }\n")
    toolchain.compile_c(tmp_path / "trial_program.c", tmp_path / "main.o")
    link_trial(toolchain, [tmp_path / "main.o"], tmp_path / "hang.elf", tmp_path)
    with pytest.raises(ToolchainError, match=r"did not end within 0\.5 s"):
        qemu_system.run(toolchain.device, [tmp_path / "hang.elf"], timeout=0.5, cwd=tmp_path)
