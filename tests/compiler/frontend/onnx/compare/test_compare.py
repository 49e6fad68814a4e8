"""What two models compute of the same inputs, side by side, in this process."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.compare.command import compare, draw
from edgepack.compiler.frontend.onnx.quantise.difference import Difference
from edgepack.errors import ConfigError
from edgepack.plan.comparison import ComparisonFigures, Side
from tests.compiler.frontend.onnx.quantise.support import convolutions, made
from workbench.models import save
from workbench.models.builder import Graph


def compared(
    first: Path, second: Path, folder: Path, inputs: Path | None = None, **options: object
) -> ComparisonFigures:
    """Both, on random inputs or those of a file; as JSON and back."""
    sides, chosen = (Side(str(first)), Side(str(second))), ImportOptions(**options)  # type: ignore[arg-type]
    (folder / "job").mkdir()
    draw(sides, chosen, folder / "job", inputs, {"seed": 0, "samples": 3})
    found = compare(sides, chosen, folder / "job" / "samples")
    return ComparisonFigures.from_json(found.to_json())


def test_the_layers_of_a_quantised_model_are_found_and_what_each_loses(tmp_path: Path) -> None:
    model, figures = made(convolutions(), tmp_path)
    found = compared(tmp_path / "float.onnx", save(model, tmp_path, "q.onnx"), tmp_path)
    layers = {one.tensor: one for one in found.layers}
    assert list(layers) == ["Relu_1", "second", "Relu_4", "mean", "scores"]
    assert layers["Relu_1"].lost is None  # what it is computed from is exact
    before, now = layers["Relu_1"].sqnr, layers["second"].sqnr
    assert before is not None and now is not None and layers["second"].lost == pytest.approx(before - now)
    (output,) = found.outputs
    assert output.sqnr == layers["scores"].sqnr == pytest.approx(figures.outputs[0].sqnr, abs=3)
    assert (found.samples, output.dtype, output.top1) == (3, "float32", 1.0)
    assert output.cosine is not None and output.cosine > 0.999 and 0 < output.mean_error <= output.max_error


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._left = [{"image": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def test_integers_of_operators_like_qlinearconv_are_compared_as_what_they_stand_for(tmp_path: Path) -> None:
    model, other = save(convolutions(), tmp_path, "float.onnx"), tmp_path / "q.onnx"
    quantize_static(model, other, _Samples(), quant_format=QuantFormat.QOperator, per_channel=True)
    found = compared(other, model, tmp_path)
    layers = {one.tensor: one for one in found.layers}
    assert {"first", "second", "mean"} <= set(layers) and layers["second"].operator == "QLinearConv"
    assert all(one.sqnr is not None and one.sqnr > 25 for one in found.layers)


def scaled(factor: float, name: str = "y", shape: tuple[int | str, ...] = (2, 3)) -> onnx.ModelProto:
    g = Graph("scaled")
    g.op("Mul", g.input("x", shape), g.const(np.float32(factor)), name=name)
    g.output(name)
    return g.model()


def test_a_known_error_has_the_figures_that_it_should(tmp_path: Path) -> None:
    first = save(scaled(1.0), tmp_path, "one.onnx")
    second = save(scaled(0.9, "z"), tmp_path, "other.onnx")
    np.save(data := tmp_path / "x.npy", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    (output,) = compared(first, second, tmp_path, data).outputs
    assert (output.name, output.elements, output.largest, output.top1) == ("y", 6, 6.0, 1.0)
    assert output.sqnr == pytest.approx(20.0, abs=1e-4)
    assert (output.max_error, output.mean_error) == pytest.approx((0.6, 0.35), abs=1e-6)
    assert output.cosine == pytest.approx(1.0)


def test_a_mask_that_is_added_hides_no_error_from_what_comes_after(tmp_path: Path) -> None:
    def masked(factor: float) -> onnx.ModelProto:
        g = Graph("masked")
        x = g.op("Mul", g.input("x", (2, 4)), g.const(np.float32(factor)), name="scores")
        x = g.op("Add", x, g.const(np.array([0, 0, 0, -1e4], np.float32)), name="masked")
        g.op("Softmax", x, name="y")
        g.output("y")
        return g.model()

    first, second = save(masked(1.0), tmp_path, "a.onnx"), save(masked(1.1), tmp_path, "b.onnx")
    layers = {one.tensor: one for one in compared(first, second, tmp_path).layers}
    assert layers["scores"].sqnr == pytest.approx(20.0, abs=0.1)
    assert layers["masked"].sqnr is not None and layers["masked"].sqnr > 80
    assert layers["y"].lost is not None and layers["y"].lost < 5


def test_an_open_size_is_taken_from_the_other_model(tmp_path: Path) -> None:
    first, second = scaled(1.0, shape=("N", 3)), scaled(1.0, shape=(5, 3))
    found = compared(save(first, tmp_path, "a.onnx"), save(second, tmp_path, "b.onnx"), tmp_path)
    assert found.outputs[0].elements == 3 * 5 * 3
    assert found.outputs[0].sqnr is None


def test_results_that_are_not_finite_are_no_small_error() -> None:
    one = Difference()
    values = np.array([[1.0, np.inf, np.nan]], np.float32)
    one.add(values, values)
    assert (one.unlike, one.sqnr) == (0, None)
    one.add(np.ones((1, 3), np.float32), values)
    assert one.unlike == 2


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (scaled(1.0, shape=(2, 4)), r"input x is float32 \[2, 3\] in .*a.onnx, and float32 \[2, 4\] in"),
        (convolutions(), None),
    ],
    ids=["shape", "another network"],
)
def test_models_of_other_inputs_are_refused(second: onnx.ModelProto, said: str, tmp_path: Path) -> None:
    first = save(scaled(1.0), tmp_path, "a.onnx")
    with pytest.raises(ConfigError, match=said):
        compared(first, save(second, tmp_path, "b.onnx"), tmp_path)


def test_outputs_that_are_infinitely_off_are_said_so(tmp_path: Path) -> None:
    first, second = save(scaled(1.0), tmp_path, "a.onnx"), save(scaled(inf), tmp_path, "b.onnx")
    (output,) = compared(first, second, tmp_path).outputs
    assert output.max_error == output.mean_error == inf


def test_sizes_of_neither_model_are_refused(tmp_path: Path) -> None:
    first, second = save(scaled(1.0), tmp_path, "a.onnx"), save(scaled(1.0), tmp_path, "b.onnx")
    with pytest.raises(ConfigError, match="picture"):
        compared(first, second, tmp_path, shapes={"picture": (1, 2)})


def test_what_is_not_finite_in_one_alone_is_not_exact() -> None:
    one = Difference()
    one.add(np.float32([[np.nan, 1]]), np.float32([[0, 1]]))
    assert (one.unlike, one.sqnr) == (1, -99.0)
