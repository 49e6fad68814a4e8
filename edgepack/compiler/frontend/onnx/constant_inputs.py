"""Inputs that the user gives a constant value (``--const``), and the branches that are known then."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.open_dims import described
from edgepack.compiler.frontend.onnx.rewrites import inline_known_branches
from edgepack.errors import ConfigError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["make_constant"]


def make_constant(model: onnx.ModelProto, values: Mapping[str, Sequence[float]]) -> None:
    """Make constants of inputs, in place, and take the branches of each If whose condition is known then.

    Args:
        values: an input's numbers, in row-major order, by its name; one number fills an input of any static
            shape, several make an open dimension of rank 1 as long as they are.

    Raises:
        ConfigError: there is no such input, or the numbers are not of its type or shape.
    """
    import onnx

    inputs = {item.name: item for item in model_inputs(model, only_tensors=True)}
    for name, numbers in values.items():
        if name not in inputs:
            near = difflib.get_close_matches(name, inputs, n=3)
            raise ConfigError(
                f"--const: the model has no input {name!r}.",
                hint=f"Did you mean {' or '.join(near)}?"
                if near
                else f"It has {', '.join(inputs) or 'none'}.",
            )
        item = inputs[name]
        array = _filled(name, _typed(name, item.dtype, numbers), item.shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    kept = [value for value in model.graph.input if value.name not in values]
    if values:
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)  # before, initializers are inputs too
    if any(node.op_type == "If" for node in model.graph.node):
        inline_known_branches(model)


def _typed(name: str, dtype: str, numbers: Sequence[float]) -> NDArray[Any]:
    import numpy as np

    kind = np.dtype(dtype) if dtype != "bfloat16" else None
    if kind is None:
        raise ConfigError(
            f"--const {name}: an input of {dtype} cannot be pinned.", hint="Leave it an input of the bundle."
        )
    wide = np.asarray(list(numbers))
    with np.errstate(all="ignore"):
        array = wide.astype(kind)
    exact = kind.kind == "f" or np.array_equal(array.astype(wide.dtype), wide)
    if not exact or (kind.kind == "f" and np.any(np.isinf(array) & ~np.isinf(wide.astype(np.float64)))):
        raise ConfigError(
            f"--const {name}={','.join(map(str, numbers))}: not numbers of the input's type, {dtype}.",
            hint="Give whole numbers for integers, and 0 or 1 for bool.",
        )
    return array


def _filled(name: str, array: NDArray[Any], shape: Sequence[int | str | None] | None) -> NDArray[Any]:
    """The numbers in the input's shape."""
    import numpy as np

    if shape is not None and all(isinstance(dim, int) for dim in shape):
        static = tuple(int(dim or 0) for dim in shape)
        if array.size == prod(static):
            return array.reshape(static)
        if array.size == 1:
            return np.full(static, array.reshape(-1)[0])
    elif shape is None or len(shape) == 1:
        return array.reshape(-1)
    raise ConfigError(
        f"--const {name}: {array.size} numbers do not fill the input, which is {described(shape)}.",
        hint="Give one number for all of it, or as many as it has elements; an input with open dimensions "
        "cannot be pinned unless it has one dimension.",
    )
