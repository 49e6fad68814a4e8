"""The element types of tensors: their names, sizes and the numbers that stand for them in files and in C.

Names are NumPy's, and ``bfloat16``.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["C_TYPES", "DTYPES", "DTYPE_BYTES", "DTYPE_CODE", "DTYPE_NAME", "Dtype"]


class Dtype(NamedTuple):
    """One element type.

    Attributes:
        code: its number in params files and in the C descriptor (``EP_DTYPE_LIST`` of
            ``edgepack/runtime.h``); codes are only ever added.
        nbytes: bytes of one element.
    """

    code: int
    nbytes: int


DTYPES = {
    "bool": Dtype(1, 1),
    "int8": Dtype(2, 1),
    "uint8": Dtype(3, 1),
    "int16": Dtype(4, 2),
    "uint16": Dtype(5, 2),
    "int32": Dtype(6, 4),
    "uint32": Dtype(7, 4),
    "int64": Dtype(8, 8),
    "uint64": Dtype(9, 8),
    "float16": Dtype(10, 2),
    "bfloat16": Dtype(11, 2),
    "float32": Dtype(12, 4),
    "float64": Dtype(13, 8),
}

#: Bytes of one element, by name.
DTYPE_BYTES = {name: dtype.nbytes for name, dtype in DTYPES.items()}
#: The number of each dtype, by name.
DTYPE_CODE = {name: dtype.code for name, dtype in DTYPES.items()}
#: The name of each dtype, by number.
DTYPE_NAME = {dtype.code: name for name, dtype in DTYPES.items()}

#: Name -> the C type of an element; half precision is passed as its bits, bool as a byte.
C_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"},
    **{"float32": "float", "float64": "double"},
}
