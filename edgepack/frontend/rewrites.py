"""Small ONNX-to-ONNX rewrites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["AFTER_FOLDING", "BEFORE_FOLDING", "Rewrite", "apply"]

Rewrite = Callable[["onnx.ModelProto"], "onnx.ModelProto"]

BEFORE_FOLDING: tuple[Rewrite, ...] = ()
AFTER_FOLDING: tuple[Rewrite, ...] = ()


def apply(model: onnx.ModelProto, rewrites: Sequence[Rewrite]) -> onnx.ModelProto:
    """The model after all ``rewrites``, in order."""
    for rewrite in rewrites:
        model = rewrite(model)
    return model
