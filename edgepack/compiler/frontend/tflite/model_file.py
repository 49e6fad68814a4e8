"""Reads a TFLite file: the schema's flatbuffer as :class:`Model`; what a damaged one may say is checked."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.model import (
    LEFT_OUT,
    Model,
    Operator,
    Quantisation,
    Subgraph,
    Tensor,
)
from edgepack.compiler.frontend.tflite.sparse import dense
from edgepack.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["IDENTIFIER", "read_model", "schema"]

#: Bytes 4 to 8 of the schema's version 3, the only one that there was in files.
IDENTIFIER = b"TFL3"

#: Most dimensions of a tensor, and most elements: what is more is a damaged file.
_MOST_DIMENSIONS, _MOST_ELEMENTS = 16, 1 << 40

#: The signature that is used where there are several.
_SERVED = "serving_default"

_DAMAGED = "Download or convert the model again: it is damaged, or cut off."


def schema() -> ModuleType:
    """The schema's classes (``ai_edge_litert.schema_py_generated``).

    Raises:
        ConfigError: the package that has them is not installed.
    """
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError as error:
        raise ConfigError(
            "TFLite models are read by LiteRT, which is not installed.",
            hint='Install it with pip install "edgepack[tflite]".',
            detail=str(error),
        ) from error
    return schema_py_generated  # type: ignore[no-any-return]


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
        return _model(schema().ModelT.InitFromPackedBuf(data, 0), data)
    except (struct.error, ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ModelError(
            f"{path} is no valid TFLite model: what it says of itself lies outside of it.",
            hint=_DAMAGED,
            detail=f"{type(error).__name__}: {error}",
        ) from error
    except RecursionError as error:
        hint = _DAMAGED
        raise ModelError(
            f"{path} is no valid TFLite model: its tables hold themselves.", hint=hint
        ) from error


def _model(read: Any, data: bytes) -> Model:
    if not read.subgraphs:
        raise ValueError("there is no subgraph")
    buffers = [_buffer(one, data) for one in read.buffers or []]
    codes = [_code(one) for one in read.operatorCodes or []]
    subgraphs = [_subgraph(one, buffers, codes) for one in read.subgraphs]
    subgraphs[0] = _signed(subgraphs[0], read.signatureDefs or [])
    return Model(tuple(subgraphs), _text(read.description))


def _signed(main: Subgraph, signatures: Sequence[Any]) -> Subgraph:
    """With inputs and outputs named as the signature has them: the only one, or the one that is served."""
    own = [one for one in signatures if int(one.subgraphIndex) == 0]
    if len(own) > 1:
        own = [one for one in own if _text(one.signatureKey) == _SERVED]
    if len(own) != 1:
        return main
    tensors, places = list(main.tensors), {*main.inputs, *main.outputs}
    taken = {tensor.name for tensor in tensors}
    for given in (*(own[0].inputs or []), *(own[0].outputs or [])):
        index, name = int(given.tensorIndex), _text(given.name)
        if index in places and name and name not in taken:
            places.discard(index)
            taken.add(name)
            tensors[index] = replace(tensors[index], name=name)
    return replace(main, tensors=tuple(tensors))


def _buffer(read: Any, data: bytes) -> bytes:
    """A buffer's bytes: in the table, or behind it, where models above 2 GB have theirs."""
    if read.data is not None and len(read.data):
        return bytes(bytearray(read.data))
    if read.offset > 1:
        found = data[read.offset : read.offset + read.size]
        if len(found) < read.size:
            raise ValueError("a buffer ends behind the file")
        return found
    return b""


@cache
def _kinds() -> Mapping[int, str]:
    numbers = vars(schema().BuiltinOperator).items()
    return {number: name for name, number in numbers if isinstance(number, int)}


@cache
def _dtypes() -> Mapping[int, str]:
    numbers = vars(schema().TensorType).items()
    return {number: name.lower() for name, number in numbers if isinstance(number, int)}


def _code(read: Any) -> tuple[str, int, bool]:
    """Kind and version of operators, and whether they are custom ones."""
    number = max(int(read.builtinCode), int(read.deprecatedBuiltinCode))
    kind = _kinds().get(number, f"operator {number}")
    if kind == "CUSTOM":
        return _text(read.customCode) or "CUSTOM", int(read.version), True
    return kind, int(read.version), False


def _subgraph(read: Any, buffers: Sequence[bytes], codes: Sequence[tuple[str, int, bool]]) -> Subgraph:
    count = len(read.tensors) if read.tensors is not None else 0
    names = _names([_text(one.name) for one in read.tensors or []])
    tensors = tuple(_tensor(i, one, names[i], buffers) for i, one in enumerate(read.tensors or []))

    def checked(indices: Any, least: int) -> tuple[int, ...]:
        found = tuple(int(i) for i in ([] if indices is None else indices))
        if any(not least <= i < count for i in found):
            raise ValueError(f"a tensor of {count} is number {max(found)}")
        return found

    operators = []
    for index, one in enumerate(read.operators or []):
        kind, version, custom = codes[_natural(one.opcodeIndex)]
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
    return Subgraph(tensors, tuple(operators), checked(read.inputs, 0), checked(read.outputs, 0))


def _natural(value: Any) -> int:
    if int(value) < 0:
        raise IndexError(f"a negative index {value}")
    return int(value)


def _names(given: Sequence[str]) -> list[str]:
    """Names that are unique and not empty: converters give tensors of one layer the same one."""
    counts = Counter(given)
    return [
        name if name and counts[name] == 1 else f"{name or 'tensor'}#{index}"
        for index, name in enumerate(given)
    ]


def _tensor(index: int, read: Any, name: str, buffers: Sequence[bytes]) -> Tensor:
    dtype = _dtypes().get(int(read.type), f"type {read.type}")
    shape = tuple(int(n) for n in ([] if read.shape is None else read.shape))
    signature = shape if read.shapeSignature is None else tuple(int(n) for n in read.shapeSignature)
    if len(signature) != len(shape):
        signature = shape
    if len(shape) > _MOST_DIMENSIONS or any(n < 0 for n in shape) or prod(shape) > _MOST_ELEMENTS:
        raise ValueError(f"tensor {name!r} has the shape {list(shape)[:_MOST_DIMENSIONS]}")
    data = _data(buffers[_natural(read.buffer)], dtype, shape, name, read.sparsity)
    return Tensor(
        index,
        name,
        dtype,
        shape,
        tuple(axis for axis, extent in enumerate(signature) if extent < 0),
        _quantisation(read.quantization, shape, name),
        data,
        bool(read.isVariable) and data is None,
    )


def _data(
    content: bytes, dtype: str, shape: tuple[int, ...], name: str, sparsity: Any
) -> NDArray[Any] | None:
    import numpy as np

    if dtype in {"string", "resource", "variant"} or (not content and 0 not in shape):
        return None
    if dtype in {"int4", "uint4", "int2"} and sparsity is None:
        return _unpacked(content, dtype, shape)
    if dtype == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    elif dtype in np.sctypeDict:
        kind = np.dtype(dtype)
    else:
        return None
    if sparsity is not None:
        return dense(np.frombuffer(content, kind), shape, sparsity)
    if len(content) != prod(shape) * kind.itemsize:
        raise ValueError(f"tensor {name!r} of {list(shape)} {dtype} has {len(content)} bytes")
    return np.frombuffer(content, kind).reshape(shape)


def _unpacked(content: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Numbers of 4 bits, the low half of each byte first, or of 2, as int8 and uint8."""
    import numpy as np

    bits, raw = (2 if dtype == "int2" else 4), np.frombuffer(content, np.uint8)
    parts = np.stack([(raw >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)], 1).reshape(-1)
    if parts.size < prod(shape) or parts.size - prod(shape) >= 8 // bits:
        raise ValueError(f"numbers of {bits} bits do not fill the shape {list(shape)}")
    found = parts[: prod(shape)].reshape(shape)
    if dtype == "uint4":
        return found
    return np.where(found >> (bits - 1), found.astype(np.int16) - (1 << bits), found).astype(np.int8)


def _quantisation(read: Any, shape: tuple[int, ...], name: str) -> Quantisation | None:
    import numpy as np

    if read is None or read.scale is None or not len(read.scale):
        return None
    scale = np.asarray(read.scale, np.float32)
    zero = np.zeros(scale.size, np.int64)
    if read.zeroPoint is not None and len(read.zeroPoint):
        zero = np.asarray(read.zeroPoint, np.int64)
    axis = int(read.quantizedDimension)
    if zero.size == 1 and scale.size > 1:
        zero = np.repeat(zero, scale.size)
    if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
        raise ValueError(f"tensor {name!r} of {list(shape)} has {scale.size} scales along axis {axis}")
    if zero.size != scale.size or not np.isfinite(scale).all() or (scale <= 0).any():
        raise ValueError(f"tensor {name!r} has no valid scales")
    return Quantisation(scale, zero, axis if scale.size > 1 else 0)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
