"""A node that needs an axis or a size that a run decides: the refusal names it, and the option to give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from workbench.models.builder import Graph


def _of(op: str, shape: list[int], *given: str | np.ndarray, opset: int = 18) -> onnx.ModelProto:
    """One operator of an input ``x`` and of others: an input's name, with its length behind a colon, or a
    constant."""
    g = Graph(op, opset=opset)
    operands = [g.input("x", shape)]
    for one in given:
        if isinstance(one, np.ndarray):
            operands.append(g.const(one))
        elif one:
            name, _, length = one.partition(":")
            operands.append(g.input(name, [int(length)] if length else [], "int64"))
        else:
            operands.append("")
    g.output(g.op(op, *operands, name="y"))
    return g.model()


#: A model, what the refusal says, and the options in its hint.
REFUSED: Mapping[str, tuple[Callable[[], onnx.ModelProto], str, str]] = {
    "DFT": (
        lambda: _of("DFT", [1, 8, 1], "", "a", opset=20),
        "its axis is the model's input 'a'",
        "--const a=1",
    ),
    "STFT": (
        lambda: _of("STFT", [1, 64, 1], "step", np.ones(16, np.float32)),
        "its frame step is the model's input 'step'",
        "--const step=1",
    ),
    "Col2Im": (
        lambda: _of("Col2Im", [1, 5, 5], "image:2", "block:2"),
        "its image shape and block shape are the model's inputs 'image' and 'block'",
        "--const image=1,1 --const block=1,1",
    ),
    "CumSum": (lambda: _of("CumSum", [3, 4], "a"), "its axis is", "--const a=1"),
    "ReduceSum": (lambda: _of("ReduceSum", [3, 4], "a:1"), "its axes are", "--const a=1"),
    "Slice": (
        lambda: _of("Slice", [3, 4], "s:2", "e:2"),
        "its starts and ends are",
        "--const s=0,0 --const e=1,1",
    ),
    "Unsqueeze": (lambda: _of("Unsqueeze", [3, 4], "a:1"), "its axes are", "--const a=1"),
    "a name with a space": (lambda: _of("Tile", [3, 4], "my n:2"), "'my n'", "--const 'my n=1,1'"),
}


def _refusal(model: onnx.ModelProto) -> RefusedNodesError:
    with pytest.raises(RefusedNodesError) as caught:
        import_model(model)
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_the_operand_is_named_with_the_option_to_copy(name: str) -> None:
    make, says, options = REFUSED[name]
    error = _refusal(make())
    assert says in error.message
    assert error.message.endswith("must be known when the model is packed.")
    assert error.hint.endswith(options)


def test_an_operand_that_is_computed_of_an_input() -> None:
    g = Graph("computed", opset=18)
    axis = g.op("Cast", g.input("a", [], "int32"), to=TensorProto.INT64)
    g.output(g.op("CumSum", g.input("x", [3, 4]), axis, name="y"))
    error = _refusal(g.model())
    assert "its axis is computed from 'a'" in error.message
    assert error.hint.endswith("--const a=1")


def test_an_operand_that_the_data_decide_is_no_constant() -> None:
    g = Graph("data", opset=18)
    x = g.input("x", [3, 40])
    axis = g.op("Cast", g.op("ReduceMax", x, keepdims=0), to=TensorProto.INT64)
    g.output(g.op("CumSum", x, axis, name="y"))
    error = _refusal(g.model())
    assert "computed from 'x'" in error.message
    assert "--const" not in error.hint
    assert "--outputs" in error.hint


def test_a_size_of_static_shapes_is_a_constant() -> None:
    """What a Shape says does not depend on the values."""
    g = Graph("static", opset=18)
    x = g.input("x", [3, 4])
    sizes = g.op("Concat", g.op("Slice", g.op("Shape", x), g.const([1]), g.const([2])), g.const([3]), axis=0)
    g.output(g.op("Reshape", x, sizes, name="y"))
    assert [spec.shape for spec in import_model(g.model()).signature.outputs] == [(4, 3)]


def test_an_operator_that_is_unknown_too_is_named_first() -> None:
    g = Graph("both", opset=20)
    x = g.input("x", [1, 8, 1])
    y = g.op("DFT", x, "", g.input("a", [], "int64"), name="y")
    g.output(g.op("NoSuch", y, domain="my.company", name="z"))
    error = _refusal(g.model())
    assert "my.company.NoSuch" in error.message
