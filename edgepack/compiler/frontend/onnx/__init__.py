"""The frontend for ONNX, and all that knows that format."""

from edgepack.compiler.frontend.onnx.frontend import (
    import_file,
    import_model,
    load,
    model_files,
    prepare,
    record,
    summarise,
)

__all__ = ["import_file", "import_model", "load", "model_files", "prepare", "record", "summarise"]
