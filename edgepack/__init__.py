"""edgepack: compile a trained model ahead of time into a bundle that runs on a device without TVM.

The public API is imported on first use, so that ``import edgepack`` stays cheap: TVM and ONNX Runtime are
loaded only by what compiles.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgepack.version import __version__

if TYPE_CHECKING:
    from edgepack.api import Bundle, cross_compiler, load, pack
    from edgepack.errors import (
        CheckFailedError,
        ConfigError,
        EdgepackError,
        InternalError,
        ModelError,
        ToolchainError,
    )
    from edgepack.session import Session

__all__ = [
    "Bundle",
    "CheckFailedError",
    "ConfigError",
    "EdgepackError",
    "InternalError",
    "ModelError",
    "Session",
    "ToolchainError",
    "__version__",
    "cross_compiler",
    "load",
    "pack",
]

_API = ("Bundle", "cross_compiler", "load", "pack")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgepack' has no attribute {name!r}")
    place = "api" if name in _API else "session" if name == "Session" else "errors"
    return getattr(import_module(f"edgepack.{place}"), name)
