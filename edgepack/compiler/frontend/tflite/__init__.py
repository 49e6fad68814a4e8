"""The frontend for TFLite: flatbuffer files (``.tflite``) of TensorFlow Lite and LiteRT.

A model becomes an ONNX model of standard operators and the fixed-point ones of
:mod:`edgepack.compiler.frontend.onnx.fixed_point`, so that integer networks compute, bit for bit, what the
reference kernels of the interpreter do. The ONNX frontend's importer does the rest. Importing this imports
neither ``ai_edge_litert`` nor ``onnx``.
"""

from edgepack.compiler.frontend.tflite.frontend import (
    load,
    model_files,
    prepare,
    recognises,
    record,
    summarise,
    tensors_inside,
)

__all__ = ["load", "model_files", "prepare", "recognises", "record", "summarise", "tensors_inside"]
