"""Numbers that no operator can have are refused in a sentence, before a library computes with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.attribute_limits import check_attributes
from edgepack.errors import ModelError
from workbench.models.builder import Graph


def _model(operator: str, *constants: Any, **attributes: Any) -> onnx.ModelProto:
    """Without a look at its shapes, which may end the process."""
    tensors = [numpy_helper.from_array(np.asarray(array), f"c{n}") for n, array in enumerate(constants)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4, 6, 6))
    node = helper.make_node(operator, ["x", *(t.name for t in tensors)], ["y"], "node", **attributes)
    graph = helper.make_graph([node], "one", [x], [onnx.ValueInfoProto(name="y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


W = np.ones((4, 4, 3, 3), np.float32)

REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    # ONNX's shape inference reads outside of its memory, and ends with SIGSEGV.
    "batch_dims": (_model("GatherND", [[0]], batch_dims=-7), "has batch_dims -7"),
    "batch_dims_least": (_model("GatherND", [[0]], batch_dims=-(2**63)), "has batch_dims -92233720"),
    "perm_twice": (_model("Transpose", perm=[0, 1, 1, 3]), "which does not have each dimension once"),
    "perm_far": (_model("Transpose", perm=[0, 1, 2, 2**31]), "has perm 2147483648"),
    "perm_negative": (_model("Transpose", perm=[0, 1, 2, -1]), "has perm -1"),
    "group": (_model("Conv", W, group=-(2**31)), "has group -2147483648"),
    "strides": (_model("Conv", W, strides=[0, 1]), "has strides 0"),
    "dilations": (_model("Conv", W, dilations=[1, -1]), "has dilations -1"),
    "pads": (_model("Conv", W, pads=[0, 0, 2**62, 0]), "has pads 4611686018427387904"),
    "pads_of_windows": (_model("MaxPool", kernel_shape=[3, 3], pads=[0, 3, 0, 0]), "padding alone"),
    "blocks": (_model("DepthToSpace", blocksize=0), "has blocksize 0"),
    "neighbours": (_model("LRN", size=0), "has size 0"),
    "scale": (_model("MaxRoiPool", np.zeros((1, 5), np.float32), pooled_shape=[2, 2], spatial_scale=np.nan),
              "has spatial_scale nan"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_that_no_operator_has_is_refused(name: str) -> None:
    model, said = REFUSED[name]
    with pytest.raises(ModelError) as refusal:
        import_model(model)
    assert said in refusal.value.message


def test_functions_and_inner_graphs_are_looked_at_and_other_domains_are_not() -> None:
    node = REFUSED["batch_dims"][0].graph.node[0]
    inner = helper.make_graph([node], "inner", [], [onnx.ValueInfoProto(name="y")])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    foreign = helper.make_node("GatherND", ["x"], ["y"], domain="mine", batch_dims=-7)
    for nodes, refused in (([branch], True), ([foreign], False)):
        model = helper.make_model(helper.make_graph(nodes, "g", [], []))
        of_function = helper.make_model(helper.make_graph([], "g", [], []))
        opsets = [helper.make_opsetid("", 18)]
        of_function.functions.append(helper.make_function("mine", "f", ["x"], ["y"], nodes, opsets))
        for one in (model, of_function):
            if refused:
                with pytest.raises(ModelError):
                    check_attributes(one)
            else:
                check_attributes(one)


def test_parts_of_a_split_may_have_no_element() -> None:
    g = Graph("split", opset=18)
    x, sizes = g.input("x", (2, 4, 3)), g.const(np.asarray([0, 3, 0, 1]))
    node = helper.make_node("Split", [x, sizes], ["a", "b", "c", "d"], axis=1)
    model = g.model()
    model.graph.node.append(node)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in "abcd")
    shapes = [spec.shape for spec in import_model(model).signature.outputs]
    assert shapes == [(2, 0, 3), (2, 3, 3), (2, 0, 3), (2, 1, 3)]


def test_blocks_that_are_not_those_of_the_image_are_refused_at_once() -> None:
    model = _model("Col2Im", [4, 4], [2, 2**31 - 1])
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4, 9)))
    with pytest.raises(ModelError, match="has 9 blocks of 4 elements"):
        import_model(model)
