"""Brings a model to versions that ONNX Runtime knows; a new standard is out some months before it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.onnxruntime_session import newest_versions

if TYPE_CHECKING:
    import onnx

__all__ = ["for_onnxruntime"]


def for_onnxruntime(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the newest IR version and opset that ONNX Runtime knows, if its own are newer.

    Args:
        model: is not changed; returned itself if there is nothing to do.

    Raises:
        Exception: of ONNX's version converter, if an operator has no equivalent in the older opset.
    """
    import onnx
    from onnx import version_converter

    ir_version, opset = newest_versions()
    if model.ir_version <= ir_version and default_opset(model) <= opset:
        return model
    if default_opset(model) > opset:
        model = version_converter.convert_version(model, opset)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(model.ir_version, ir_version)
    return copy
