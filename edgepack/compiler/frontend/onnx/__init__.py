"""The frontend for ONNX, and all that knows that format.

``frontend.py`` has the functions of the protocol (:class:`edgepack.compiler.frontend.base.Frontend`), each of
which is a few calls of the other modules. Importing it imports neither ``onnx`` nor TVM.
"""

from edgepack.compiler.frontend.onnx.frontend import (
    compare,
    draw,
    import_file,
    import_model,
    load,
    model_files,
    prepare,
    quantise,
    record,
    summarise,
    tensors_inside,
)
from edgepack.compiler.frontend.onnx.recognise import recognises
from edgepack.compiler.frontend.onnx.tried_sizes import check_run, explained

__all__ = [
    "check_run",
    "compare",
    "draw",
    "explained",
    "import_file",
    "import_model",
    "load",
    "model_files",
    "prepare",
    "quantise",
    "recognises",
    "record",
    "summarise",
    "tensors_inside",
]
