"""A compiler that is missing, fails, or hangs is answered with the command, its output, and what to try."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import ConfigError, ToolchainError
from edgepack.toolchains import resolve
from edgepack.toolchains.base import Toolchain
from tests.support.c_sources import SOURCES


def _toolchain(folder: Path, text: str, device: str = "linux-x86_64") -> Toolchain:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return resolve(load_device(device), str(path))


@pytest.mark.parametrize("family", ["zig", "gcc"])
def test_an_error_in_the_source_shows_command_and_message(family: str, folder: Path) -> None:
    toolchain = resolve(load_device("linux-x86_64"), family)
    with pytest.raises(ToolchainError) as caught:
        toolchain.compile_c(SOURCES / "broken.c", folder / "broken.o")
    assert f"compiling broken.c with {family} failed (exit code 1)" in caught.value.message
    assert "$ " in caught.value.detail
    assert "-c broken.c" in caught.value.detail
    assert "this_is_not_declared" in caught.value.detail
    assert "edgepack doctor --device linux-x86_64" in caught.value.hint


@pytest.mark.parametrize("family", ["zig", "gcc"])
def test_an_undefined_symbol_stops_the_link(family: str, folder: Path) -> None:
    toolchain = resolve(load_device("linux-x86_64"), family)
    toolchain.compile_c(SOURCES / "calls_missing.c", folder / "a.o")
    with pytest.raises(ToolchainError, match="not_defined_anywhere"):
        toolchain.link_shared(
            [folder / "a.o"], folder / "a.so", exported=["edgepack_model_test"], soname="a.so"
        )


def test_a_missing_compiler_says_what_was_looked_for_and_how_to_get_it(folder: Path) -> None:
    toolchain = _toolchain(
        folder, "extends: gcc\nexecutables: {cc: ['{target}-nocc', nocc]}\n", "raspberrypi2"
    )
    with pytest.raises(ToolchainError) as caught:
        toolchain.version()
    assert "no `cc` for raspberrypi2 (arm-linux-gnueabihf) is installed" in caught.value.message
    assert "arm-linux-gnueabihf-nocc, nocc" in caught.value.detail
    assert "apt install gcc-arm-linux-gnueabihf" in caught.value.hint


def test_a_compiler_for_another_machine_is_not_taken(folder: Path) -> None:
    toolchain = _toolchain(folder, "extends: gcc\nexecutables: {cc: [gcc]}\n", "raspberrypi4")
    with pytest.raises(ToolchainError) as caught:
        toolchain.version()
    assert "gcc (builds for x86_64" in caught.value.detail


def test_a_missing_zig_names_the_pip_package(folder: Path) -> None:
    toolchain = _toolchain(
        folder, "extends: zig\nexecutables: {zig: ['{python} -m no_such_zig', no-such-zig]}\n"
    )
    with pytest.raises(ToolchainError) as caught:
        toolchain.version()
    assert "pip install ziglang" in caught.value.hint
    assert "-m no_such_zig" in caught.value.detail


def test_a_compiler_that_hangs_is_ended(folder: Path) -> None:
    script = folder / "slow cc.py"
    script.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    text = f"extends: zig\ntimeout: 1\nexecutables:\n  zig:\n    - '{{python}} \"{script}\"'\n"
    toolchain = _toolchain(folder, text)
    with pytest.raises(ToolchainError) as caught:
        toolchain.compile_c(SOURCES / "two_exports.c", folder / "a.o")
    assert "did not end within 1 s" in caught.value.message
    assert "timeout:" in caught.value.hint


def test_two_objects_of_one_name_cannot_share_an_archive(folder: Path) -> None:
    toolchain = resolve(load_device("linux-x86_64"))
    with pytest.raises(ToolchainError, match="same file name"):
        toolchain.archive([folder / "a" / "x.o", folder / "b" / "x.o"], folder / "lib.a")


def test_a_device_without_the_family_says_which_it_has(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.write_text("extends: linux-x86_64\n", encoding="utf-8")
    own = tmp_path / "own.yaml"
    own.write_text("family: nvcc\nexecutables: {cc: [nvcc]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no compiler family 'nvcc'"):
        resolve(load_device(path), str(own))
    device = load_device(path).model_copy(update={"compilers": {}})
    with pytest.raises(ConfigError) as caught:
        resolve(device, "gcc")
    assert "no `compilers: gcc:`" in caught.value.message


def test_without_arms_gcc_the_hint_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError) as caught:
        resolve(load_device("cortex-m4"), "gcc-arm-none-eabi").version()
    assert "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi" in caught.value.hint
