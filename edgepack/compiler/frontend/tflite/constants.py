"""The numbers of constants: what a buffer's bytes are as an array, and how much all of them may take."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.flatbuffer import DamagedError
from edgepack.compiler.frontend.tflite.sparse import dense

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Constants"]

#: Bytes that all constants together may take: a multiple of the file, and what any file may have. Tensors
#: share buffers (a subgraph for each signature), and sparse ones become dense.
_MOST_TIMES, _MOST_ALWAYS = 16, 1 << 28

#: Types whose constants no operator reads here.
_NO_NUMBERS = {"string", "resource", "variant"}


class Constants:
    """Makes arrays of buffers.

    Args:
        buffers: the bytes of each; empty for tensors that are computed.
        file_size: of the file, in bytes.
    """

    def __init__(self, buffers: list[bytes], file_size: int) -> None:
        self._buffers, self._left = buffers, _MOST_TIMES * file_size + _MOST_ALWAYS

    def array(
        self, buffer: int, dtype: str, shape: tuple[int, ...], name: str, sparsity: Any
    ) -> NDArray[Any] | None:
        """The constant that a tensor is; None of one that is computed: the first buffer says that, and need
        be neither empty nor there.

        Raises:
            DamagedError: there is no such buffer, it does not fit the tensor's shape, or all constants take
                more than a file of this size may need.
        """
        import numpy as np

        if buffer and not 0 <= buffer < len(self._buffers):
            raise DamagedError(f"tensor {name!r} has a buffer {buffer} of {len(self._buffers)}")
        content = self._buffers[buffer] if buffer else b""
        if dtype in _NO_NUMBERS or (not content and 0 not in shape):
            return None
        if dtype in {"int4", "uint4", "int2"} and sparsity is None:
            self._count(prod(shape))
            return _unpacked(content, dtype, shape)
        if dtype == "bfloat16":
            import ml_dtypes

            kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        elif dtype in np.sctypeDict:
            kind = np.dtype(dtype)
        else:
            return None
        self._count(prod(shape) * kind.itemsize)
        if len(content) % kind.itemsize:
            raise DamagedError(f"tensor {name!r} of {dtype} has {len(content)} bytes")
        if sparsity is not None:
            return dense(np.frombuffer(content, kind), shape, sparsity)
        if len(content) != prod(shape) * kind.itemsize:
            raise DamagedError(f"tensor {name!r} of {list(shape)} {dtype} has {len(content)} bytes")
        return np.frombuffer(content, kind).reshape(shape)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DamagedError("its constants take much more room than the file")


def _unpacked(content: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Numbers of 4 bits, the low half of each byte first, or of 2, as int8 and uint8."""
    import numpy as np

    bits, raw = (2 if dtype == "int2" else 4), np.frombuffer(content, np.uint8)
    parts = np.stack([(raw >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)], 1).reshape(-1)
    if parts.size < prod(shape) or parts.size - prod(shape) >= 8 // bits:
        raise DamagedError(f"numbers of {bits} bits do not fill the shape {list(shape)}")
    found = parts[: prod(shape)].reshape(shape)
    if dtype == "uint4":
        return found
    return np.where(found >> (bits - 1), found.astype(np.int16) - (1 << bits), found).astype(np.int8)
