"""Nodes in forms of old operator sets get those of a recent one, and what rewrites write is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model, rewrites
from edgepack.compiler.frontend.onnx.node_forms import check_forms, wrong_forms
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.rewrites.recent_forms import OPSET
from edgepack.errors import InternalError, ModelError
from workbench.compiled import Compiled
from workbench.models.builder import Graph
from workbench.models.contrib import CONTRIB

#: By name: operator set, operator, shape of the operand, attributes, number of outputs.
OLD: dict[str, tuple[int, str, tuple[int, ...], dict[str, Any], int]] = {
    "clip": (10, "Clip", (7,), {"min": -0.5, "max": 0.5}, 1),
    "clip below": (6, "Clip", (7,), {"max": 0.5}, 1),
    "dropout": (9, "Dropout", (2, 3), {"ratio": 0.3}, 1),
    "log softmax": (11, "LogSoftmax", (2, 3, 4), {}, 1),
    "mean": (13, "ReduceMean", (2, 3, 4), {"axes": [1, -1]}, 1),
    "pad": (9, "Pad", (2, 3), {"pads": [0, 1, 1, 0], "value": 2.0}, 1),
    "slice": (9, "Slice", (4, 5), {"starts": [1], "ends": [-1], "axes": [1]}, 1),
    "softmax": (9, "Softmax", (2, 3, 4), {"axis": 1}, 1),
    "split": (11, "Split", (2, 5), {"axis": 1, "split": [2, 3]}, 2),
    "split equally": (11, "Split", (4, 5), {}, 2),
    "squeeze": (11, "Squeeze", (2, 1, 3), {"axes": [1]}, 1),
    "sum": (11, "ReduceSum", (2, 3), {"axes": [0], "keepdims": 0}, 1),
    "unsqueeze": (9, "Unsqueeze", (2, 3), {"axes": [0, 3]}, 1),
    "upsample": (7, "Upsample", (1, 1, 3, 4), {"scales": [1.0, 1.0, 2.0, 3.0]}, 1),
}


def _old(name: str) -> onnx.ModelProto:
    opset, operator, shape, attributes, count = OLD[name]
    g = Graph("old", opset=opset)
    # A node before and one behind, so that no optimiser takes it for nothing.
    x = g.op("Neg", g.input("x", shape))
    for y in g.ops(operator, x, outputs=count, **attributes):
        g.output(g.op("Neg", y))
    return g.model()


def _clipped(opset: int) -> onnx.ModelProto:
    g = Graph("clipped", opset=opset)
    w = g.const(np.float32([[[[5.0]]]]))
    said = {"activation": "Clip", "activation_params": [0.0, 6.0], "domain": "com.microsoft"}
    g.output(g.op("FusedConv", g.input("x", (1, 1, 4, 4)), w, name="y", **said))
    return g.model()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder: Path = tmp_path_factory.mktemp("old")
    return Compiled({name: _old(name) for name in OLD} | {"clipped": _clipped(10)}, folder)


@pytest.mark.parametrize("name", [*OLD, "clipped"])
def test_old_forms_compute_what_they_did(compiled: Compiled, name: str) -> None:
    compiled.check(name)


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("name", sorted(CONTRIB))
def test_rewrites_write_what_the_operator_set_has(name: str, opset: int) -> None:
    model = CONTRIB[name]()
    for one in model.opset_import:
        one.version = opset if one.domain == "" else one.version
    model = rewrites.apply(model)
    assert next(one.version for one in model.opset_import if one.domain == "") == OPSET
    assert not list(wrong_forms(model))


def _one(operator: str, *inputs: str, **attributes: Any) -> onnx.ModelProto:
    g = Graph("one", opset=OPSET)
    g.input("x", (2, 3))
    g.const(np.zeros(1, np.int64), name="zeros")
    g.output(g.op(operator, *inputs, name="y", **attributes))
    return g.model()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_one("Relu", "x", "x"), "it has 2 inputs"),
        (_one("ReduceMean", "x", axes=[1]), "it has an attribute 'axes'"),
        (_one("Concat", "x", "x"), "it has no attribute 'axis'"),
        (_one("Add", "x", "zeros", broadcast=1), "it has an attribute 'broadcast'"),
        (_one("Not", "x"), "its input 0 has the element type 1"),
    ],
)
def test_a_node_in_a_form_that_there_is_not_is_a_defect(model: onnx.ModelProto, said: str) -> None:
    with pytest.raises(InternalError) as error:
        check_forms(model)
    assert said in error.value.detail


def test_every_packed_model_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def clip(editor: Any, node: Any) -> list[str]:
        return [editor.op("Clip", node.input[0], min=0.0)]

    monkeypatch.setitem(rewrites.REWRITES, ("", "Relu"), clip)
    g = Graph("relu", opset=11)
    g.output(g.op("Relu", g.input("x", (2, 3)), name="y"))
    with pytest.raises(InternalError, match="in a form that they do not have"):
        import_model(g.model())


def test_a_form_that_is_not_known_is_refused() -> None:
    """Integers have no error function since opset 13."""
    g = Graph("whole", opset=9)
    g.output(g.op("Erf", g.input("x", (2, 3), "int32"), name="y"), "int32")
    with pytest.raises(ModelError, match="old operator set"):
        normalise(g.model())
