"""Files of NumPy's that a user gives: what numpy.save and numpy.savez write is read, whatever is not is
refused before it takes memory or time."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.compiler.frontend import array_files
from edgepack.compiler.frontend.array_files import ArrayFileError, open_arrays
from edgepack.compiler.frontend.onnx.quantise.samples import given_samples
from edgepack.compiler.frontend.onnx.user_arrays import read_array, user_input
from edgepack.errors import ConfigError
from edgepack.plan.types import TensorSpec

SPEC = TensorSpec("x", "float32", (1, 3))
FORM = "{'descr': %r, 'fortran_order': False, 'shape': %s, }\n"


def npy(header: str | bytes, data: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    """A file with this header, of this length as it says."""
    text = header.encode() if isinstance(header, str) else header
    said = struct.pack("<H" if version == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes((version, 0)) + said + text + data


def floats(shape: Any, data: bytes = b"") -> bytes:
    return npy(FORM % ("<f4", shape), data)


#: What a file holds, and what is said of it.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "shape of terabytes": (floats("(1000000000000,)"), "4000000000000 bytes; 0 are there"),
    "shape that overflows to 0": (floats("(4611686018427387904, 4)"), "bytes; 0 are there"),
    "negative size, which reads all": (floats("(-1,)", bytes(40)), "a shape that none has"),
    "size beyond 64 bits": (floats("(0, 99999999999999999999)"), "a shape that none has"),
    "truth value as a size": (floats("(True, 3)", bytes(12)), "a shape that none has"),
    "hundred dimensions": (floats("(" + "1," * 100 + ")", bytes(4)), "a shape that none has"),
    "nested header": (npy("(" * 1000), ""),
    "header of operators": (npy("-" * 9000 + "1"), "nested too deep"),
    "header of 4 GB": (npy("{", version=2, length=2**32 - 1), "its header has 4294967295 bytes"),
    "header of NUL": (npy("\0" * 50), ""),
    "pickled objects": (npy(FORM % ("|O", "(1, 3)"), b"\x80\x04."), "it holds object"),
    "fields": (npy(FORM % ([("a", "<f4"), ("b", "|O")], "(1,)"), bytes(99)), "which is no number"),
    "text of gigabytes": (npy(FORM % ("<U100000000", "(1, 3)"), bytes(99)), "which is no number"),
    "elements of no byte": (npy(FORM % ("|V0", "(1000000000000000000,)")), "which is no number"),
    "dates": (npy(FORM % ("<M8[ns]", "(1, 3)"), bytes(24)), "which is no number"),
    "arrays as elements": (npy(FORM % (("<f4", (10**6, 10**6)), "(1, 3)")), ""),
    "type that there is not": (npy(FORM % ("bogus", "(1, 3)")), ""),
    "truncated": (floats("(1, 3)", bytes(3)), "12 bytes; 3 are there"),
    "another form": (npy(FORM % ("<f4", "(1, 3)"), bytes(12), version=3), "form 3.0"),
    "a pickle": (b"\x80\x04K\x01.", ""),
    "nothing": (b"", ""),
}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """No more is allocated than reading such small files takes."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_asks_for_more_than_it_holds_is_refused(name: str, tmp_path: Path) -> None:
    content, said = HOSTILE[name]
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not a NumPy array file") as refused:
        user_input("x", path, [SPEC])
    assert said in refused.value.detail
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    for file in (path, tmp_path / "x.npz"):
        with pytest.raises(ConfigError, match="is not a NumPy file, or is damaged"):
            given_samples(file, (SPEC,), 10)


def test_an_archive_that_becomes_much_larger_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_files, "_UNPACKED", 1 << 20)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros((1 << 20, 3), np.float32))
    with pytest.raises(ConfigError, match="is not a NumPy file") as refused:
        given_samples(path, (SPEC,), 10)
    assert "when they are unpacked" in refused.value.detail


def test_an_array_that_no_input_is_called_by_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.ones((2, 3), np.float32), y=np.zeros((1 << 20, 3), np.float32))
    with pytest.raises(ConfigError, match="holds an array 'y', which is no input of the model"):
        given_samples(path, (SPEC,), 10)


def test_an_archive_with_a_name_twice_or_of_another_compression_is_refused(tmp_path: Path) -> None:
    one = floats("(1, 3)", bytes(12))
    for name, kind, said in (("x", zipfile.ZIP_STORED, "one name"), ("y.npy", zipfile.ZIP_LZMA, "compress")):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", kind) as archive:
            archive.writestr("x.npy", one)
            archive.writestr(name, one)
        with pytest.raises(ArrayFileError, match=said), open_arrays(tmp_path / "x.npz"):
            pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes with names")
def test_a_pipe_is_not_waited_for_and_a_device_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    for path in (tmp_path / "x.npy", Path("/dev/zero")):
        with pytest.raises(ConfigError) as refused:
            read_array("--input", "x", path)
        assert "not a regular file" in refused.value.detail


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", ">f4"])
def test_what_numpy_writes_is_read_as_numpy_reads_it(order: Any, dtype: str, tmp_path: Path) -> None:
    for number, shape in enumerate([(), (0, 3), (4,), (2, 3, 4)]):
        array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype, order=order)
        np.save(tmp_path / f"{number}.npy", array)
        with open_arrays(tmp_path / f"{number}.npy") as file:
            found = file.read()
        assert (found.dtype, found.shape) == (array.dtype, shape)
        np.testing.assert_array_equal(found, array)
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / "all.npz", a=array, **{"b/c": array})
            with open_arrays(tmp_path / "all.npz") as file:
                assert file.names == ("a", "b/c")
                np.testing.assert_array_equal(file.read("b/c"), array)


def test_an_array_of_fortrans_order_is_the_same_samples(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", np.asfortranarray(array))
    found = list(given_samples(tmp_path / "x.npy", (SPEC,), 10))
    assert [one["x"].tolist() for one in found] == [[[0, 1, 2]], [[3, 4, 5]]]
