"""Calibration data: files that are read as inputs of runs, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.quantise import runs
from edgepack.compiler.frontend.onnx.quantise.samples import given_samples, input_specs, random_samples
from edgepack.errors import ConfigError
from workbench.models.builder import Graph


def model() -> onnx.ModelProto:
    g = Graph("two_inputs")
    x, i = g.input("x", (1, 3)), g.input("i", (1, 2), "int64")
    g.op("Add", g.op("ReduceSum", x), g.op("Cast", g.op("ReduceSum", i), to=1), name="y")
    g.output("y")
    return g.model()


def single() -> onnx.ModelProto:
    g = Graph("one_input")
    g.op("Relu", g.input("x", (1, 3)), name="y")
    g.output("y")
    return g.model()


X, INDICES = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4).reshape(2, 2)


def test_a_first_dimension_holds_several_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=X, i=INDICES)
    samples = given_samples(tmp_path / "all.npz", input_specs(model()), 10)
    assert samples.count == 2
    for _ in range(2):  # each iteration begins again
        found = list(samples)
        assert [one["x"].tolist() for one in found] == [[[0, 1, 2]], [[3, 4, 5]]]
        assert [one["i"].tolist() for one in found] == [[[0, 1]], [[2, 3]]]


def test_files_of_a_folder_are_taken_by_name_and_others_left(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        np.save(tmp_path / f"{number}.npy", np.full((1, 3), number + 1, np.float32))
    np.save(tmp_path / "3.npy", np.full(3, 4, np.float32))  # without the batch of 1
    (tmp_path / "notes.txt").write_text("which images these are")
    samples = given_samples(tmp_path, input_specs(single()), 10)
    assert [one["x"][0, 0] for one in samples] == [1, 2, 3, 4]
    few = given_samples(tmp_path, input_specs(single()), 3)
    assert (few.count, few.unused, len(list(few))) == (3, 1, 3)


def test_random_samples_differ_and_are_the_same_for_a_seed() -> None:
    one, other = (list(random_samples(model(), 7, 3)) for _ in range(2))
    assert len(one) == 3
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(one[0]["x"], one[1]["x"])


def test_random_integers_are_such_that_the_model_runs() -> None:
    g = Graph("indices")
    rows = g.op("Mul", g.input("i", (4,), "int64"), g.const(2))
    g.op("MatMul", g.op("Gather", g.weight(4, 8), rows), g.weight(8, 2), name="y")
    g.output("y")
    assert {int(n) for one in random_samples(g.model(), 0, 4) for n in one["i"]} == {0, 1}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X}, "lacks an array 'i', which the model takes"),
        ({"x": X, "i": INDICES, "z": X}, "holds an array 'z', which is no input of the model"),
        (
            {"x": X.astype(np.float64), "i": INDICES},
            r"'x' in .* is float64 \[2, 3\], .* takes float32 \[1, 3\]",
        ),
        ({"x": X[:, :2], "i": INDICES}, r"is float32 \[2, 2\]"),
        ({"x": X[:0], "i": INDICES[:0]}, r"is float32 \[0, 3\]"),
        ({"x": X, "i": INDICES[:1]}, r"for different numbers of runs \(x: 2, i: 1\)"),
        ({"x": X * np.float32(np.nan), "i": INDICES}, "'x' in .* holds NaN or infinity"),
        ({"x": X * np.float32(0), "i": INDICES * 0}, "all numbers are 0"),
    ],
    ids=["missing", "foreign", "dtype", "shape", "empty", "counts", "nan", "zeros"],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(ConfigError, match=said):
        given_samples(tmp_path / "data.npz", input_specs(model()), 10)


def test_what_is_no_calibration_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder"):
        given_samples(tmp_path / "absent", input_specs(model()), 10)
    with pytest.raises(ConfigError, match=r"holds neither \.npz nor \.npy files"):
        given_samples(tmp_path, input_specs(model()), 10)
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ConfigError, match="is not a NumPy file, or is damaged"):
        given_samples(damaged, input_specs(model()), 10)
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(ConfigError, match="holds one array, and the model has 2 inputs"):
        given_samples(tmp_path / "one.npy", input_specs(model()), 10)
    picture = tmp_path / "cat.jpg"
    picture.write_bytes(b"\xff\xd8")
    with pytest.raises(ConfigError, match=r"neither \.npz nor \.npy"):
        given_samples(picture, input_specs(model()), 10)


def test_too_little_memory_is_no_damaged_file_and_no_fault_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    np.save(tmp_path / "data.npy", X)
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(np, "empty", fail)
        given_samples(tmp_path / "data.npy", input_specs(single()), 10)
    monkeypatch.setattr(runs, "create_session", fail)
    with pytest.raises(MemoryError):
        runs.runner(single(), ["y"])
