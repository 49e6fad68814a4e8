"""TFLite files beside LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgepack.compiler.frontend.onnx.sampling import random_inputs
from edgepack.compiler.frontend.tflite.checked_copy import checked_copy
from edgepack.compiler.frontend.tflite.convert import Converted, convert
from edgepack.compiler.frontend.tflite.interpreter import Interpreter
from edgepack.compiler.frontend.tflite.model_file import read_model

__all__ = ["Case", "assert_same"]


class Case:
    """A model, inputs, and what the interpreter's reference kernels compute of them.

    Args:
        content: a TFLite file.
        folder: where it is written.
        seed: of the inputs.
    """

    def __init__(self, content: bytes, folder: Path, seed: int = 1) -> None:
        path = folder / f"{seed}.tflite"
        path.write_bytes(content)
        self.converted: Converted = convert(read_model(path))
        self.inputs = random_inputs(self.converted.model, seed)
        graph = self.converted.subgraph
        places = {index: self.inputs[graph.tensors[index].name] for index in graph.inputs}
        interpreter = Interpreter(checked_copy(self.converted.source), places)
        interpreter.run(places)
        self.expected = {name: interpreter.tensor(i) for name, i in self.converted.places.items()}


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], what: str) -> None:
    """Integers bit for bit; floats within 1e-5 of their range, for other orders of sums and other libm."""
    for name, wanted in expected.items():
        got = found[name]
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), what
        if wanted.dtype.kind == "f":
            finite = np.abs(wanted[np.isfinite(wanted)])
            most = 1e-5 * max(1.0, float(finite.max(initial=0)))
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=most, err_msg=what)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=what)
