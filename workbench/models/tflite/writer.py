"""Writes TFLite files by the schema's own classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

__all__ = ["LEFT_OUT", "Writer"]

#: Index of an operand that is left out.
LEFT_OUT = -1


class Writer:
    """A model of one subgraph that is written bit by bit; indices stand for tensors."""

    def __init__(self) -> None:
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.buffers = 3, [schema.BufferT()]
        self.model.operatorCodes, self.model.subgraphs = [], [self.graph]
        self.graph.tensors, self.graph.operators = [], []

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        data: Any = None,
        name: str = "",
        variable: bool = False,
    ) -> int:
        """Adds a tensor; a constant with ``data``, quantised with ``scale``, kept with ``variable``."""
        made = schema.TensorT()
        made.name, made.shape = (name or f"t{len(self.graph.tensors)}").encode(), list(shape)
        made.type, made.buffer = getattr(schema.TensorType, dtype.upper()), 0
        made.isVariable = variable
        if data is not None:
            content = schema.BufferT()
            content.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(content)
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.broadcast_to(np.atleast_1d(np.asarray(zero, np.int64)), scales.shape)
            made.quantization.scale = [float(n) for n in scales]
            made.quantization.zeroPoint = [int(n) for n in zeros]
            made.quantization.quantizedDimension = axis
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def sparse(self, index: int, rows: Sequence[int], columns: int) -> None:
        """A constant matrix has only some rows, each dense: its data are these."""
        tensor = self.graph.tensors[index]
        rows_, columns_ = schema.DimensionMetadataT(), schema.DimensionMetadataT()
        rows_.format, columns_.format, columns_.denseSize = schema.DimensionType.SPARSE_CSR, 0, columns
        for kind, name, values in (
            ("Segments", "arraySegments", [0, len(rows)]),
            ("Indices", "arrayIndices", list(rows)),
        ):
            vector = schema.Int32VectorT()
            vector.values = values
            setattr(rows_, name, vector)
            setattr(rows_, f"array{kind}Type", schema.SparseIndexVector.Int32Vector)
        tensor.sparsity = schema.SparsityParametersT()
        tensor.sparsity.traversalOrder, tensor.sparsity.dimMetadata = [0, 1], [rows_, columns_]

    def operator(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        version: int = 1,
        table: str = "",
        **options: Any,
    ) -> None:
        """Adds an operator.

        Args:
            table: name of its options without ``Options``; default the kind's (``LeakyRelu``).
            options: by the schema's names.
        """
        code, one = schema.OperatorCodeT(), schema.OperatorT()
        number = getattr(schema.BuiltinOperator, kind)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), version
        one.opcodeIndex, one.inputs, one.outputs = len(self.model.operatorCodes), list(inputs), list(outputs)
        self.model.operatorCodes.append(code)
        name = (table or "".join(part.capitalize() for part in kind.split("_"))) + "Options"
        if hasattr(schema, f"{name}T"):
            made = getattr(schema, f"{name}T")()
            for key, value in options.items():
                assert hasattr(made, key), f"{name} has no {key}"
                setattr(made, key, value)
            if hasattr(schema.BuiltinOptions, name):
                one.builtinOptionsType, one.builtinOptions = getattr(schema.BuiltinOptions, name), made
            else:
                one.builtinOptions2Type, one.builtinOptions2 = getattr(schema.BuiltinOptions2, name), made
        else:
            assert not options, f"the schema has no {name}"
        self.graph.operators.append(one)

    def next_subgraph(self, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """Ends the subgraph, and begins another; its index."""
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs.append(self.graph)
        return len(self.model.subgraphs) - 1

    def signature(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """Names the first subgraph's inputs and outputs."""
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = b"serving_default", 0
        made.inputs, made.outputs = (
            [_named(name, index) for name, index in given.items()] for given in (inputs, outputs)
        )
        self.model.signatureDefs = [made]

    def finished(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file's bytes."""
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        builder = flatbuffers.Builder(4096)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _named(name: str, index: int) -> Any:
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name.encode(), index
    return made
