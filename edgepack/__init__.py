"""edgepack: compile a trained model ahead of time into a bundle that runs on a device without TVM.

The public API is imported on first use, so that ``import edgepack`` stays cheap: TVM and ONNX Runtime are
loaded only by what compiles.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgepack.version import __version__

if TYPE_CHECKING:
    from edgepack.api import (
        Bundle,
        check,
        compare,
        cross_compiler,
        export,
        load,
        pack,
        quantize,
        sign,
        verify_layers,
    )
    from edgepack.client.session import Session
    from edgepack.commands.compare import Comparison
    from edgepack.commands.layers import LayersVerification
    from edgepack.commands.quantize import Quantized
    from edgepack.commands.tune import Tuned, TuneLayer, TuneRound, tune
    from edgepack.commands.update import Update, update
    from edgepack.errors import (
        CheckFailedError,
        ConfigError,
        EdgepackError,
        InternalError,
        ModelError,
        ToolchainError,
    )
    from edgepack.options import CompareOptions, PackOptions, QuantizeOptions
    from edgepack.plan.model_check import ModelCheck
    from edgepack.release.interface import make_release, new_project
    from edgepack.release.run import Release
    from edgepack.runners.bench import Measurement
    from edgepack.runners.instructions import Instructions
    from edgepack.runners.verify import Verification

__all__ = [
    "Bundle",
    "CheckFailedError",
    "CompareOptions",
    "Comparison",
    "ConfigError",
    "EdgepackError",
    "Instructions",
    "InternalError",
    "LayersVerification",
    "Measurement",
    "ModelCheck",
    "ModelError",
    "PackOptions",
    "QuantizeOptions",
    "Quantized",
    "Release",
    "Session",
    "ToolchainError",
    "TuneLayer",
    "TuneRound",
    "Tuned",
    "Update",
    "Verification",
    "__version__",
    "check",
    "compare",
    "cross_compiler",
    "export",
    "load",
    "make_release",
    "new_project",
    "pack",
    "quantize",
    "sign",
    "tune",
    "update",
    "verify_layers",
]

#: Names that are not in ``errors``, and the module that has each.
_PLACES = {
    **dict.fromkeys(
        (
            *("Bundle", "check", "compare", "cross_compiler", "export", "load", "pack", "quantize", "sign"),
            "verify_layers",
        ),
        "api",
    ),
    **dict.fromkeys(("make_release", "new_project"), "release.interface"),
    "CompareOptions": "options",
    "Comparison": "commands.compare",
    "Instructions": "runners.instructions",
    "LayersVerification": "commands.layers",
    "Measurement": "runners.bench",
    "ModelCheck": "plan.model_check",
    "PackOptions": "options",
    "QuantizeOptions": "options",
    "Quantized": "commands.quantize",
    "Release": "release.run",
    "Session": "client.session",
    "TuneLayer": "commands.tune",
    "TuneRound": "commands.tune",
    "Tuned": "commands.tune",
    "Update": "commands.update",
    "Verification": "runners.verify",
    "tune": "commands.tune",
    "update": "commands.update",
}


def __getattr__(name: str) -> Any:
    if name == "errors":  # `edgepack.errors.ModelError`, without an import of its own
        return import_module("edgepack.errors")
    if name not in __all__:
        raise AttributeError(f"module 'edgepack' has no attribute {name!r}")
    return getattr(import_module(f"edgepack.{_PLACES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "errors", *(name for name in globals() if name.startswith("__"))})
