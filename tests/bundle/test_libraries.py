"""A damaged library does not end the process that is to load it."""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgepack
from edgepack.api import Bundle
from edgepack.bundle.layout import MANIFEST
from edgepack.errors import CheckFailedError
from edgepack.runners.base import host_os
from tests.support import fake
from tests.support.fake import ROOT

LINUX = pytest.mark.skipif(host_os() != "linux", reason="the damages are those of an ELF file")


@pytest.fixture
def library(small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library of a bundle that a test may damage; a loader that is asked for it fails the test."""
    root = shutil.copytree(small_bundle.path, tmp_path / "copy")
    artifact = small_bundle.manifest.artifact("shared")
    assert artifact is not None

    def loaded(path: str) -> None:
        raise CheckFailedError(f"{path} is loaded")

    monkeypatch.setattr(ctypes, "CDLL", loaded)
    return root / artifact.path


def _changed(place: int, data: bytes = b"\xff") -> Callable[[bytes], bytes]:
    return lambda whole: whole[:place] + data + whole[place + len(data) :]


@LINUX
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "it has 0 bytes"),
        (lambda data: data[:5000], "it has 5000 bytes"),
        (lambda data: data + b"\0", "bytes, [0-9]+ were packed"),
        (_changed(0), "it is no ELF file"),
        (_changed(18, struct.pack("<H", 243)), "it is for another machine"),
        (_changed(56, b"\0\0"), "it has 0 segments"),
        (_changed(36), "table of segments ends at byte"),
        (_changed(24), "it differs from what was packed"),  # the entry point, of which nothing depends
    ],
)
def test_a_damaged_library_is_not_loaded(
    damage: Callable[[bytes], bytes], message: str, check: bool, library: Path
) -> None:
    library.write_bytes(damage(library.read_bytes()))
    with pytest.raises(CheckFailedError, match=rf"cannot be loaded: .*{message}") as caught:
        edgepack.load(library.parent.parent, check=check)
    assert "Pack the model again" in caught.value.hint


def test_a_library_that_is_none_is_not_loaded(library: Path) -> None:
    library.unlink()
    with pytest.raises(CheckFailedError, match="it is not a file"):
        edgepack.load(library.parent.parent)
    library.mkdir()
    with pytest.raises(CheckFailedError, match="it is not a file"):
        edgepack.load(library.parent.parent)


@LINUX
def test_all_of_a_library_and_of_its_params_is_compared_on_demand(
    small_bundle: Bundle, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a digest in the manifest (of an earlier edgepack) only a whole look sees changed code."""
    root = library.parent.parent
    data = json.loads((root / MANIFEST).read_text())
    for artifact in data["artifacts"]:
        artifact.pop("loader_sha256", None)
    (root / MANIFEST).write_text(json.dumps(data))
    whole = library.read_bytes()
    library.write_bytes(_changed(24)(whole))
    with pytest.raises(CheckFailedError, match="is loaded"):
        edgepack.load(root)
    with pytest.raises(CheckFailedError, match="it differs from what was packed"):
        edgepack.load(root, check=True)
    library.write_bytes(whole)
    monkeypatch.undo()
    params = root / "params" / "small.params"
    params.write_bytes(params.read_bytes()[:-1] + b"\x55")
    edgepack.load(root).close()
    with pytest.raises(CheckFailedError, match=r"small\.params cannot be loaded: it differs"):
        Bundle(root).load(check=True)


def test_a_linker_whose_libraries_no_loader_takes_ends_the_pack(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, os: str, arch: str) -> str:
        raise ValueError("it has nothing to be loaded")

    fake.install("ok", monkeypatch.setattr)
    monkeypatch.setattr("edgepack.bundle.assemble.loader_digest", refuse)
    with pytest.raises(
        CheckFailedError, match=r"libsmall\.\w+ could not be loaded: it has nothing to be loaded"
    ):
        edgepack.pack(small_model, "host", tmp_path / "out")
    assert not (tmp_path / "out").exists()


#: Damages a library and the params, and loads and runs what is not refused; a crash ends it.
_FUZZ = """
import random, sys
from pathlib import Path
import numpy as np
import edgepack
from edgepack.errors import EdgepackError

root, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
files = [path for path in (root / "lib").glob("libsmall.*") if path.suffix != ".a"]
files += (root / "params").glob("*.params")
whole = {path: path.read_bytes() for path in files}
refused = 0
for _ in range(rounds):
    path = draw.choice(files)
    data = bytearray(whole[path])
    kind = draw.randrange(4)
    if kind == 0:
        del data[draw.randrange(len(data)):]
    elif kind == 1:
        start = draw.randrange(len(data))
        data[start:start + draw.choice((1, 8, 4096))] = draw.randbytes(draw.choice((1, 8, 4096)))
    else:
        reach = draw.choice((64, 1024, len(data)))
        for _ in range(draw.choice((1, 3, 50))):
            data[draw.randrange(min(reach, len(data)))] ^= 1 << draw.randrange(8)
    # A new file each time: an earlier one may be mapped.
    path.unlink()
    path.write_bytes(data)
    try:
        with edgepack.load(root, check=True) as session:
            session.run({spec.name: np.zeros(spec.shape, spec.dtype) for spec in session.inputs})
            assert bytes(data) == whole[path], "a damage was not seen"
    except EdgepackError:
        refused += 1
    path.unlink()
    path.write_bytes(whole[path])
edgepack.load(root, check=True).close()
print(refused)
"""


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 120), *(pytest.param(s, 10_000, marks=pytest.mark.slow) for s in range(2, 6))]
)
def test_no_damage_ends_the_process_when_all_is_compared(
    seed: int, rounds: int, small_bundle: Bundle, tmp_path: Path
) -> None:
    root = shutil.copytree(small_bundle.path, tmp_path / "copy")
    done = subprocess.run(
        [sys.executable, "-c", _FUZZ, str(root), str(seed), str(rounds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert int(done.stdout) > rounds * 0.9
