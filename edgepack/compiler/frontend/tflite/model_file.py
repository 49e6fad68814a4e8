"""Reads a TFLite file: its tables as :class:`Model`; what a damaged one may say is checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.calls import check_calls
from edgepack.compiler.frontend.tflite.constants import Constants
from edgepack.compiler.frontend.tflite.flatbuffer import DamagedError, read_tables
from edgepack.compiler.frontend.tflite.model import (
    LEFT_OUT,
    Model,
    Operator,
    Quantisation,
    Subgraph,
    Tensor,
)
from edgepack.compiler.frontend.tflite.schema import numbers_of
from edgepack.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IDENTIFIER", "read_model"]

#: Bytes 4 to 8 of the schema's version 3, the only one that there was in files.
IDENTIFIER = b"TFL3"

#: Most dimensions of a tensor, and most elements: what is more is a damaged file.
_MOST_DIMENSIONS, _MOST_ELEMENTS = 16, 1 << 40

#: Largest magnitudes of zero points.
_ZERO_POINTS = {
    "int2": 2,
    "int4": 8,
    "uint4": 15,
    "int8": 128,
    "uint8": 255,
    "int16": 1 << 15,
    "int32": 1 << 31,
}

#: The signature that is used where there are several.
_SERVED = "serving_default"

_DAMAGED = "Download or convert the model again: it is damaged, or cut off."


def read_model(path: Path) -> Model:
    """The model of a file.

    Raises:
        ModelError: it cannot be read, or says what cannot be.
        ConfigError: LiteRT is not installed.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", hint="Check the path.") from error
    if data[4:8] != IDENTIFIER:
        raise ModelError(
            f"{path} is no TFLite model: it does not begin with the schema's identifier TFL3.", hint=_DAMAGED
        )
    try:
        return _model(read_tables(data), len(data))
    except DamagedError as error:
        raise ModelError(f"{path} is no valid TFLite model: {error}.", hint=_DAMAGED) from error
    except (ValueError, OverflowError, IndexError) as error:  # of NumPy's, say, whom a number does not fit
        raise ModelError(
            f"{path} is no valid TFLite model: what it says does not fit together.",
            hint=_DAMAGED,
            detail=f"{type(error).__name__}: {error}",
        ) from error


def _model(read: Any, size: int) -> Model:
    """The model that tables say.

    Args:
        size: of the file, in bytes.
    """
    if not read.subgraphs:
        raise DamagedError("it has no subgraph")
    if read.externalBuffers or read.externalBufferGroups:
        raise DamagedError("it keeps numbers in other files, which edgepack does not read")
    buffers = [b"" if one.data is None else one.data.tobytes() for one in read.buffers or []]
    constants = Constants(buffers, size)
    codes = [_code(one) for one in read.operatorCodes or []]
    subgraphs = [_subgraph(one, constants, codes) for one in read.subgraphs]
    check_calls(subgraphs)
    subgraphs[0] = _signed(subgraphs[0], read.signatureDefs or [])
    return Model(tuple(subgraphs), read.description or "", read)


def _signed(main: Subgraph, signatures: Sequence[Any]) -> Subgraph:
    """With inputs and outputs named as the signature has them: the only one, or the one that is served."""
    own = [one for one in signatures if int(one.subgraphIndex) == 0]
    if len(own) > 1:
        own = [one for one in own if one.signatureKey == _SERVED]
    if len(own) != 1:
        return main
    tensors, places = list(main.tensors), {*main.inputs, *main.outputs}
    taken = {tensor.name for tensor in tensors}
    for given in (*(own[0].inputs or []), *(own[0].outputs or [])):
        index, name = int(given.tensorIndex), given.name or ""
        if index in places and name and name not in taken:
            places.discard(index)
            taken.add(name)
            tensors[index] = replace(tensors[index], name=name)
    return replace(main, tensors=tuple(tensors))


def _code(read: Any) -> tuple[str, int, bool]:
    """Kind and version of operators, and whether they are custom ones."""
    number = max(int(read.builtinCode), int(read.deprecatedBuiltinCode))
    kind = numbers_of("BuiltinOperator").get(number, f"operator {number}")
    if kind == "CUSTOM":
        return read.customCode or "CUSTOM", int(read.version), True
    return kind, int(read.version), False


def _subgraph(read: Any, constants: Constants, codes: Sequence[tuple[str, int, bool]]) -> Subgraph:
    given = read.tensors or []
    names = _names([one.name or "" for one in given])
    tensors = tuple(_tensor(i, one, names[i], constants) for i, one in enumerate(given))

    def checked(indices: Any, least: int) -> tuple[int, ...]:
        found = tuple(int(i) for i in ([] if indices is None else indices))
        wrong = [i for i in found if not least <= i < len(given)]
        if wrong:
            raise DamagedError(f"a subgraph of {len(given)} tensors names number {wrong[0]}")
        return found

    operators = []
    for index, one in enumerate(read.operators or []):
        if one.opcodeIndex >= len(codes):
            raise DamagedError(f"an operator is of kind {one.opcodeIndex}, and there are {len(codes)}")
        kind, version, custom = codes[one.opcodeIndex]
        options = one.builtinOptions if one.builtinOptions is not None else one.builtinOptions2
        operators.append(
            Operator(
                index,
                kind,
                version,
                checked(one.inputs, LEFT_OUT),
                checked(one.outputs, 0),
                dict(vars(options)) if options is not None else {},
                custom,
                checked(one.intermediates, 0),
            )
        )
    made = Subgraph(tensors, tuple(operators), checked(read.inputs, 0), checked(read.outputs, 0))
    _check_computed_once(made)
    return made


def _check_computed_once(graph: Subgraph) -> None:
    """An interpreter writes what operators compute, and what it is given: neither twice, nor into a
    constant."""
    written = set[int]()
    for index in (*graph.inputs, *(index for one in graph.operators for index in one.outputs)):
        tensor = graph.tensors[index]
        if index in written:
            raise DamagedError(f"tensor {tensor.name!r} is computed more than once")
        if tensor.data is not None and tensor.data.size:
            raise DamagedError(f"tensor {tensor.name!r} is a constant, and computed")
        written.add(index)


def _names(given: Sequence[str]) -> list[str]:
    """Names that are unique and not empty: converters give tensors of one layer the same one."""
    counts, taken = Counter(given), set(given)
    made = []
    for index, name in enumerate(given):
        own = name if name and counts[name] == 1 else f"{name or 'tensor'}#{index}"
        while own != name and own in taken:  # another tensor has such a name of its own
            own += "#"
        taken.add(own)
        made.append(own)
    return made


def _tensor(index: int, read: Any, name: str, constants: Constants) -> Tensor:
    dtype = numbers_of("TensorType")[int(read.type)].lower()
    shape = tuple(int(n) for n in ([] if read.shape is None else read.shape))
    signature = shape if read.shapeSignature is None else tuple(int(n) for n in read.shapeSignature)
    if len(signature) != len(shape):
        signature = shape
    if len(shape) > _MOST_DIMENSIONS or any(n < 0 for n in shape) or prod(shape) > _MOST_ELEMENTS:
        raise DamagedError(f"tensor {name!r} has the shape {list(shape)[:_MOST_DIMENSIONS]}")
    data = constants.array(int(read.buffer), dtype, shape, name, read.sparsity)
    return Tensor(
        index,
        name,
        dtype,
        shape,
        tuple(axis for axis, extent in enumerate(signature) if extent < 0),
        _quantisation(read.quantization, dtype, shape, name, is_constant=data is not None),
        data,
        bool(read.isVariable) and data is None,
        read.quantization is not None and read.quantization.details is not None,
    )


def _quantisation(
    read: Any, dtype: str, shape: tuple[int, ...], name: str, *, is_constant: bool
) -> Quantisation | None:
    """What a tensor's integers mean; of floats a file may say anything, which no kernel reads.

    A vector has one axis, whatever axis older converters left there: that of the weights whose bias it is.
    Weights of which all are 0 along a channel have the scale 0 there.
    """
    import numpy as np

    if read is None or read.scale is None or not len(read.scale) or "int" not in dtype:
        return None
    scale = np.asarray(read.scale, np.float32)
    zero = np.zeros(scale.size, np.int64)
    if read.zeroPoint is not None and len(read.zeroPoint):
        zero = np.asarray(read.zeroPoint, np.int64)
    axis = int(read.quantizedDimension) if len(shape) > 1 and scale.size > 1 else 0
    if zero.size == 1 and scale.size > 1:
        zero = np.repeat(zero, scale.size)
    if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
        raise DamagedError(f"tensor {name!r} of {list(shape)} has {scale.size} scales along axis {axis}")
    least_is_there = (scale >= 0).all() if is_constant and scale.size > 1 else (scale > 0).all()
    if zero.size != scale.size or not np.isfinite(scale).all() or not least_is_there:
        raise DamagedError(f"tensor {name!r} has no valid scales")
    if dtype in _ZERO_POINTS and not (abs(zero) <= _ZERO_POINTS[dtype]).all():
        raise DamagedError(f"tensor {name!r} of {dtype} has the zero point {int(abs(zero).max())}")
    return Quantisation(scale, zero, axis)
