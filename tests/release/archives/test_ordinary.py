"""Archives that do no harm are read: those of edgepack's formats, and those that ordinary tools make."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.api import Bundle, export, pack
from edgepack.errors import CheckFailedError
from edgepack.formats.archives import Entry, write_tar_gz, write_zip
from edgepack.registry import EXPORT_FORMATS
from edgepack.release.archives import check_archive
from tests.release.archives.building import FOLDER, ar, deb, gzipped, link, tar, zip_of
from tests.support import fake
from workbench.stand_ins.android import make_ndk

_DEVICES = {
    "aar": "android-arm64",
    "arduino": "cortex-m4",
    "cmsis-pack": "cortex-m4",
    "esp-idf": "esp32-c3",
    "npm": "wasm32-wasi",
    "platformio": "cortex-m4",
    "xcframework": "macos-arm64",
    "zephyr": "cortex-m4",
}


Packed = Callable[[str], Bundle]


@pytest.fixture(scope="module")
def packed(
    small_bundle: Bundle, small_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Packed]:
    """The small model packed for a device, once; with its params in the library, but for this machine's."""
    folder = tmp_path_factory.mktemp("packed")

    @cache
    def bundle(device: str) -> Bundle:
        if device == "host":
            return small_bundle
        sdk = {"sdk": make_ndk(folder / "ndk")} if device == "android-arm64" else {}
        return pack(small_model, device, folder / device, params="embed", **sdk)

    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        yield bundle


@pytest.mark.parametrize("name", EXPORT_FORMATS.names())
def test_what_each_format_writes_is_good(name: str, packed: Packed, tmp_path: Path) -> None:
    made = export(packed(_DEVICES.get(name, "host")), name, tmp_path / "made")
    assert made
    for path in made:
        files = path.rglob("*") if path.is_dir() else [path]
        counts = [check_archive(file) for file in files if file.is_file()]
        assert any(counts), path.name


@pytest.mark.parametrize(
    "device",
    ["host", "macos-arm64", "cortex-m4", pytest.param("linux-aarch64", marks=pytest.mark.slow), "esp32-c3"],
)
def test_what_a_bundle_holds_is_good(device: str, packed: Packed) -> None:
    """Static libraries of each flavour are read; what is no archive is none."""
    files = [path for path in packed(device).path.rglob("*") if path.is_file()]
    counts = {path.suffix: check_archive(path) for path in files}
    assert counts.pop(".a") > 0
    assert not any(counts.values())


def test_the_import_library_of_a_dll_is_good(tmp_path: Path) -> None:
    """All of its members are called as the DLL."""
    (tmp_path / "x.def").write_text("LIBRARY x.dll\nEXPORTS\nfoo\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "dlltool",
        "-m",
        "i386:x86-64",
        "-d",
        "x.def",
        "-l",
        "x.dll.a",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert check_archive(tmp_path / "x.dll.a") == 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files, folders and long names, and a few links."""
    place = tmp_path / "folder"
    long = place / ("long" * 30)
    long.mkdir(parents=True)
    (place / "empty").mkdir()
    files: Mapping[Path, bytes] = {
        place / "a.txt": b"a" * 5000,
        place / "none": b"",
        long / ("name" * 25): b"x",
        place / "empty.zip": zip_of("a", "b/c"),
        place / "lib.a": ar({"a.o/": b"\x7fELF"}),
    }
    for path, data in files.items():
        path.write_bytes(data)
        path.chmod(0o755 if path.name == "lib.a" else 0o644)
    for path in (place, long, place / "empty"):
        path.chmod(0o755)
    return place


#: Files of the folder, with those in its archives.
_COUNT = 5 + 2 + 1


@pytest.mark.parametrize(
    "command",
    [
        "tar -cf OUT folder",
        "tar -C folder -czf OUT .",
        "tar -cJf OUT folder",
        "tar -cjf OUT folder",
        "tar --format=pax -cf OUT folder",
        "bsdtar -cf OUT folder",
        "bsdtar --format=gnutar -cf OUT folder",
        "bsdtar -C folder -czf OUT .",
        "bsdtar --format=zip -cf OUT folder",
        "zip -qr OUT folder",
        "zip -q0r OUT folder",
        "jar cf OUT folder",
        "jar cf0M OUT folder",
    ],
)
def test_what_ordinary_tools_make_is_good(command: str, folder: Path, tmp_path: Path) -> None:
    name, *options = command.split()
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    if name not in ("zip", "jar") and "--format=zip" not in options:
        (folder / "link").symlink_to("a.txt")
        (folder / "empty" / "up").symlink_to("../a.txt")
    out = tmp_path / ("out.jar" if name == "jar" else "out.zip" if "zip" in command else "out")
    options = [str(out) if one == "OUT" else one for one in options]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    subprocess.run([name, *options], cwd=tmp_path, capture_output=True, check=True, env=environment)
    expected = _COUNT + (name == "jar" and "0M" not in command)
    assert check_archive(out) == expected


def test_what_python_makes_is_good(folder: Path, tmp_path: Path) -> None:
    for form in ("zip", "tar", "gztar", "bztar", "xztar"):
        made = shutil.make_archive(str(tmp_path / f"of-{form}"), form, folder)
        assert check_archive(Path(made)) == _COUNT, form
    with tarfile.open(tmp_path / "gnu", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(folder, "x")
    assert check_archive(tmp_path / "gnu") == _COUNT
    with zipfile.ZipFile(tmp_path / "long", "w", zipfile.ZIP_DEFLATED) as long:
        with long.open("größe", "w", force_zip64=True) as content:
            content.write(b"x")
        long.writestr("b", b"y")
    content_of_long = bytearray((tmp_path / "long").read_bytes())
    for sizes in ((0xFFFFFFFF, 0xFFFFFFFF), (3, 1)):  # as Python 3.11.4 and later write it, and as before
        content_of_long[18:26] = struct.pack("<2I", *sizes)
        (tmp_path / "long").write_bytes(content_of_long)
        assert check_archive(tmp_path / "long") == 2
    content_of_long[18:26] = struct.pack("<2I", 3, 2)
    (tmp_path / "long").write_bytes(content_of_long)
    with pytest.raises(CheckFailedError, match="has sizes that were said otherwise"):
        check_archive(tmp_path / "long")


@pytest.mark.slow
def test_a_zip_of_more_entries_than_16_bits_say(tmp_path: Path) -> None:
    write_zip(tmp_path / "x.zip", [Entry(f"{number}", b"") for number in range(66000)], stored=True)
    assert check_archive(tmp_path / "x.zip") == 66000


def test_archives_that_do_no_harm_are_read(tmp_path: Path) -> None:
    good = gzipped(
        tar(("./", FOLDER), ("./lib", FOLDER), ("./lib/a.so", link("a.so.1")), ("./lib/a.so.1", {"size": 5}))
    )
    for content, count in ((good, 1), (deb(good), 5), (zip_of("a/", "a/b", "c"), 2), (b"text", 0), (b"", 0)):
        (tmp_path / "x").write_bytes(content)
        assert check_archive(tmp_path / "x") == count


def _noise(kind: str) -> Any:
    generator = np.random.default_rng(7)
    size = 8 << 20
    if kind == "float32":
        return generator.normal(size=size // 4).astype(np.float32)
    numbers = (generator.normal(size=size) * 30).astype(np.int8)
    numbers[generator.random(size) < float(kind)] = 0
    return numbers


_MORE_WEIGHTS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("0.1", "0.5", "0.99")]


@pytest.mark.parametrize("kind", ["float32", "0.9", *_MORE_WEIGHTS])
def test_weights_are_no_archive(kind: str, tmp_path: Path) -> None:
    """Among them numbers of which most are 0: their blocks often have a checksum that GNU tar takes."""
    (tmp_path / "weights").write_bytes(_noise(kind).tobytes())
    assert check_archive(tmp_path / "weights") == 0
    write_tar_gz(tmp_path / "x", [Entry("weights", tmp_path / "weights"), Entry("a.c", b"int a;\n")])
    assert check_archive(tmp_path / "x") == 2


@pytest.mark.parametrize(
    "content",
    [
        b"begin the day\nbegin 644 times\n",
        b'"""\nmodule.name\n~~~~~~~~~~~\n\nA module: mode=1.\n"""\n',
        b"numpy\nonnx\npyyaml\n",
        b"PK is a country",
        b"BZh is a text",
        b"\x7fELF" + b"PK\3\4 PK\1\2 PK\5\6" * 3 + bytes(99),
        bytes(20480),
        io.BytesIO(b"x" * 10240).getvalue(),
    ],
)
def test_a_text_or_a_program_is_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert check_archive(tmp_path / "x") == 0
