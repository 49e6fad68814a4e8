"""Branches of Ifs that no run can take, for the sizes that a model is packed for do not fit them.

A network that takes sound of two sample rates has a branch for each, with windows of its own. Bound to the
window of one of them the other branch multiplies tensors that do not fit, and ONNX Runtime refuses the whole
model. Here such a branch becomes one that fails when it is run, in ONNX Runtime as in a bundle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape
from edgepack.compiler.frontend.onnx.support import BRANCHES, FAILS

if TYPE_CHECKING:
    import onnx

__all__ = ["replace_impossible"]

#: Bytes of the largest constant that is folded to find out.
FOLDED = 1 << 24


def replace_impossible(model: onnx.ModelProto) -> Iterator[str]:
    """Replaces, in place, such branches of the outermost graph's Ifs; what is said of each.

    Args:
        model: all input shapes static.
    """
    nodes = [node for node in model.graph.node if node.op_type == "If" and node.domain in ("", "ai.onnx")]
    if not nodes or _runs(model):
        return
    for node in nodes:
        if not set(BRANCHES) <= {a.name for a in node.attribute if a.HasField("g")}:
            continue
        fits = [_runs(_taken(model, node, branch)) for branch in BRANCHES]
        if fits.count(False) != 1:
            continue
        other, branch = BRANCHES[fits.index(True)], BRANCHES[fits.index(False)]
        if _replace(model, node, branch, other):
            condition = "true" if branch == "then_branch" else "false"
            yield (
                f"The sizes of the inputs do not fit the {branch.partition('_')[0]}-branch of the If node "
                f"{node.name or node.output[0]}: a run for which its condition, {node.input[0]!r}, is "
                f"{condition} fails (EP_E_BRANCH)."
            )


def _runs(model: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime takes the model, its constants folded: it infers most shapes then."""
    from edgepack.compiler.frontend.onnx.onnxruntime_session import optimise

    try:
        optimise(model, disabled=(), largest=FOLDED)
    except MemoryError:
        raise
    except Exception:  # onnxruntime's errors share no base class of their own
        return False
    return True


def _taken(model: onnx.ModelProto, node: onnx.NodeProto, branch: str) -> onnx.ModelProto:
    """The model with a branch in the place of an If, and the results of the If as its outputs."""
    import onnx
    from onnx import helper

    graph: onnx.GraphProto = next(a.g for a in node.attribute if a.name == branch)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.output[:]
    for one in model.graph.node:
        if one.output[:] != node.output[:]:
            made.graph.node.add().CopyFrom(one)
            continue
        made.graph.initializer.extend(graph.initializer)
        made.graph.node.extend(graph.node)
        made.graph.node.extend(
            helper.make_node("Identity", [value.name], [name])
            for value, name in zip(graph.output, node.output, strict=False)
            if name
        )
        break
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    return made


def _replace(model: onnx.ModelProto, node: onnx.NodeProto, branch: str, other: str) -> bool:
    """Makes a branch one that fails; False where the shapes of the other one's results are not known."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    from edgepack.compiler.frontend.onnx.onnxruntime_session import value_types

    taken = _taken(model, node, other)
    graph = infer_shapes(taken).graph
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    if any(name and static_shape(known.get(name)) is None for name in node.output):
        known |= {value.name: value for value in value_types(taken)}
    values = [(known.get(name), static_shape(known.get(name))) for name in node.output]
    if any(shape is None for _, shape in values):
        return False
    # A reshape of one element to two, which is not known before it runs: the condition decides about it.
    constants = {"one": np.ones(1, np.float32), "none": np.zeros(1, np.int64), "two": np.full(1, 2, np.int64)}
    nodes = [
        helper.make_node("Cast", [node.input[0]], ["number"], to=onnx.TensorProto.INT64),
        helper.make_node("Reshape", ["number", "first"], ["numbers"]),
        helper.make_node("Mul", ["numbers", "none"], ["nothing"]),
        helper.make_node("Add", ["nothing", "two"], ["extent"]),
        helper.make_node("Reshape", ["one", "extent"], ["failed"], name=FAILS),
        helper.make_node("ReduceMax", ["failed"], ["scalar"], keepdims=0),
    ]
    constants["first"] = np.asarray([1], np.int64)
    outputs = []
    for index, (value, shape) in enumerate(values):
        assert value is not None
        assert shape is not None
        element = value.type.tensor_type.elem_type
        dtype = helper.tensor_dtype_to_np_dtype(element)
        constants[f"zeros{index}"] = np.zeros(shape, dtype)
        nodes.append(helper.make_node("Cast", ["scalar"], [f"cast{index}"], to=element))
        nodes.append(helper.make_node("Mul", [f"cast{index}", f"zeros{index}"], [f"result{index}"]))
        outputs.append(onnx.ValueInfoProto(name=f"result{index}"))
    prefix = f"{FAILS}/{node.output[0]}/"
    tensors = [numpy_helper.from_array(array, prefix + name) for name, array in constants.items()]
    for one in nodes:
        one.input[:] = [name if name == node.input[0] else prefix + name for name in one.input]
        one.output[:] = [prefix + name for name in one.output]
    for output in outputs:
        output.name = prefix + output.name
    attribute = next(a for a in node.attribute if a.name == branch)
    attribute.g.CopyFrom(helper.make_graph(nodes, FAILS, [], outputs, tensors))
    return True
