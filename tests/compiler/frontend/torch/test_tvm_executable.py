"""What TVM imports is compared with the module before it is compiled for a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax

from edgepack.compiler.frontend.torch import tvm_executable
from edgepack.errors import ModelError

X = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def compared(**outputs: Any) -> None:
    """Compare a function of TVM's that doubles, with what a module is said to compute."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.Tuple([builder.emit(relax.op.add(x, x))]))
        builder.emit_func_output(y)
    one: Any = SimpleNamespace(inputs={"x": X}, eager=lambda inputs: outputs)
    tvm_executable._compare(one, builder.get(), "net.pt2")


def test_what_tvm_imports_is_what_the_module_computes() -> None:
    compared(y=X + X)
    compared(y=(X + X) * np.float32(1 + 1e-6))


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ({"y": X * 2.1}, "output 'y' differs by 0.1 from what the eager module computes"),
        ({"y": (X + X).astype("float64")}, r"output 'y' is float32 \[2, 3\], which differs"),
        ({"y": (X + X)[:1]}, r"output 'y' is float32 \[2, 3\], which differs"),
        ({"y": np.where(X > 0, X + X, np.nan).astype("float32")}, "output 'y' differs"),
        ({"y": X + X, "z": X}, "returns 1 tensors, and the module 2"),
    ],
)
def test_another_program_is_refused(outputs: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        compared(**outputs)


def test_integers_are_compared_exactly() -> None:
    whole = np.arange(6)
    assert tvm_executable._difference(whole, whole) == ""
    assert tvm_executable._difference(whole, whole + (whole == 3)) == "differs"
