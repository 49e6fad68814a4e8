"""A file that torch.onnx.export wrote of a module that keeps state is refused: the file has lost it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.lost_state import refuse_lost_state
from edgepack.errors import ModelError
from workbench.models.builder import Graph

#: As PyTorch 2.13 writes it; tests/compiler/frontend/torch has files of its own.
SIGNATURE = """
# inputs
b_past: BUFFER target='past' persistent=True
b_layer_cache: BUFFER target='layer.cache' persistent=True
x: USER_INPUT

# outputs
{written}add: USER_OUTPUT
"""


def model(written: str, key: str = "pkg.torch.export.ExportedProgram.graph_signature") -> onnx.ModelProto:
    g = Graph("state")
    g.output(g.op("Add", g.input("x", [2]), g.const(np.float32([1, 2]))))
    made = g.model()
    made.graph.metadata_props.add(key=key, value=SIGNATURE.format(written=written))
    return made


def test_buffers_that_were_written_to_are_named() -> None:
    written = "slice_1: BUFFER_MUTATION target='past'\nindex_put: BUFFER_MUTATION target='layer.cache'\n"
    with pytest.raises(ModelError, match=r"writes to its buffers past, layer\.cache, and") as refused:
        refuse_lost_state(model(written))
    assert ".pt2" in refused.value.hint


def test_others_are_taken() -> None:
    refuse_lost_state(model(""))
    refuse_lost_state(model("slice_1: BUFFER_MUTATION target='past'\n", key="another"))
