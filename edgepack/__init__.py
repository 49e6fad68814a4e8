"""edgepack: compile a trained model ahead of time into a bundle that runs on a device without TVM.

The public API is imported on first use, so that ``import edgepack`` stays cheap: TVM and ONNX Runtime are
loaded only by what compiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edgepack.api import Bundle, load, pack
    from edgepack.session import Session

__all__ = ["Bundle", "Session", "__version__", "load", "pack"]


def __getattr__(name: str) -> Any:
    if name in {"Bundle", "load", "pack"}:
        from edgepack import api

        return getattr(api, name)
    if name == "Session":
        from edgepack.session import Session

        return Session
    raise AttributeError(f"module 'edgepack' has no attribute {name!r}")
