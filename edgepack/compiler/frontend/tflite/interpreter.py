"""LiteRT's interpreter with its reference kernels: what a model computes, and functions of one byte."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.schema import schema
from edgepack.compiler.reporter import running
from edgepack.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Interpreter", "results_of_bytes", "shapes_with"]


class Interpreter:
    """A model's first subgraph, run by the reference kernels (``BUILTIN_REF``) in one thread.

    Args:
        model: a TFLite file.
        inputs: by the indices of their tensors; the model is given their shapes.

    Raises:
        ModelError: the interpreter refuses the model.
    """

    def __init__(self, model: bytes, inputs: Mapping[int, NDArray[Any]]) -> None:
        self._interpreter = _opened(model, {index: array.shape for index, array in inputs.items()})

    def run(self, inputs: Mapping[int, NDArray[Any]]) -> None:
        """Compute all tensors of these inputs; variables are kept from one run to the next."""
        with _quiet(), _refusals():
            for index, array in inputs.items():
                self._interpreter.set_tensor(index, array)
            self._interpreter.invoke()

    def tensor(self, index: int) -> NDArray[Any]:
        """A copy of a tensor of the last run."""
        import numpy as np

        with _quiet(), _refusals():
            return np.array(self._interpreter.get_tensor(index))


def shapes_with(model: bytes, shapes: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """The shapes of all tensors, by index, where inputs have other ones than in the file.

    Args:
        model: a TFLite file.

    Raises:
        ModelError: the model does not take such shapes.
    """
    with _quiet():
        found = _opened(model, shapes)
        details = found.get_tensor_details()
    return {int(one["index"]): tuple(int(n) for n in one["shape"]) for one in details}


def _opened(model: bytes, shapes: Mapping[int, tuple[int, ...]]) -> Any:
    """The model with its reference kernels; with the usual ones of operators that have no others (CEIL)."""
    from ai_edge_litert.interpreter import OpResolverType

    try:
        return _allocated(model, shapes, OpResolverType.BUILTIN_REF)
    except ModelError as error:
        if "Didn't find op" not in error.detail:
            raise
    return _allocated(model, shapes, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)


def _allocated(model: bytes, shapes: Mapping[int, tuple[int, ...]], kernels: Any) -> Any:
    from ai_edge_litert.interpreter import Interpreter as LiteRT

    with _quiet(), _refusals():
        made = LiteRT(
            model_content=model,
            experimental_op_resolver_type=kernels,
            experimental_preserve_all_tensors=True,
            num_threads=1,
        )
        for place in made.get_input_details():
            shape = shapes[place["index"]]
            if tuple(place["shape"]) != shape:
                made.resize_tensor_input(place["index"], shape)
        made.allocate_tensors()
    return made


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            "LiteRT's interpreter refuses the model.",
            hint="Run it with ai_edge_litert.interpreter.Interpreter to see why.",
            detail=str(error),
        ) from error


def results_of_bytes(operator: Operator, tensor: Tensor, result: Tensor) -> NDArray[Any]:
    """What the interpreter's reference kernel makes of each byte, or each number of 16 bits, the least first.

    Raises:
        ModelError: it has no kernel for these types.
    """
    import numpy as np

    info = np.iinfo(tensor.dtype)
    numbers = np.arange(info.min, info.max + 1).astype(tensor.dtype)
    model = _of_one(operator, tensor, result, len(numbers))
    try:
        return _results(model, numbers)
    except ModelError:  # RSQRT of what is negative: no run of the interpreter has a result
        assert tensor.quantisation is not None
        first = int(tensor.quantisation.zero[0]) - int(info.min)
        found = _results(model, numbers[first:])
        return np.concatenate([np.repeat(found[:1], first), found])


def _results(model: bytes, numbers: NDArray[Any]) -> NDArray[Any]:
    given = {0: numbers.reshape(1, -1)}
    interpreter = Interpreter(model, given)
    interpreter.run(given)
    return interpreter.tensor(1).reshape(-1)


def _of_one(operator: Operator, tensor: Tensor, result: Tensor, count: int) -> bytes:
    """A model of one operator of as many numbers."""
    import flatbuffers

    s = schema()

    def described(name: str, like: Tensor) -> Any:
        made = s.TensorT()
        made.name, made.shape, made.buffer = name.encode(), [1, count], 0
        made.type = getattr(s.TensorType, like.dtype.upper())
        assert like.quantisation is not None
        made.quantization = s.QuantizationParametersT()
        made.quantization.scale = [float(n) for n in like.quantisation.scale]
        made.quantization.zeroPoint = [int(n) for n in like.quantisation.zero]
        return made

    code, one, graph, model = s.OperatorCodeT(), s.OperatorT(), s.SubGraphT(), s.ModelT()
    number = getattr(s.BuiltinOperator, operator.kind)
    code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), operator.version
    one.opcodeIndex, one.inputs, one.outputs = 0, [0], [1]
    _give_options(one, operator)
    graph.tensors = [described("x", tensor), described("y", result)]
    graph.inputs, graph.outputs, graph.operators = [0], [1], [one]
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [s.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _give_options(one: Any, operator: Operator) -> None:
    """The options of an operator, which are a table named after it (``LeakyReluOptionsT``)."""
    s = schema()
    name = "".join(part.capitalize() for part in operator.kind.split("_")) + "Options"
    if not operator.options or not hasattr(s, f"{name}T") or not hasattr(s.BuiltinOptions, name):
        return
    table = getattr(s, f"{name}T")()
    for key, value in operator.options.items():
        setattr(table, key, value)
    one.builtinOptionsType, one.builtinOptions = getattr(s.BuiltinOptions, name), table


@contextmanager
def _quiet() -> Iterator[None]:
    """The interpreter runs. Nothing of what it prints goes to standard error, where users look for what
    edgepack says."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        with running("LiteRT's interpreter"):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
