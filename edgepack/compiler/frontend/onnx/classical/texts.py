"""Outputs that a bundle cannot have, of ai.onnx.ml: maps of classes (ZipMap), and labels that are texts.

A ZipMap's output is the tensor of scores that it would make maps of. A text is its index in the model's own
list. What the columns and the indices stand for is said in a sentence each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.refusals import refuse

if TYPE_CHECKING:
    import onnx

__all__ = ["DOMAIN", "FLOATS", "REPLACED", "with_numbers"]

DOMAIN = "ai.onnx.ml"

#: Domain and operator of what :func:`with_numbers` takes away.
REPLACED = {(DOMAIN, "ZipMap")}

#: Of each classifier, what its labels are called as numbers.
_LABELS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}

#: Operators whose last result is float32, whatever they read.
FLOATS = {
    *_LABELS,
    *("FeatureVectorizer", "LinearRegressor", "Normalizer", "OneHotEncoder", "SVMRegressor", "Scaler"),
    "TreeEnsembleRegressor",
}

#: Operators that move what they read, or choose of their first input, whatever its type is.
_MOVES = {
    "ArrayFeatureExtractor",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}

#: Most labels of one sentence.
_TOLD = 20

#: The operator set that models which name an older one get, or none, as ai.onnx.ml alone needs none.
_OPSET = 13

#: Operators that are the same from version 7 to that one.
# fmt: off
_UNCHANGED = {
    "Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "Concat", "Constant", "ConstantOfShape", "Div", "Equal",
    "Exp", "Expand", "Flatten", "Floor", "Gather", "Gemm", "Greater", "Identity", "IsNaN", "Less", "Log",
    "MatMul", "Max", "Mean", "Min", "Mul", "Neg", "Not", "Or", "Pow", "ReduceL1", "ReduceL2", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare", "Relu", "Reshape", "Shape", "Sigmoid", "Sign",
    "Sqrt", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Where",
}
# fmt: on


def with_numbers(model: onnx.ModelProto) -> tuple[str, ...]:
    """Replaces maps and texts by numbers, in place; a sentence for each output that is another than before.

    Raises:
        RefusedNodesError: labels do not fit the scores.
    """
    if not any(node.domain == DOMAIN for node in model.graph.node):
        return ()
    _set_opset(model)
    numbering = _Numbering(model)
    for node in model.graph.node:
        numbering.visit(node)
    return numbering.outputs()


def _set_opset(model: onnx.ModelProto) -> None:
    """Names an operator set that has what the operators of ai.onnx.ml become, where the model's own are the
    same in it."""
    import onnx

    standard = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")}
    known = [opset for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    if not known:
        model.opset_import.append(onnx.helper.make_opsetid("", _OPSET))
    elif 7 <= max(opset.version for opset in known) < _OPSET and standard <= _UNCHANGED:
        for opset in known:
            opset.version = _OPSET


class _Numbering:
    """Follows texts through a graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnx

        self.model, self.graph = model, model.graph
        self.texts: dict[str, list[str]] = {}
        self.columns: dict[str, list[str]] = {}
        for tensor in self.graph.initializer:
            if tensor.data_type == onnx.TensorProto.STRING:
                self.texts[tensor.name] = self._numbered(tensor)

    @staticmethod
    def _numbered(tensor: onnx.TensorProto) -> list[str]:
        """Makes a tensor of texts one of their indices, in place; the texts."""
        import numpy as np
        from onnx import numpy_helper

        words = [bytes(one).decode(errors="replace") for one in tensor.string_data]
        indices = np.arange(len(words), dtype=np.int64).reshape(tuple(tensor.dims))
        tensor.CopyFrom(numpy_helper.from_array(indices, tensor.name))
        return words

    def visit(self, node: onnx.NodeProto) -> None:
        """Changes one node, whose operands were visited."""
        import onnx

        string = onnx.TensorProto.STRING
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.t.data_type == string:
                    self.texts[node.output[0]] = self._numbered(attribute.t)
        elif node.domain == DOMAIN and node.op_type == "ZipMap":
            self._zip_map(node)
        elif node.domain == DOMAIN and node.op_type in _LABELS:
            self._classifier(node)
        elif node.domain == DOMAIN and node.op_type == "LabelEncoder":
            self._label_encoder(node)
        elif node.op_type in _MOVES and node.input and node.input[0] in self.texts:
            self.texts[node.output[0]] = self.texts[node.input[0]]
        elif node.op_type == "Cast" and node.input[0] in self.texts and _value(node, "to") == string:
            _become_identity(node)
            self.texts[node.output[0]] = self.texts[node.input[0]]

    def _classifier(self, node: onnx.NodeProto) -> None:
        words = _value(node, "classlabels_strings")
        if not words:
            return
        self.texts[node.output[0]] = [word.decode(errors="replace") for word in words]
        _replace(node, {"classlabels_strings": None, _LABELS[node.op_type]: list(range(len(words)))})

    def _zip_map(self, node: onnx.NodeProto) -> None:
        import onnx

        words = _value(node, "classlabels_strings") or ()
        numbers = _value(node, "classlabels_int64s") or ()
        labels = [word.decode(errors="replace") for word in words] or [str(number) for number in numbers]
        if not labels:
            refuse(node, "has no labels")
        self.columns[node.output[0]] = labels
        node.op_type, node.domain = "Cast", ""
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT))

    def _label_encoder(self, node: onnx.NodeProto) -> None:
        """Keys that are texts of the model become their indices, and values that are texts likewise."""
        known = self.texts.get(node.input[0])
        changes: dict[str, Any] = {}
        classes = [word.decode(errors="replace") for word in _value(node, "classes_strings") or ()]
        if classes and known is None:  # of version 1: numbers from 0 on become texts
            changes |= {"classes_strings": None, "keys_int64s": list(range(len(classes)))}
            for opset in self.model.opset_import:
                if opset.domain == DOMAIN:
                    opset.version = max(opset.version, 2)
        values = classes or [word.decode(errors="replace") for word in _value(node, "values_strings") or ()]
        keys = [word.decode(errors="replace") for word in _value(node, "keys_strings") or ()]
        if keys and known is not None:
            changes |= {"keys_strings": None, "keys_int64s": [_index(known, key) for key in keys]}
        if values and (known is None or keys):
            default = _value(node, "default_string") or b"_Unused"
            self.texts[node.output[0]] = [*values, default.decode(errors="replace")]
            changes |= {"values_strings": None, "values_int64s": list(range(len(values)))}
            changes |= {"default_string": None, "default_int64": len(values)}
        if changes:
            _replace(node, changes)

    def outputs(self) -> tuple[str, ...]:
        """Gives the outputs their new types; what is said of each."""
        import onnx

        said = []
        self._correct_types()
        for output in self.graph.output:
            tensor = output.type.tensor_type
            if output.name in self.columns:
                output.ClearField("type")
                output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
                listed = _listed(self.columns[output.name])
                what = "is the tensor of scores that ZipMap reads; its columns are"
                said.append(f"Output {output.name!r} {what} {listed}.")
            elif output.name in self.texts:
                tensor.elem_type = onnx.TensorProto.INT64
                listed = _listed([f"{i} {text}" for i, text in enumerate(self.texts[output.name])])
                said.append(f"Output {output.name!r} is text in the model, and an index here: {listed}.")
        for value in list(self.graph.value_info):
            if value.name in self.texts or value.name in self.columns:
                self.graph.value_info.remove(value)
        return tuple(said)

    def _correct_types(self) -> None:
        """Exporters declare results of doubles to be double that ONNX says are float32."""
        import onnx

        floats = {
            node.output[-1] for node in self.graph.node if node.domain == DOMAIN and node.op_type in FLOATS
        }
        for output in self.graph.output:
            tensor = output.type.tensor_type
            if output.name in floats and tensor.elem_type == onnx.TensorProto.DOUBLE:
                tensor.elem_type = onnx.TensorProto.FLOAT


def _index(known: Sequence[str], text: str) -> int:
    """The index of a text; -1, which no index is, of one that cannot be."""
    return known.index(text) if text in known else -1


def _listed(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _TOLD} more" if len(labels) > _TOLD else ""
    return ", ".join(labels[:_TOLD]) + more


def _value(node: onnx.NodeProto, name: str) -> Any:
    """An attribute; None if there is none."""
    import onnx

    found = next((one for one in node.attribute if one.name == name), None)
    return None if found is None else onnx.helper.get_attribute_value(found)


def _replace(node: onnx.NodeProto, values: dict[str, Any]) -> None:
    """Gives attributes other values, in place; None takes one away."""
    import onnx

    kept = [one for one in node.attribute if one.name not in values]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(onnx.helper.make_attribute(n, v) for n, v in values.items() if v is not None)


def _become_identity(node: onnx.NodeProto) -> None:
    node.op_type, node.domain = "Identity", ""
    del node.attribute[:]
