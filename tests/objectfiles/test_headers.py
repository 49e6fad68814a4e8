"""Headers of shared libraries that do not hold together are found before a loader reads them."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.config.device import Device, load_device
from edgepack.objectfiles.loading import check_headers, loader_digest
from edgepack.resources import PACKAGE
from edgepack.toolchains import resolve

#: A device for each format and width.
DEVICES = ("linux-aarch64", "linux-armv7", "macos-arm64", "windows-x86_64")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By device: a small library."""
    found = {}
    for name in DEVICES:
        toolchain = resolve(load_device(name), "zig")
        folder = tmp_path_factory.mktemp(name)
        source = PACKAGE / "trial" / "trial_library.c"
        toolchain.compile_c(source, folder / "x.o")
        output = folder / "libx.so"
        if load_device(name).os == "windows":  # without MinGW's C library, which zig compiles for a minute
            _link_alone(folder, output)
        else:
            toolchain.link_shared([folder / "x.o"], output, exported=["edgepack_trial"], soname="libx.so")
        found[name] = output.read_bytes()
    return found


def _link_alone(folder: Path, output: Path) -> None:
    (folder / "alone.c").write_text("__declspec(dllexport) int edgepack_trial(void) { return 1; }\n")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-shared", "-nostdlib"]
    flags = ["-s", "-Wl,--no-entry", "-fno-sanitize=all", "-fno-stack-protector"]
    environment = {**os.environ, **resolve(load_device("windows-x86_64"), "zig").environment}
    subprocess.run([*zig, *flags, "-o", output, folder / "alone.c"], check=True, env=environment)


def said(data: bytes, device: Device, folder: Path) -> str:
    """What is wrong; "" if nothing is."""
    path = folder / "library"
    path.write_bytes(data)
    try:
        check_headers(path, device.os, device.arch)
        loader_digest(path, device.os, device.arch)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", DEVICES)
def test_whole_libraries_pass_others_are_named(
    name: str, libraries: dict[str, bytes], tmp_path: Path
) -> None:
    device, data = load_device(name), libraries[name]
    assert said(data, device, tmp_path) == ""
    for length in (0, 3, 40, 70, len(data) // 2, len(data) - 1):
        text = said(data[:length], device, tmp_path)
        assert "the file at byte" in text or "it is no" in text or not length, (length, text)
        assert text.isprintable() and text, length
    for other, wrong in libraries.items():
        if other != name:
            assert said(wrong, device, tmp_path).startswith(("it is no ", "it is for another machine ")), (
                other
            )


def _patched(data: bytes, offset: int, form: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, offset, *values)
    return bytes(changed)


def _segment(data: bytes, kind: int) -> int:
    """Offset of the first segment of this kind, of 64 bits."""
    at, each, count = struct.unpack_from("<Q", data, 32)[0], 56, struct.unpack_from("<H", data, 56)[0]
    return int(
        next(at + i * each for i in range(count) if struct.unpack_from("<I", data, at + i * each)[0] == kind)
    )


def test_each_defect_of_an_elf_file_is_told(libraries: dict[str, bytes], tmp_path: Path) -> None:
    data, device = libraries["linux-aarch64"], load_device("linux-aarch64")
    load, dynamic = _segment(data, 1), _segment(data, 2)
    (tags,) = struct.unpack_from("<Q", data, dynamic + 8)
    defects = {
        "machine 62": _patched(data, 18, "<H", 62),
        "ELF class 1": _patched(data, 4, "B", 1),
        "not that of a shared library": _patched(data, 16, "<H", 1),
        "0 segments": _patched(data, 56, "<H", 0),
        "table of segments ends": _patched(data, 32, "<Q", 1 << 40),
        "table of sections ends": _patched(data, 40, "<Q", 1 << 63),
        "segment 2 ends": _patched(data, load + 56 + 32, "<Q", 1 << 30),
        "aligned to 3": _patched(data, load + 48, "<Q", 3),
        "has the address": _patched(data, load + 40, "<Q", 1 << 45),
        "does not fit into its place": _patched(data, load + 40, "<Q", 1),
        "0 dynamic sections": _patched(data, dynamic, "<I", 4),
        "has no end": _patched(data, dynamic + 32, "<Q", 32),
        "is not loaded": _patched(data, dynamic + 16, "<Q", 1 << 40),
        "names what is not loaded": _patched(data, tags, "<2Q", 7, 1 << 33),
        "lacks tag 5": _patched(data, tags, "<2Q", 0, 0),
    }
    for text, changed in defects.items():
        assert text in said(changed, device, tmp_path), text


@pytest.mark.parametrize("name", DEVICES)
def test_damaged_headers_are_one_sentence_or_the_digest_differs(
    name: str, libraries: dict[str, bytes], tmp_path: Path
) -> None:
    """Whatever is changed where the loader looks: a ValueError, or another digest than before."""
    device, data, draw = load_device(name), libraries[name], random.Random(name)
    path = tmp_path / "library"
    path.write_bytes(data)
    digest = loader_digest(path, device.os, device.arch)
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 4))):
            place = draw.randrange(min(len(data), draw.choice((128, 1024, len(data)))))
            changed[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        path.write_bytes(changed)
        try:
            check_headers(path, device.os, device.arch)
            same = loader_digest(path, device.os, device.arch) == digest
        except ValueError:
            continue
        if same:
            # Bytes between the sections, which nobody reads.
            differing = [i for i, (a, b) in enumerate(zip(data, changed, strict=True)) if a != b]
            assert all(i > 256 for i in differing), differing
