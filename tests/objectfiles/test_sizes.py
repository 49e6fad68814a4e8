"""Sizes of what is in built files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import InternalError
from edgepack.objectfiles.code_size import runtime_text_bytes, section_bytes, text_bytes
from edgepack.toolchains import resolve

SOURCE = "int four[4] = {1, 2, 3, 4};\nint f(int x) { return x + four[x & 3]; }\n"


def _object(folder: Path, device: str, name: str = "a") -> Path:
    (folder / f"{name}.c").write_text(SOURCE, encoding="utf-8")
    resolve(load_device(device)).compile_c(folder / f"{name}.c", folder / f"{name}.o")
    return folder / f"{name}.o"


def test_sections_of_an_elf_file_have_their_sizes(tmp_path: Path) -> None:
    sizes = section_bytes(_object(tmp_path, "linux-x86_64"))
    assert sizes[".data.four"] == 16
    assert sizes[".text.f"] > 0


def test_sections_of_another_format_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="no ELF file"):
        section_bytes(_object(tmp_path, "windows-x86_64"))


@pytest.mark.parametrize("device", ["linux-x86_64", "windows-x86_64", "macos-arm64", "wasm32-wasi"])
def test_code_is_counted_in_every_format(device: str, tmp_path: Path) -> None:
    code = text_bytes(_object(tmp_path, device))
    assert code is not None
    assert 4 <= code < 200


def test_the_runtime_is_what_is_left_without_the_kernels(tmp_path: Path) -> None:
    path = _object(tmp_path, "linux-x86_64")
    code = text_bytes(path)
    assert code is not None
    assert runtime_text_bytes(path, []) == code
    assert runtime_text_bytes(path, [path]) == 0
    assert runtime_text_bytes(path, [path, path]) == 0
    (tmp_path / "text.o").write_text("no object", encoding="utf-8")
    assert runtime_text_bytes(path, [tmp_path / "text.o"]) is None
