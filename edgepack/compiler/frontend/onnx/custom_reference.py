"""Runs a model that has custom operators: ONNX Runtime what stands between them, the user's Python the
operators themselves."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.custom import Custom
from edgepack.compiler.frontend.onnx.cut import cut, static_shape
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.custom import CustomOperator

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["check_references", "run_with_custom"]

Arrays = dict[str, "NDArray[Any]"]
#: Runs a model without custom operators.
Run = Callable[["onnx.ModelProto", Mapping[str, "NDArray[Any]"]], Mapping[str, "NDArray[Any]"]]


def check_references(operators: Sequence[CustomOperator]) -> None:
    """Refuses operators that there is nothing to compare with.

    Raises:
        ConfigError: names the first of them.
    """
    for one in operators:
        if not one.reference:
            raise ConfigError(
                f"There is nothing to compare {one.symbol} with: {one.operator} has no reference.",
                hint="Give it one, `reference: file.py:function` in the file of --custom, or what the model "
                "gives: --expected OUTPUT=FILE.npy.",
            )


def run_with_custom(
    model: onnx.ModelProto, arrays: Mapping[str, NDArray[Any]], nodes: Sequence[Custom], run: Run
) -> dict[str, NDArray[Any]]:
    """Outputs by name, in the graph's order.

    Args:
        model: with the custom nodes; not changed.
        arrays: its inputs.
        nodes: those of the custom operators, in order.
        run: runs a part of the model that has none of them.

    Raises:
        ModelError: a reference fails, or gives something else than was declared.
    """
    known: Arrays = dict(arrays)
    for tensor in model.graph.initializer:
        if any(tensor.name in one.node.input for one in nodes):
            known[tensor.name] = _array(tensor)
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    for one in nodes:
        known.update(_computed(model, [name for name in one.node.input if name not in known], known, run))
        results = _called(one, [known[name] for name in one.node.input])
        for name, array in zip(one.node.output, results, strict=False):
            known[name] = _checked(one, name, array, declared[name])
    names = [value.name for value in model.graph.output]
    known.update(_computed(model, [name for name in names if name not in known], known, run))
    return {name: known[name] for name in names}


def _computed(
    model: onnx.ModelProto, wanted: Sequence[str], known: Arrays, run: Run
) -> Mapping[str, NDArray[Any]]:
    """Tensors of the model from those that are known."""
    import onnx

    if not wanted:
        return {}
    part = onnx.ModelProto()
    part.CopyFrom(model)
    own = {value.name for value in model.graph.input} | {t.name for t in model.graph.initializer}
    inputs = _leading_to(model, wanted, set(known) - own)
    cut(part, ImportOptions(inputs=inputs, outputs=list(dict.fromkeys(wanted))))
    return run(part, {value.name: known[value.name] for value in part.graph.input})


def _leading_to(model: onnx.ModelProto, wanted: Sequence[str], known: set[str]) -> list[str]:
    """Which of the known tensors the wanted ones are computed from."""
    producer = {name: node for node in model.graph.node for name in node.output}
    todo, seen, found = list(wanted), set(), []
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in known:
            found.append(name)
        elif name in producer:
            todo += producer[name].input
    return sorted(found)


def _called(one: Custom, inputs: Sequence[NDArray[Any]]) -> list[Any]:
    function = _function(one.operator)
    try:
        result = function(*[array.copy() for array in inputs], **attributes(one.node))
    except Exception as error:  # whatever the user's function raises
        raise _failed(one, f"{type(error).__name__}: {error}") from error
    return list(result) if isinstance(result, tuple | list) else [result]


def _function(operator: CustomOperator) -> Callable[..., Any]:
    path = Path(operator.reference)
    name = f"edgepack_reference_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(
            f"The reference {path.name} cannot be loaded.", hint="Run it with Python.", detail=str(error)
        ) from error
    function = getattr(module, operator.function, None)
    if not callable(function):
        raise ConfigError(
            f"The reference {path.name} has no function {operator.function!r}.",
            hint="Name it: `reference: file.py:function`.",
        )
    return function  # type: ignore[no-any-return]


def _checked(one: Custom, name: str, result: Any, declared: onnx.ValueInfoProto) -> NDArray[Any]:
    import numpy as np
    import onnx

    array = np.asarray(result)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.type.tensor_type.elem_type)
    shape = static_shape(declared)
    if array.shape != shape or array.dtype != dtype:
        what = f"{array.dtype} {list(array.shape)}"
        raise _failed(one, f"it gives {what} for {name!r}, {dtype} {list(shape or ())} is declared")
    return array


def _failed(one: Custom, why: str) -> ModelError:
    node = one.node.name or one.node.output[0]
    return ModelError(
        f"The reference of the custom operator {one.operator.operator} fails for the node {node}: {why}.",
        hint=f"Its function {one.operator.function} is given the inputs, and the attributes as keywords.",
    )


def _array(tensor: onnx.TensorProto) -> NDArray[Any]:
    from onnx import numpy_helper

    array: NDArray[Any] = numpy_helper.to_array(tensor)
    return array
