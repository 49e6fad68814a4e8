"""Whose fault an exception is that nobody foresaw in the frontend: the file's or edgepack's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.errors import EdgepackError, ModelError

__all__ = ["attributed_errors"]


@contextmanager
def attributed_errors(path: Path) -> Iterator[None]:
    """What goes wrong with a model that ONNX's checker or ONNX Runtime refuses is a ModelError with their
    words; with one that both take it is a defect, and stays the exception that it is."""
    try:
        yield
    except (EdgepackError, MemoryError):
        raise
    except Exception as error:  # of protocol buffers, ONNX, ONNX Runtime and NumPy, which share no base class
        refusal = _refusal(path)
        if refusal is None:
            raise
        raise ModelError(
            f"{path} is not a valid ONNX model.",
            hint="Check it with onnx.checker.check_model(path, full_check=True), and export it again.",
            detail=refusal,
        ) from error


def _refusal(path: Path) -> str | None:
    """What ONNX's checker or ONNX Runtime say against a model; None if both take it."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
        create_session(onnx.load(str(path)))
    except Exception as error:  # as above
        return _plain(str(error).strip() or type(error).__name__)
    return None


def _plain(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[:8])
