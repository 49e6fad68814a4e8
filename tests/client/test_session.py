"""A bundle in this process, through its C ABI."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import edgepack
from edgepack.abi.header import header
from edgepack.api import Bundle
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.plan.dtypes import DTYPE_CODE
from edgepack.plan.types import LinearQuantisation
from tests.support.sessions import random_input
from tests.support.worker import COLUMNS, ROWS, reference


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_runs_on_arrays(small_bundle: Bundle, threads: int | None) -> None:
    with edgepack.load(small_bundle, threads=threads) as session:
        for seed in range(3):
            outputs = session.run({"input": random_input(seed)})
            expected, sign = reference(random_input(seed))
            np.testing.assert_allclose(outputs["output"], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(outputs["sign"], sign)


def test_says_what_it_runs_on(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle) as session:
        assert session.backend == "cpu"
    with pytest.raises(ConfigError, match="closed"):
        _ = session.backend


def test_describes_its_inputs_and_outputs(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle.path) as session:
        assert [(t.name, t.dtype, t.shape) for t in session.inputs] == [("input", "float32", (ROWS, COLUMNS))]
        assert [(t.name, t.dtype) for t in session.outputs] == [("output", "float32"), ("sign", "int8")]
        meanings = [tensor.quantisation for tensor in (*session.inputs, *session.outputs)]
        assert meanings == [None, None, LinearQuantisation(0.0625, -3)]


def test_outputs_of_one_run_are_not_those_of_the_next(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle) as session:
        first = session.run({"input": random_input(1)})["output"]
        kept = first.copy()
        session.run({"input": random_input(2)})
        np.testing.assert_array_equal(first, kept)


def test_arrays_that_are_not_contiguous_are_copied(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        expected = session.run({"input": x})["output"]
        np.testing.assert_array_equal(session.run({"input": np.asfortranarray(x)})["output"], expected)
        raw = bytearray(x.nbytes + 1)
        unaligned = np.frombuffer(raw, "f4", x.size, offset=1).reshape(x.shape)
        unaligned[:] = x
        np.testing.assert_array_equal(session.run({"input": unaligned})["output"], expected)
        np.testing.assert_array_equal(session.run({"input": x.tolist() and x})["output"], expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing: input"),
        ({"input": random_input(), "other": 1}, "unknown: other"),
        ({"input": random_input().astype("f8")}, "is float64, the model takes float32"),
        ({"input": random_input().astype(">f4")}, "the model takes float32"),
        ({"input": random_input()[:2]}, r"has shape \(2, 8\), the model takes \(4, 8\)"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    small_bundle: Bundle, inputs: dict[str, np.ndarray], message: str
) -> None:
    with edgepack.load(small_bundle) as session, pytest.raises(ConfigError, match=message):
        session.run(inputs)


def test_arrays_go_by_name_or_in_the_models_order(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        expected = session.run({"input": x})["output"]
        np.testing.assert_array_equal(session.run(x)["output"], expected)
        np.testing.assert_array_equal(session.run(MappingProxyType({"input": x}))["output"], expected)


class Unwilling:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("this tensor is on another device")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "^0 arrays are given, the model has 1 input: input"),
        ((random_input(), random_input()), "^2 arrays are given, the model has 1 input: input"),
        (([[1.0, 2.0], [3.0]],), "^Input input: no array can be made of a value of type list"),
        (("x.npy",), "^Input input is a value of type str, no array of numbers"),
        ((None,), "^Input input is a value of type NoneType, no array of numbers"),
        ((Unwilling(),), "^Input input: .* of type Unwilling: this tensor is on another device"),
    ],
)
def test_arguments_that_are_no_inputs_are_a_sentence(
    small_bundle: Bundle, inputs: tuple[object, ...], message: str
) -> None:
    with edgepack.load(small_bundle) as session, pytest.raises(ConfigError, match=message) as caught:
        session.run(*inputs)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_knows_its_bundle_and_takes_a_bundle_or_a_path(small_bundle: Bundle) -> None:
    for given in (small_bundle, small_bundle.path, str(small_bundle.path)):
        with edgepack.Session(given) as session:
            assert session.path == small_bundle.path
    with pytest.raises(ConfigError, match="not a value of type int"):
        edgepack.load(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="threads is a whole number, not the str '2'"):
        edgepack.load(small_bundle, threads="2")  # type: ignore[arg-type]


def test_runs_into_arrays_that_are_there(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        expected = session.run(x)
        arrays = {"sign": np.empty((ROWS, COLUMNS), "i1"), "output": np.empty((ROWS, COLUMNS), "f4")}
        in_order = [arrays["output"], arrays["sign"]]
        readonly = x.copy()
        readonly.flags.writeable = False
        for inputs, outputs in (
            ({"input": x}, arrays),
            (x, in_order),
            ([x], tuple(in_order)),
            (MappingProxyType({"input": np.asfortranarray(x)}), MappingProxyType(arrays)),
            ((readonly,), arrays),
        ):
            for array in in_order:
                array.fill(0)
            session.run_into(inputs, outputs)
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, expected[name])


def test_runs_at_addresses_of_memory(small_bundle: Bundle) -> None:
    x, results = random_input(), [_output(), _sign()]
    with edgepack.load(small_bundle) as session:
        expected = session.run(x)
        session.run_at([array.ctypes.data for array in (x, *results)])
    for name, array in zip(("output", "sign"), results, strict=True):
        np.testing.assert_array_equal(array, expected[name])
    with pytest.raises(ConfigError, match="is closed"):
        session.run_at([array.ctypes.data for array in (x, *results)])


def test_addresses_of_one_tuple_are_its_own_also_after_others(small_bundle: Bundle) -> None:
    x, places = random_input(), [[_output(), _sign()] for _ in range(3)]
    first, second = (tuple(a.ctypes.data for a in (x, *results)) for results in places[:2])
    changing = [array.ctypes.data for array in (x, *places[0])]
    with edgepack.load(small_bundle) as session:
        for addresses, written in ((first, 0), (first, 0), (second, 1), (first, 0), (changing, 0)):
            for results in places:
                results[0].fill(np.nan)
            session.run_at(addresses)
            assert [bool(np.isnan(results[0]).any()) for results in places].index(False) == written
        changing[1:] = [array.ctypes.data for array in places[2]]
        session.run_at(changing)
        assert not np.isnan(places[2][0]).any()


def _output() -> np.ndarray:
    return np.empty((ROWS, COLUMNS), "f4")


def _sign() -> np.ndarray:
    return np.empty((ROWS, COLUMNS), "i1")


def _readonly() -> np.ndarray:
    array = _output()
    array.flags.writeable = False
    return array


def _unaligned() -> np.ndarray:
    return np.frombuffer(bytearray(ROWS * COLUMNS * 4 + 1), "f4", offset=1).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([_output()], "1 array is given, the model has 2 outputs: output, sign"),
        ({"output": _output()}, "The outputs are not the model's; missing: sign"),
        ({"output": _output(), "sign": _sign(), "other": _sign()}, "unknown: other"),
        ([_output().tolist(), _sign()], "Output output is a value of type list, no array"),
        ([_output().astype("f8"), _sign()], "Output output is float64, the model gives float32"),
        ([_output()[:2], _sign()], r"has shape \(2, 8\), the model gives \(4, 8\)"),
        ([_readonly(), _sign()], "The array for output output is read-only"),
        ([np.asfortranarray(_output()), _sign()], "output is not C-contiguous"),
        ([_unaligned(), _sign()], "output is not aligned"),
    ],
)
def test_outputs_that_cannot_be_run_into_are_named(
    small_bundle: Bundle, outputs: object, message: str
) -> None:
    with edgepack.load(small_bundle) as session, pytest.raises(ConfigError, match=message) as caught:
        session.run_into(random_input(), outputs)
    assert caught.value.hint


def test_an_output_that_overlaps_another_array_is_refused(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        for outputs in ((x, _sign()), (_output(), x.view("i1").reshape(-1)[:32].reshape(4, 8))):
            with pytest.raises(ConfigError, match="overlaps another array"):
                session.run_into(x, outputs)
        session.run_into(x, (_output(), _sign()))


def test_says_what_it_is(small_bundle: Bundle) -> None:
    about = "small on host: input float32[4, 8] -> output float32[4, 8], sign int8[4, 8]"
    session = edgepack.load(small_bundle)
    assert repr(session) == f"<edgepack.Session {about}>"
    session.close()
    assert repr(session) == f"<edgepack.Session {about}, closed>"


def test_params_that_are_not_its_own_are_refused(copy: Path) -> None:
    path = copy / "params" / "small.params"
    data = path.read_bytes()
    path.write_bytes(b"X" + data[1:])
    with pytest.raises(CheckFailedError, match="EP_E_PARAMS_MAGIC"):
        edgepack.load(copy)
    path.write_bytes(data[:-1])
    with pytest.raises(CheckFailedError, match="EP_E_PARAMS_TRUNCATED"):
        edgepack.load(copy)
    path.unlink()
    with pytest.raises(CheckFailedError, match="EP_E_IO"):
        edgepack.load(copy)


def test_the_hash_check_finds_one_flipped_bit(copy: Path) -> None:
    path = copy / "params" / "small.params"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with edgepack.load(copy) as session, pytest.raises(CheckFailedError, match="EP_E_PARAMS_HASH"):
        session.check_params()


def test_bundles_that_cannot_be_loaded_here_are_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a bundle"):
        edgepack.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        edgepack.load(copy, threads=0)
    library = copy / "lib" / "libsmall.so"
    library.write_bytes(b"\x7fELF")
    with pytest.raises(CheckFailedError, match="cannot be loaded"):
        edgepack.load(copy)
    data = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    data["device"]["arch"] = "riscv64"
    (copy / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be loaded here"):
        edgepack.load(copy)


def test_tables_of_the_header_are_complete() -> None:
    tables = header()
    assert tables.dtypes == {code: name for name, code in DTYPE_CODE.items()}
    assert tables.statuses[0].name == "EP_OK"
    assert sorted(tables.statuses) == list(range(len(tables.statuses)))
