"""New weights with the scales of an older quantised model: only its params are others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgepack
from edgepack.compiler.frontend.onnx.quantise.kept_scales import KeptScales
from edgepack.errors import ConfigError, ModelError
from tests.compiler.frontend.onnx.quantise.support import convolutions, kept, made, transformer
from workbench.models import save
from workbench.models.builder import Graph


def retrained(model: onnx.ModelProto, factor: float = 1.0) -> onnx.ModelProto:
    """The same network with other weights."""
    other, rng = onnx.ModelProto(), np.random.default_rng(1)
    other.CopyFrom(model)
    for tensor in other.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim:
            drawn = values * rng.uniform(0.7, 1.2, values.shape) * factor
            tensor.CopyFrom(numpy_helper.from_array(drawn.astype(np.float32), tensor.name))
    return other


def older(model: onnx.ModelProto, folder: Path, **settings: Any) -> Path:
    """What was made of a model before."""
    return save(made(model, folder, **settings)[0], folder, "old.onnx")


def numbers(model: onnx.ModelProto) -> dict[str, Any]:
    """All scales and zero points that are no vectors, of activations by the tensors that they round."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        node.input[0]: [(constants[name].dtype, constants[name].tobytes()) for name in node.input[1:]]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


def weights(model: onnx.ModelProto) -> list[bytes]:
    arrays = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    return [array.tobytes() for array in arrays if array.dtype == np.int8 and array.ndim > 1]


def swish() -> onnx.ModelProto:
    """SiLU, hard-swish, a depthwise convolution, a sum; a classifier of one class."""
    g = Graph("swish")
    x = g.op("Conv", g.input("image", (1, 3, 8, 8)), g.weight(8, 3, 3, 3), g.weight(8), pads=[1] * 4)
    x = g.op("Mul", x, g.op("Sigmoid", x))
    y = g.op("HardSwish", g.op("Conv", x, g.weight(8, 1, 3, 3), pads=[1] * 4, group=8))
    y = g.op("Flatten", g.op("GlobalAveragePool", g.op("Add", x, y)))
    g.op("Gemm", y, g.weight(8, 1), g.weight(1), name="score")
    g.output("score")
    return g.model()


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (convolutions, {}),
        (convolutions, {"symmetric": True}),
        (convolutions, {"exclude": ("Conv_0",), "bias_correction": False}),
        (convolutions, {"reduce_range": True}),
        (transformer, {}),
        (transformer, {"activation_tables": False}),
        (swish, {}),
        (swish, {"activation_tables": True}),
    ],
)
def test_only_weights_are_others(
    model: Callable[[], onnx.ModelProto], settings: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever the older model was made with, which the new one gets without being told."""
    old = older(model(), tmp_path, **settings)
    new, figures = kept(retrained(model()), old, tmp_path)
    before = onnx.load(str(old))
    assert numbers(new) == numbers(before)
    assert Counter(n.op_type for n in new.graph.node) == Counter(n.op_type for n in before.graph.node)
    assert weights(new) != weights(before)
    sizes = [{tensor.name: tuple(tensor.dims) for tensor in m.graph.initializer} for m in (new, before)]
    assert sizes[0] == sizes[1]
    (output,) = figures.outputs
    assert output.sqnr is None or output.sqnr > 15
    onnx.checker.check_model(new, full_check=True)


def test_the_same_weights_give_the_same_model(tmp_path: Path) -> None:
    old = older(convolutions(), tmp_path)
    assert kept(convolutions(), old, tmp_path)[0].SerializeToString(deterministic=True) == old.read_bytes()


def test_results_beyond_the_old_ranges_are_told(tmp_path: Path) -> None:
    old = older(convolutions(), tmp_path)
    _, figures = kept(retrained(convolutions(), factor=2.0), old, tmp_path)
    (text,) = (text for text in figures.warnings if "beyond" in text)
    assert text.startswith("Results are beyond the ranges of old.onnx: Conv_0 (") and "clipped" in text


def test_a_weight_with_one_scale_keeps_it_and_is_clipped(tmp_path: Path) -> None:
    """The scale is a number of a kernel: of a stack of matrices, or of one channel."""
    g = Graph("stack")
    x = g.op("MatMul", g.input("x", (2, 3, 8)), g.weight(2, 8, 8))
    g.op("MatMul", x, g.weight(8, 1), name="y")
    g.output("y")
    old = older(g.model(), tmp_path)
    scales = {name: one.scale for name, one in KeptScales(old).weights.items()}
    assert {scale.shape for scale in scales.values()} == {(), (1,)}
    new, figures = kept(retrained(g.model(), factor=1.5), old, tmp_path)
    path = save(new, tmp_path, "new.onnx")
    assert {name: one.scale for name, one in KeptScales(path).weights.items()} == scales
    assert any(text.startswith("Weights are beyond") for text in figures.warnings)


def test_another_network_is_refused(tmp_path: Path) -> None:
    old = older(convolutions(), tmp_path)
    with pytest.raises(ModelError, match=r"another network than .*: it has no tensor") as caught:
        kept(transformer(), old, tmp_path)
    assert "like" in caught.value.hint
    longer = convolutions()
    longer.graph.node.append(onnx.helper.make_node("Softmax", ["scores"], ["classes"], name="classes"))
    longer.graph.output[0].name = "classes"
    with pytest.raises(ModelError, match=r"not quantised as .*: their operators are others"):
        kept(longer, old, tmp_path)


@pytest.mark.parametrize("settings", [None, {"dynamic": True}])
def test_a_model_without_scales_is_refused(settings: dict[str, Any] | None, tmp_path: Path) -> None:
    source = transformer()
    old = save(source, tmp_path, "old.onnx") if settings is None else older(source, tmp_path, **settings)
    with pytest.raises(ModelError, match="no quantised model whose scales could be kept"):
        kept(source, old, tmp_path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dynamic", True),
        ("symmetric", True),
        ("exclude", ["Conv_0"]),
        ("min_sqnr", 20.0),
        ("method", "entropy"),
    ],
)
def test_what_the_older_model_decides_cannot_be_given_too(option: str, value: Any, tmp_path: Path) -> None:
    old = save(convolutions(), tmp_path, "old.onnx")
    keywords: dict[str, Any] = {option: value, "calibrate": "synthetic", "like": old}
    with pytest.raises(ConfigError, match=f"does not go with .*{option}"):
        edgepack.quantize(old, tmp_path / "new.onnx", **keywords)


def test_the_older_model_is_not_replaced(tmp_path: Path) -> None:
    model, old = (save(convolutions(), tmp_path, f"{name}.onnx") for name in ("model", "old"))
    with pytest.raises(ConfigError, match="the model whose scales are kept"):
        edgepack.quantize(model, old, calibrate="synthetic", like=old, force=True)


def updated(model: Callable[[], onnx.ModelProto], device: str, folder: Path) -> edgepack.Update:
    """New params of a quantised model, for a library of the one before."""
    old, new = (save(m, folder, f"{n}.onnx") for m, n in ((model(), "a"), (retrained(model()), "b")))
    edgepack.quantize(old, folder / "qa.onnx", calibrate="synthetic", samples=4)
    edgepack.quantize(new, folder / "qb.onnx", calibrate="synthetic", samples=4, like=folder / "qa.onnx")
    bundle = edgepack.pack(folder / "qa.onnx", device, folder / "bundle", params="caller")
    return edgepack.update(bundle.path, folder / "qb.onnx", folder / "new.params")


@pytest.mark.slow  # tests/targets/test_firmware_params.py has a Cortex-M4
@pytest.mark.parametrize("device", ["linux-x86_64-multi", "linux-aarch64", "cortex-m0plus", "cortex-m55"])
@pytest.mark.parametrize("model", [convolutions, transformer, swish])
def test_it_is_new_params_on_each_device(
    model: Callable[[], onnx.ModelProto], device: str, tmp_path: Path
) -> None:
    """Firmware stores biases as narrow as they are only where they cannot be replaced."""
    assert updated(model, device, tmp_path).verification.ok
