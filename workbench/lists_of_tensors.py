"""ONNX's node tests of lists of tensors and optional values, with tensors as inputs and outputs: a bundle has
no others. Within the model lists are made of the tensors, and given as those."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from onnx import helper

from edgepack.compiler.frontend.onnx.sequences.outputs import give_tensors_of_lists
from edgepack.compiler.frontend.onnx.sequences.values import LIST_TYPES, element_type
from edgepack.errors import ModelError
from edgepack.plan.limits import DEFAULT_LIMITS

__all__ = ["give_tensors", "has_lists", "of_tensors"]


def has_lists(model: onnx.ModelProto) -> bool:
    """Whether a model is given lists or optional values, or gives some."""
    values = (*model.graph.input, *model.graph.output)
    return any(value.type.WhichOneof("value") in LIST_TYPES for value in values)


def of_tensors(
    model: onnx.ModelProto, values: Sequence[Any], outputs: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Has a model make its lists of tensors that it is given, in place; its inputs and outputs without
    lists."""
    if not has_lists(model):
        return list(values), list(outputs)
    inputs = list(model.graph.input)
    given: list[Any] = []
    nodes: list[onnx.NodeProto] = []
    declared: list[onnx.ValueInfoProto] = []
    for value, content in zip(inputs, values, strict=True):
        if value.type.WhichOneof("value") not in LIST_TYPES:
            kind = value.type.tensor_type.elem_type
            declared.append(helper.make_tensor_value_info(value.name, kind, _shape(content)))
            given.append(content)
            continue
        kind, made = element_type(value), value.name
        if value.type.WhichOneof("value") == "optional_type":
            made = f"{value.name}/content"
        parts = content if isinstance(content, list) else [] if content is None else [content]
        names = [f"{value.name}_{index}" for index in range(len(parts))]
        if isinstance(content, list):
            op, said = ("SequenceConstruct", {}) if names else ("SequenceEmpty", {"dtype": kind})
            nodes.append(helper.make_node(op, names, [made], **said))
            names_of_optional = [made]
        else:
            names_of_optional = names
        if value.type.WhichOneof("value") == "optional_type":
            absent = {} if names_of_optional else {"type": value.type.optional_type.elem_type}
            nodes.append(helper.make_node("Optional", names_of_optional, [value.name], **absent))
        declared += [
            helper.make_tensor_value_info(
                name, kind, part.dims if isinstance(part, onnx.TensorProto) else np.shape(part)
            )
            for name, part in zip(names, parts, strict=True)
        ]
        given += parts
    nodes += [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    del model.graph.input[:], model.graph.node[:]
    model.graph.input.extend(declared)
    model.graph.node.extend(nodes)
    flat = [one for output in outputs for one in (output if isinstance(output, list) else [output])]
    return given, flat


def give_tensors(model: onnx.ModelProto) -> None:
    """Has a model of static shapes give the tensors of its lists, in place, if it is known which they are."""
    with suppress(ModelError):
        list(give_tensors_of_lists(model, DEFAULT_LIMITS))


def _shape(part: Any) -> Sequence[int]:
    return part.dims if isinstance(part, onnx.TensorProto) else np.shape(part)
