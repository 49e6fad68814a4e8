"""The frontend for PyTorch: files of ``torch.export.save`` (``.pt2``) and of TorchScript.

A program becomes an ONNX model by PyTorch's own exporter, with what that loses restored: names of nested
inputs and outputs, and state. The ONNX frontend does the rest, so that there is one way. Importing this
imports neither ``torch`` nor ``onnx``.
"""

from edgepack.compiler.frontend.torch.frontend import (
    SUFFIXES,
    executable,
    export_script,
    load,
    model_files,
    prepare,
    quantise,
    record,
    summarise,
    tensors_inside,
)
from edgepack.compiler.frontend.torch.recognise import recognises

__all__ = [
    "SUFFIXES",
    "executable",
    "export_script",
    "load",
    "model_files",
    "prepare",
    "quantise",
    "recognises",
    "record",
    "summarise",
    "tensors_inside",
]
