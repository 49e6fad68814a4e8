"""Element types of 8 bits and fewer that C has no type for: how a bundle holds them, a byte for each element.

Floats are their bits in a uint8, integers their value in an int8 or uint8. Arithmetic has none of them: they
are what models are stored and exchanged in, so casts and quantisation are all that knows them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "STORAGE_TYPES",
    "as_bytes",
    "encoding",
    "from_bytes",
    "has_storage_types",
    "retype",
    "storage_name",
]

#: What an element is in a bundle, by ONNX's name of the type in lower case.
STORAGE_TYPES = {
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), "uint8"),
    **dict.fromkeys(("float8e8m0", "float4e2m1", "uint4", "uint2"), "uint8"),
    **dict.fromkeys(("int4", "int2"), "int8"),
}


def storage_name(element: int) -> str:
    """ONNX's name of an element type in lower case if it is one of these, else an empty one."""
    import onnx

    name = onnx.TensorProto.DataType.Name(element).lower() if element else ""
    return name if name in STORAGE_TYPES else ""


def as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    """An array of ``ml_dtypes`` as a bundle holds it; any other as it is."""
    import numpy as np

    name = array.dtype.name
    if name.startswith(("int2", "int4")):
        return array.astype(np.int8)
    if name.startswith(("uint2", "uint4")):
        return array.astype(np.uint8)
    return array.view(np.uint8) if name.startswith(("float8", "float4")) else array


def from_bytes(array: NDArray[Any], element: int) -> NDArray[Any]:
    """The array of ``ml_dtypes`` that is held as :func:`as_bytes` says."""
    import onnx

    name = storage_name(element)
    if not name:
        return array
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    return array.view(dtype) if name.startswith("float") else array.astype(dtype)


def has_storage_types(model: onnx.ModelProto) -> bool:
    """Whether an input or output of the graph has one of the types."""
    values = (*model.graph.input, *model.graph.output)
    return any(storage_name(value.type.tensor_type.elem_type) for value in values)


def retype(model: onnx.ModelProto) -> None:
    """Makes inputs, outputs and constants of these types what a bundle holds, in place."""
    import onnx
    from onnx import numpy_helper

    if not has_storage_types(model) and not any(storage_name(t.data_type) for t in model.graph.initializer):
        return

    for value in (*model.graph.input, *model.graph.output):
        if name := storage_name(value.type.tensor_type.elem_type):
            value.type.tensor_type.elem_type = onnx.TensorProto.DataType.Value(STORAGE_TYPES[name].upper())
    for tensor in model.graph.initializer:
        if storage_name(tensor.data_type):
            tensor.CopyFrom(numpy_helper.from_array(as_bytes(numpy_helper.to_array(tensor)), tensor.name))
    del model.graph.value_info[:]


@cache
def encoding(name: str, rounding: str) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
    """How a magnitude becomes a float of a storage type.

    Args:
        name: ONNX's name of the type in lower case.
        rounding: "nearest" (ties to even), or for float8e8m0 "up" or "down".

    Returns:
        for each code but 0 the least float32 that has it, where the last code is that of what is too large;
        the number of each of 256 codes; the code of NaN.
    """
    import ml_dtypes
    import numpy as np
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(name.upper()))
    table = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    if name == "float4e2m1":
        table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
        table = np.concatenate([table, np.zeros(240, np.float32)])
    positive = 8 if name == "float4e2m1" else (255 if name == "float8e8m0" else 128)
    finite = table[:positive][np.isfinite(table[:positive])].astype(np.float64)
    step = finite[-1] * 2 if name == "float8e8m0" else 2 * finite[-1] - finite[-2]
    ladder = np.append(finite, step)
    infinity = np.float32(np.inf)
    if rounding == "up":
        least = np.nextafter(ladder[:-1].astype(np.float32), infinity)
    elif rounding == "down":
        with np.errstate(over="ignore"):  # what is too large is infinite
            least = ladder[1:].astype(np.float32)
    else:
        middle = ((ladder[1:] + ladder[:-1]) / 2).astype(np.float32)
        odd = np.arange(1, len(ladder)) % 2 == 1  # a tie goes to the even code, the one below
        least = np.where(odd, np.nextafter(middle, infinity), middle)
    with np.errstate(all="ignore"):
        nan = int(np.asarray(np.nan, np.float32).astype(dtype).view(np.uint8))
    return least.astype(np.float32), table, nan
