"""Outputs of a model that are lists of tensors or optional values: a bundle gives the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx import rewrites, standard_evaluator
from edgepack.compiler.frontend.onnx.function_bodies import inlined
from edgepack.compiler.frontend.onnx.known_versions import for_onnxruntime
from edgepack.compiler.frontend.onnx.onnxruntime_session import optimise
from edgepack.compiler.frontend.onnx.rewrites.editor import rename_values
from edgepack.compiler.frontend.onnx.sequences.expand import expand_lists, followed, without_identities
from edgepack.compiler.frontend.onnx.sequences.shapeless import without_wrong_shapes
from edgepack.compiler.frontend.onnx.sequences.values import (
    LIST_TYPES,
    Optional,
    Tensors,
    Value,
    element_type,
)
from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.compiler.frontend.onnx.trip_count import count_trips
from edgepack.errors import ModelError
from edgepack.plan.limits import Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["give_tensors_of_lists"]

#: Bytes of the largest constant that is folded to find out.
FOLDED = 1 << 24


def give_tensors_of_lists(model: onnx.ModelProto, limits: Limits) -> Iterator[str]:
    """Makes the tensors of lists and optional values outputs in their place, in place; a sentence for each
    list. The tensors of a list ``q`` are ``q_0``, ``q_1``, ...; an optional value keeps its name.

    Args:
        model: all input shapes static.

    Raises:
        ModelError: it is not known which tensors there are, or there are none.
    """
    import onnx

    outputs = list(model.graph.output)
    if not any(value.type.WhichOneof("value") in LIST_TYPES for value in outputs):
        return
    values = _values(model, limits)
    given: list[onnx.ValueInfoProto] = []
    for value in outputs:
        if value.type.WhichOneof("value") not in LIST_TYPES:
            given.append(onnx.ValueInfoProto.FromString(value.SerializeToString()))
            continue
        found = values.get(value.name)
        content = found.content if isinstance(found, Optional) else found
        if found is None or (isinstance(content, Tensors) and content.is_open):
            raise ModelError(
                f"The output {value.name!r} is a list of tensors, and how many is known at run time only.",
                hint="Export the model with the tensors as outputs, or stacked, or name others (--outputs).",
            )
        if isinstance(found, Optional):
            _take_out(model, value.name, found)
        if isinstance(content, Tensors):
            names = _taken_apart(model, value.name, len(content.elements))
            listed = f"its tensors are {', '.join(names)}" if names else "it has no tensors"
            yield f"The output {value.name!r} is a list: {listed}."
        else:
            names = [value.name] if content is not None else []
        kind = element_type(value)
        given += [onnx.helper.make_tensor_value_info(name, kind, None) for name in names]
    if not given:
        raise ModelError(
            "The outputs of the model are lists without tensors.", hint="Name others (--outputs)."
        )
    del model.graph.output[:]
    model.graph.output.extend(given)


def _values(model: onnx.ModelProto, limits: Limits) -> dict[str, Value]:
    """What is known of the model's lists, with all control flow taken away that is known."""
    import onnx

    settled = onnx.ModelProto()
    settled.CopyFrom(inlined(model))
    without_wrong_shapes(settled)
    expand_lists(settled, limits)
    settled = _folded(settled)
    while (
        count_trips(settled)
        or expand_lists(settled, limits)
        or _written_out(settled, limits)
        or expand_lists(settled, limits, choose="all")
    ):
        settled = _folded(settled)
    return followed(settled, limits, choose="all").values


def _written_out(model: onnx.ModelProto, limits: Limits) -> bool:
    if not rewrites.unroll(model):
        return False
    without_identities(model)
    expand_lists(model, limits)
    return True


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its constants folded, also where ONNX Runtime does not know it."""
    for other_version in (False, True):
        try:
            return optimise(for_onnxruntime(model) if other_version else model, largest=FOLDED)
        except MemoryError:
            raise
        except Exception:  # onnxruntime's errors share no base class of their own, nor the converter's
            continue
    return standard_evaluator.fold(model)


def _take_out(model: onnx.ModelProto, name: str, value: Optional) -> None:
    """Gives the name of an optional value to what it has."""
    import onnx

    inner = _fresh(model, f"{name}/optional")
    for node in model.graph.node:
        rename_values(node, {name: inner})
    if value.content is not None:
        model.graph.node.append(onnx.helper.make_node("OptionalGetElement", [inner], [name], name=name))


def _taken_apart(model: onnx.ModelProto, name: str, count: int) -> list[str]:
    """Adds nodes that give the tensors of a list; their names."""
    import numpy as np
    from onnx import helper, numpy_helper

    names = []
    for index in range(count):
        place = _fresh(model, f"{name}/place{index}")
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(index, np.int64), place))
        names.append(_fresh(model, f"{name}_{index}"))
        model.graph.node.append(helper.make_node("SequenceAt", [name, place], names[-1:], name=names[-1]))
    return names


def _fresh(model: onnx.ModelProto, name: str) -> str:
    taken = {value.name for value in (*model.graph.input, *model.graph.output)}
    taken |= {tensor.name for tensor in model.graph.initializer}
    taken |= {one for node in all_nodes(model.graph) for one in (*node.input, *node.output)}
    while name in taken:
        name += "_"
    return name
