"""ONNX's own evaluator: folds constants and records outputs where ONNX Runtime cannot serve a model.

It knows every operator of the newest opset with every type, and takes its time: NumPy, node by node.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.reference import classical_operators
from edgepack.compiler.frontend.onnx.fixed_point_reference import fixed_point_operators
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, inner_graphs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["evaluate", "fold"]

#: Elements of the largest constant that is computed from smaller ones: what is larger is left to be computed.
FOLDED_LIMIT = 1 << 22

#: Operators whose results differ from one run to the next.
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def evaluate(model: onnx.ModelProto, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Outputs in the order of the graph.

    Raises:
        Exception: of the evaluator, which has no base class for its own, if it cannot run the model.
    """
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        operators = [*fixed_point_operators(), *classical_operators(), _max_pool()]
        results = ReferenceEvaluator(model, new_ops=operators).run(None, dict(inputs))
    return [np.asarray(result) for result in results]


@cache
def _max_pool() -> Any:
    """MaxPool with padding of different widths, and of integers, whose padding is no NaN."""
    from onnx.reference.ops.op_max_pool import MaxPool as OfFloats

    class MaxPool(OfFloats):  # type: ignore[misc]
        def _run(self, x: Any, **attributes: Any) -> Any:
            plain = attributes.get("auto_pad", "NOTSET") == "NOTSET" and not attributes.get("ceil_mode")
            if not plain or len(self.onnx_node.output) > 1:
                return super()._run(x, **attributes)
            return (_largest(x, attributes),)

    return MaxPool


def _largest(x: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    """The largest number of each window; NaN is none."""
    import numpy as np

    size, rank = attributes["kernel_shape"], x.ndim - 2
    strides, dilation = (list(attributes.get(key) or [1] * rank) for key in ("strides", "dilations"))
    pads = list(attributes.get("pads") or [0] * 2 * rank)
    widths = [(0, 0), (0, 0), *((pads[i], pads[i + rank]) for i in range(rank))]
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    x = x if x.dtype.kind in "iu" else np.where(np.isnan(x), x.dtype.type(least), x)
    padded = np.pad(x, widths, constant_values=least)
    reach = [(taps - 1) * step + 1 for taps, step in zip(size, dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + rank)))
    places = [slice(None), slice(None), *(slice(None, None, n) for n in strides)]
    taps = [slice(None, None, n) for n in dilation]
    return np.asarray(windows[(*places, *taps)].max(tuple(range(-rank, 0))))


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with constants for what depends on constants alone, and for shapes of static values.

    A node that the evaluator cannot compute stays. ``model`` is not changed.
    """
    import onnx

    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    while _fold_once(folded):
        pass
    return folded


def _fold_once(model: onnx.ModelProto) -> bool:
    """Whether something became constant."""
    import onnx
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = _static_shapes(model)
    outputs = {value.name for value in model.graph.output}
    kept: list[onnx.NodeProto] = []
    found = False
    for node in model.graph.node:
        results = _constant_results(node, model, constants, shapes)
        if results is None or (node.op_type == "Identity" and node.output[0] in outputs):
            kept.append(node)
            continue
        found = True
        for name, array in zip(node.output, results, strict=False):
            inner = f"{name}/constant" if name in outputs else name
            if name in outputs:  # an output is what a node computes
                kept.append(onnx.helper.make_node("Identity", [inner], [name], name=inner))
            if name:
                constants[inner] = numpy_helper.from_array(array, inner)
    if found:
        used = {name for node in kept for name in _reads(node)} | outputs
        del model.graph.node[:], model.graph.initializer[:]
        model.graph.node.extend(kept)
        model.graph.initializer.extend(t for name, t in constants.items() if name in used)
    return found


def _constant_results(
    node: onnx.NodeProto,
    model: onnx.ModelProto,
    constants: Mapping[str, onnx.TensorProto],
    shapes: Mapping[str, tuple[int, ...]],
) -> list[NDArray[Any]] | None:
    """Outputs of a node that depends on constants alone, or on a shape; None for any other."""
    import onnx
    from onnx import numpy_helper

    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        return [_shape_result(node, shapes[node.input[0]])]
    if (
        node.op_type in _RANDOM
        or any(inner_graphs(node))
        or not all(name in constants for name in node.input if name)
    ):
        return None
    sizes = [1]
    for name in node.output:
        size = 1
        for dim in shapes.get(name, ()):
            size *= dim
        sizes.append(size)
    if max(sizes) > FOLDED_LIMIT:
        return None
    one = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node], "node", [], [onnx.ValueInfoProto(name=name) for name in node.output if name]
        ),
        opset_imports=model.opset_import,
        functions=model.functions,
        ir_version=model.ir_version,
    )
    arrays = {name: numpy_helper.to_array(constants[name]) for name in node.input if name}
    one.graph.input.extend(onnx.ValueInfoProto(name=name) for name in arrays)
    try:
        results = iter(evaluate(one, arrays))
    except Exception:  # whatever the evaluator of this operator happens to raise: it is computed at run time
        return None
    return [next(results) if name else None for name in node.output]  # type: ignore[misc]


def _shape_result(node: onnx.NodeProto, shape: tuple[int, ...]) -> NDArray[Any]:
    import numpy as np

    if node.op_type == "Size":
        return np.asarray(np.prod(shape, dtype=np.int64), np.int64)
    values = {attribute.name: attribute.i for attribute in node.attribute}
    rank = len(shape)
    start, end = (
        min(max(v + rank if v < 0 else v, 0), rank) for v in (values.get("start", 0), values.get("end", rank))
    )
    return np.asarray(shape[start:end], np.int64)


def _static_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = infer_shapes(model).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.WhichOneof("value") == "dim_value" for d in tensor.shape.dim):
            shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
    return shapes


def _reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those inside its graphs included."""
    names = set(node.input)
    for graph in inner_graphs(node):
        for inner in graph.node:
            names |= _reads(inner)
        names |= {value.name for value in graph.output}
    return names
