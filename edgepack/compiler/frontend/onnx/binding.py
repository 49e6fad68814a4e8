"""Gives every input of a model its static shape: from the file, ``--shape`` and ``--dim``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.input_use import input_uses
from edgepack.compiler.frontend.onnx.open_dims import (
    ModelInput,
    check_bound,
    described,
    suggested_shape,
    with_batch,
)
from edgepack.compiler.frontend.onnx.related_sizes import derive, names_in
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.model_summary import Dim

if TYPE_CHECKING:
    import onnx

__all__ = [
    "EXPORT_DYNAMIC",
    "Bound",
    "ModelInput",
    "bind",
    "dimension",
    "input_dtype",
    "model_inputs",
    "unbound_dims",
]


#: What to do about a shape that was fixed when the model was exported.
EXPORT_DYNAMIC = "Export the model with dynamic axes (torch.onnx.export: dynamic_shapes or dynamic_axes)"


#: What exporters write in the place of a name for a dimension that has none (Paddle2ONNX, TensorFlow's).
_NAMELESS = {"", "?", "-1", "*", "none", "null", "unknown", "dynamic"}


#: By ONNX's name of a type: what a message calls it, and what to try.
_LISTS = {
    "sequence_type": (
        "a list of tensors (a sequence)",
        "Export the model with a tensor for each of the list, or with all of them stacked in one; or name "
        "the tensors behind the nodes that take the list apart (--inputs).",
    ),
    "optional_type": (
        "an optional value",
        "Export the model with the value as a plain tensor, or without it; or name the tensors behind it "
        "(--inputs).",
    ),
}


def model_inputs(model: onnx.ModelProto, *, only_tensors: bool = False) -> tuple[ModelInput, ...]:
    """The graph's inputs less those that are initializers (which files of IR version 3 list as inputs too).

    Args:
        only_tensors: leave out lists of tensors and other values that no bundle takes, which a cut may take
            away.

    Raises:
        ModelError: an input is not a tensor, or has a dtype that no kernel knows (strings).
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return tuple(
        ModelInput(value.name, input_dtype(value), _declared_shape(value))
        for value in model.graph.input
        if value.name not in constants
        and (not only_tensors or value.type.WhichOneof("value") in ("tensor_type", None))
    )


def input_dtype(value: onnx.ValueInfoProto) -> str:
    """Name of the element type (``float32``); ModelError if a bundle's tensor cannot have it.

    That of a type of fewer bits than C has one for is the byte that holds it (``storage_types.py``).
    """
    import onnx

    from edgepack.compiler.frontend.onnx.storage_types import STORAGE_TYPES
    from edgepack.plan.dtypes import DTYPE_BYTES

    kind = value.type.WhichOneof("value")
    if kind in _LISTS:
        what, hint = _LISTS[kind]
        raise ModelError(f"{value.name!r} is {what}; inputs and outputs must be tensors.", hint=hint)
    if kind != "tensor_type":
        raise ModelError(
            f"{value.name!r} is no dense tensor ({kind or 'no type'}); inputs and outputs must be.",
            hint="Export the model with tensors only.",
        )
    element = value.type.tensor_type.elem_type
    known = onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(element).lower() if element in known else str(element)
    dtype = {"float": "float32", "double": "float64", **STORAGE_TYPES}.get(name, name)
    if dtype not in DTYPE_BYTES:
        raise ModelError(
            f"{value.name!r} has the element type {dtype}, which a bundle cannot have.",
            hint=f"Cut the model before it; element types can be {', '.join(DTYPE_BYTES)}.",
        )
    return dtype


@dataclass(frozen=True)
class Bound:
    """The static shapes of a model's inputs.

    Attributes:
        shapes: by input name.
        batches: what was open and is taken for a batch of 1, a sentence each.
    """

    shapes: dict[str, tuple[int, ...]]
    batches: tuple[str, ...] = ()


def dimension(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """A declared dimension: its size, its name, or None if it has neither. What stands for a missing name
    (``?``) is none: two such dimensions need not be equal."""
    if dim.WhichOneof("value") == "dim_value":
        return None if dim.dim_value < 0 else int(dim.dim_value)
    name = str(dim.dim_param)
    return None if name.strip().lower() in _NAMELESS else name


def unbound_dims(model: onnx.ModelProto) -> dict[str, tuple[Dim, ...] | None]:
    """Declared shapes of the inputs that need ``--dim`` or ``--shape``, by name."""
    return {i.name: i.shape for i in model_inputs(model) if not _is_static(i.shape)}


def bind(model: onnx.ModelProto, *, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> Bound:
    """Writes the static shapes into ``model`` (in place) and returns them.

    A size that ``shapes`` gives to a named dimension holds for that name in every input. One whose name
    computes it of others (``past + length``) follows from these. A first dimension
    that nothing binds is a batch, of 1. Shapes of outputs and of intermediate values are removed: they may be
    those of other sizes.

    Raises:
        ConfigError: ``shapes`` or ``dims`` do not fit the model.
        ModelError: an input cannot be used, or has a dimension that nothing binds.
    """
    inputs = model_inputs(model)
    _check_names(inputs, shapes, dims)
    sizes = dict(dims)
    for item in inputs:
        if item.name in shapes:
            _match_shape(item, shapes[item.name], sizes)
    inputs, batches = with_batch(inputs, shapes, sizes)
    derive({dim for item in inputs for dim in item.shape or () if isinstance(dim, str)}, sizes)
    if not all(item.name in shapes or _is_known(item, sizes) for item in inputs):
        uses = input_uses(model, [item.name for item in inputs])
        inputs = tuple(replace(item, use=uses[item.name]) for item in inputs)
    check_bound(inputs, shapes, sizes)
    bound = {}
    for item in inputs:
        shape = tuple(shapes[item.name]) if item.name in shapes else _resolved(item, sizes)
        if item.name not in shapes and 0 in (item.shape or ()):
            # Of no elements, or open: exporters wrote 0 for a size that they did not know.
            suggested, none = suggested_shape(item, sizes), f"{item.name}={_comma(shape)}"
            raise ModelError(
                f"Input {item.name!r} has a dimension of size 0: its shape is {_comma(shape)}.",
                hint=f"Choose its size, for example: --shape {suggested}; "
                f"or, if it has no elements: --shape {none}",
            )
        bound[item.name] = shape
    _write(model, bound)
    return Bound(bound, batches)


def _declared_shape(value: onnx.ValueInfoProto) -> tuple[Dim, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(dimension(dim) for dim in tensor.shape.dim)


def _is_static(shape: tuple[Dim, ...] | None) -> bool:
    return shape is not None and all(isinstance(dim, int) for dim in shape)


def _is_known(item: ModelInput, sizes: Mapping[str, int]) -> bool:
    return item.shape is not None and all(isinstance(dim, int) or dim in sizes for dim in item.shape)


def _check_names(
    inputs: tuple[ModelInput, ...], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> None:
    names = [item.name for item in inputs]
    for name in shapes:
        if name not in names:
            raise ConfigError(
                f"--shape: the model has no input {name!r}.", hint=_nearest(name, names, "inputs")
            )
    names_of_dims = {dim for item in inputs for dim in item.shape or () if isinstance(dim, str)}
    symbols = sorted(names_of_dims.union(*map(names_in, names_of_dims)))
    for name, size in dims.items():
        if name not in symbols:
            raise ConfigError(
                f"--dim: no input of the model has a dimension {name!r}.",
                hint=_nearest(name, symbols, "named dimensions"),
            )
        if size < 0:
            raise ConfigError(f"--dim {name}={size}: a size must be at least 0.")


def _match_shape(item: ModelInput, shape: Sequence[int], sizes: dict[str, int]) -> None:
    """Checks a ``--shape`` against the declared shape; adds the sizes of named dimensions to ``sizes``."""
    option = f"--shape {item.name}={_comma(shape)}"
    if any(size < 0 for size in shape):
        raise ConfigError(f"{option}: sizes must be at least 0.")
    if item.shape is None:
        return
    if len(item.shape) != len(shape):
        raise ConfigError(
            f"{option}: the input is {described(item.shape)}, of rank {len(item.shape)}, not {len(shape)}.",
            hint=f"For example: --shape {suggested_shape(item)}.",
        )
    for index, (declared, size) in enumerate(zip(item.shape, shape, strict=True)):
        if isinstance(declared, int) and declared not in (0, size):
            raise ConfigError(
                f"{option}: dimension {index} of the input is fixed to {declared} in the model, not {size}.",
                hint=_of_fixed(item, index, size),
            )
        if isinstance(declared, str) and sizes.setdefault(declared, size) != size:
            raise ConfigError(
                f"{option}: dimension {index} is {declared!r}, which is already {sizes[declared]}.",
                hint=f"Give {declared!r} the same size in every --shape and --dim.",
            )


def _of_fixed(item: ModelInput, index: int, size: int) -> str:
    """What to do about a dimension that was fixed when the model was exported."""
    if index == 0 and (item.shape or ())[0] == 1:
        return f"{EXPORT_DYNAMIC}, or try --set-batch {size} instead, which rewrites a batch of 1."
    return f"{EXPORT_DYNAMIC}. Only open dimensions can be chosen: --shape {suggested_shape(item)}."


def _resolved(item: ModelInput, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = (sizes[dim] if isinstance(dim, str) else dim for dim in item.shape or ())
    return tuple(dim for dim in shape if dim is not None)


def _write(model: onnx.ModelProto, bound: Mapping[str, tuple[int, ...]]) -> None:
    for value in model.graph.input:
        if value.name in bound:
            shape = value.type.tensor_type.shape
            shape.Clear()
            for size in bound[value.name]:
                shape.dim.add().dim_value = size
            shape.SetInParent()  # a scalar has a shape without dimensions, not no shape
    for value in model.graph.output:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def _nearest(name: str, known: Sequence[str], what: str) -> str:
    if not known:
        return f"The model has no {what}."
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Its {what} are {', '.join(known)}."


def _comma(shape: Sequence[object]) -> str:
    return ",".join(str(size) for size in shape) or "a scalar"
