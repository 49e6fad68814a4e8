"""A function whose result is not what the operator's was, or whose buffers are not what its call hands over,
is never packed: it would write beyond a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from tvm import relax, te, tirx
from tvm.ir import IRModule

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph import legalize, lower
from edgepack.compiler.graph.checked_calls import check_calls
from edgepack.errors import InternalError
from workbench.models.builder import Graph


def _model() -> onnx.ModelProto:
    g = Graph("model")
    x = g.input("x", (3, 4), "int32")
    y = g.op("ReduceMean", x, axes=[1], keepdims=0)
    g.output(g.op("Sub", y, g.const(np.int32(3))), "int32")
    return g.model()


def _wider(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The mean of integers that TVM had: of 64 bits."""
    return builder.call_te(
        lambda x: te.compute((3,), lambda i: tirx.Cast("int64", x(i, 0)), name="mean"), call.args[0]
    )


def _longer(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    return builder.call_te(lambda x: te.compute((12,), lambda i: x(i // 4, i % 4), name="mean"), call.args[0])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(_wider, r"int64\[3\] instead of int32\[3\]"), (_longer, r"int32\[12\] instead of int32\[3\]")],
)
def test_a_legalisation_of_another_type_or_shape_is_a_defect(
    wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legalize, "_mean", wrong)
    with pytest.raises(InternalError, match=said):
        lower.lower(import_model(_model()).module)


def test_a_legalisation_of_tvm_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that edgepack has none in place of."""
    from tvm.ir import Op

    operator = Op.get("relax.subtract")
    own = operator.get_attr("FLegalize")
    operator.reset_attr("FLegalize")
    operator.set_attr("FLegalize", _wider_difference)
    try:
        with pytest.raises(InternalError, match=r"relax.subtract gives int64\[3\]"):
            lower.lower(import_model(_model()).module)
    finally:
        operator.reset_attr("FLegalize")
        operator.set_attr("FLegalize", own)


def _wider_difference(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    return builder.call_te(
        lambda x: te.compute((3,), lambda i: tirx.Cast("int64", x(i)), name="difference"), call.args[0]
    )


def test_a_pass_that_changes_a_functions_buffers_is_a_defect() -> None:
    module = lower.lower(import_model(_model()).module).module
    check_calls(module)
    gvar = next(g for g, f in module.functions.items() if isinstance(f, tirx.PrimFunc))
    data, result = te.placeholder((3, 4), "int32"), module[gvar].params[-1]
    shape = [int(n) for n in result.shape]
    wrong = te.create_prim_func([data, te.compute(shape, lambda *i: tirx.Cast("int64", data(i[0], 0)))])
    with pytest.raises(InternalError, match=r"int64\[3\], and is given .*int32\[3\]"):
        check_calls(IRModule({**dict(module.functions.items()), gvar: wrong}))
