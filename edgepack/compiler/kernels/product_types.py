"""Element types of a product: of what is multiplied, of its sums, and of what is stored of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ProductTypes"]


@dataclass(frozen=True)
class ProductTypes:
    """The element types of sum over k of left[m, k] * right[k, n], and of what an epilogue makes of it.

    A convolution is such a product: its left operand is the input, the right one the weights.

    Attributes:
        left, right: of the operands as they are multiplied. One that is stored with fewer bits than it is
            multiplied with ("float16" by "float32") is widened when it is loaded.
        sums: of the accumulators. The epilogue begins with a value of this type.
        result: of what is stored.
    """

    left: str
    right: str
    sums: str
    result: str

    @classmethod
    def of(cls, dtype: str) -> ProductTypes:
        """The same type everywhere."""
        return cls(dtype, dtype, dtype, dtype)

    def __str__(self) -> str:
        result = f" -> {self.result}" if self.result != self.sums else ""
        return f"{self.left} x {self.right} -> {self.sums}{result}"
