"""Operators with one hostile number each, drawn: a model is compiled, or refused in a sentence, and no kernel
is made that leaves its tensors (which lowering proves)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.error_attribution import attributed_errors
from edgepack.compiler.graph.lower import lower_with_graphs
from edgepack.errors import EdgepackError

SHAPE = (1, 4, 6, 6)
W = np.ones((4, 4, 3, 3), np.float32)
ENDS, FACTORS = [[0], [3], [2], [1]], [1, 1, 2, 0.5]

#: Operators that read an image, their constants and attributes; of these each number is replaced.
OPERATORS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "argmax": ("ArgMax", [], {"axis": 1}),
    "average_pool": ("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 0, 0, 1], "strides": [1, 1]}),
    "concat": ("Concat", [np.ones(SHAPE, np.float32)], {"axis": 1}),
    "conv": ("Conv", [W], {"group": 1, "pads": [1, 1, 1, 1], "strides": [1, 2], "dilations": [1, 1]}),
    "conv_transpose": ("ConvTranspose", [W], {"pads": [0, 1, 0, 1], "strides": [2, 1], "dilations": [1, 1]}),
    "crop": ("CenterCropPad", [[3, 8]], {"axes": [2, 3]}),
    "cumsum": ("CumSum", [2], {}),
    "depth": ("DepthToSpace", [], {"blocksize": 2}),
    "expand": ("Expand", [[2, 1, 1, 1, 1]], {}),
    "flatten": ("Flatten", [], {"axis": 2}),
    "gather": ("Gather", [[0, 3, -1]], {"axis": 1}),
    "gather_points": ("GatherND", [[[0, 3]]], {"batch_dims": 0}),
    "group_norm": ("GroupNormalization", [np.ones(4, np.float32), np.ones(4, np.float32)], {"num_groups": 2}),
    "layer_norm": ("LayerNormalization", [np.ones(6, np.float32)], {"axis": -1}),
    "lrn": ("LRN", [], {"size": 3}),
    "max_pool": ("MaxPool", [], {"kernel_shape": [2, 3], "dilations": [1, 2], "pads": [0, 1, 1, 1]}),
    **{f"pad_{mode}": ("Pad", [[0, 0, 1, 2, 0, 0, 2, 1]], {"mode": mode}) for mode in ("constant", "edge")},
    **{f"pad_{mode}": ("Pad", [[0, 0, 1, 2, 0, 0, 2, 1]], {"mode": mode}) for mode in ("reflect", "wrap")},
    "reduce": ("ReduceSum", [[1, 2]], {}),
    "reshape": ("Reshape", [[1, 4, 36]], {}),
    "resize": (
        "Resize",
        [np.zeros(0, np.float32), np.asarray([1, 1, 2, 0.5], np.float32)],
        {"mode": "linear"},
    ),
    "scatter": ("ScatterElements", [[[[[3]]]], np.ones((1, 1, 1, 1), np.float32)], {"axis": 1}),
    "slice": ("Slice", ENDS, {}),
    "softmax": ("Softmax", [], {"axis": 1}),
    "split": ("Split", [[1, 3]], {"axis": 1}),
    "squeeze": ("Squeeze", [[0]], {}),
    "tile": ("Tile", [[1, 2, 1, 1]], {}),
    "top_k": ("TopK", [[2]], {"axis": 1}),
    "transpose": ("Transpose", [], {"perm": [0, 2, 3, 1]}),
    "trilu": ("Trilu", [1], {}),
    "unsqueeze": ("Unsqueeze", [[1, 3]], {}),
}

WHOLE = (0, -1, 5, -5, 7, -7, 100, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63), 2**63 - 1)
FLOATS = (0.0, -1.0, 1e-30, 1e30, np.nan, np.inf, -np.inf)


def _drawn(seed: int) -> onnx.ModelProto:
    """A model of one node, of which one number is another one."""
    rng = np.random.default_rng(seed)
    operator, given, attributes = OPERATORS[rng.choice(sorted(OPERATORS))]
    constants = [np.array(value) for value in given]
    attributes = dict(attributes)
    places: list[Any] = [n for n, array in enumerate(constants) if 0 < array.size <= 8]
    places += [name for name, value in attributes.items() if not isinstance(value, str)]
    chosen = places[rng.integers(len(places))]
    if isinstance(chosen, str):
        value = attributes[chosen]
        number = int(rng.choice(WHOLE))
        if isinstance(value, list):
            attributes[chosen] = [*value]
            attributes[chosen][rng.integers(len(value))] = number
        else:
            attributes[chosen] = number
    else:
        array = constants[chosen]
        numbers = FLOATS if array.dtype.kind == "f" else WHOLE
        array.reshape(-1)[rng.integers(array.size)] = rng.choice(np.asarray(numbers, array.dtype))
    tensors = [numpy_helper.from_array(array, f"c{n}") for n, array in enumerate(constants)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)
    results = ["y", "z"] if operator in {"Split", "TopK"} else ["y"]
    node = helper.make_node(operator, ["x", *(t.name for t in tensors)], results, "node", **attributes)
    graph = helper.make_graph([node], "drawn", [x], [onnx.ValueInfoProto(name="y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _compiled_or_refused(seed: int, folder: Any) -> None:
    model = _drawn(seed)
    onnx.save(model, path := folder / "drawn.onnx")
    try:
        with attributed_errors(path):
            imported = import_model(model)
            lower_with_graphs(imported.module, imported.graphs)
    except EdgepackError as error:
        assert error.exit_code == 3, (seed, error)


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_a_hostile_number_is_compiled_or_refused(first: int, tmp_path: Any) -> None:
    for seed in range(first, first + 25):
        _compiled_or_refused(seed, tmp_path)


@pytest.mark.slow
def test_many_hostile_numbers_are_compiled_or_refused(tmp_path: Any) -> None:
    for seed in range(1000, 4000):
        _compiled_or_refused(seed, tmp_path)
