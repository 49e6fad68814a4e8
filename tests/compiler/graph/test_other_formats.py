"""What a module may be that does not come from ONNX: channels last, recurrent gates in another order."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from edgepack.compiler.graph.lower import lower
from edgepack.compiler.graph.recurrent import GATES, in_gate_order


def test_images_that_have_channels_last_already_are_not_transposed() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 8, 3), "float32"))
    with builder.function("main", [x]):
        weights = relax.const(np.ones((3, 3, 3, 16), np.float32))
        y = builder.emit(relax.op.nn.conv2d(x, weights, padding=1, data_layout="NHWC", kernel_layout="HWIO"))
        builder.emit_func_output(builder.emit(relax.op.nn.relu(y)))
    groups = lower(builder.get(), layout="NHWC").groups
    assert [group.operators for group in groups.values()] == [("conv2d", "relu")]


def test_gates_of_another_order_are_brought_into_ours() -> None:
    order = ("input", "forget", "cell", "output")  # PyTorch's
    rows = {gate: np.full((2, 3), number, np.float32) for number, gate in enumerate(GATES["lstm"])}
    given = np.concatenate([rows[gate] for gate in order])
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        ours = in_gate_order(builder, relax.const(given), 0, "lstm", order)
        taken = builder.lookup_binding(ours)
        builder.emit_func_output(ours)
    indices = taken.args[1].value.numpy()
    assert (given[indices] == np.concatenate([rows[gate] for gate in GATES["lstm"]])).all()
    same = relax.const(given)
    assert in_gate_order(builder, same, 0, "lstm", GATES["lstm"]) is same


def test_gates_of_another_cell_are_refused() -> None:
    with pytest.raises(ValueError, match="gru has the gates update, reset, hidden, not input"):
        in_gate_order(relax.BlockBuilder(), relax.const(np.ones(4)), 0, "gru", ("input",))
