"""State that a model keeps between runs, as pairs of an input and an output: resource variables, and tensors
that recurrent operators change.

``VAR_HANDLE`` names a variable, ``READ_VARIABLE`` and ``ASSIGN_VARIABLE`` use it, and ``CALL_ONCE`` calls the
subgraph that initialises it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.branches import VARIABLES, with_called_graphs
from edgepack.compiler.frontend.tflite.model import Model, Subgraph, Tensor
from edgepack.errors import ModelError
from edgepack.plan.dtypes import DTYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["State", "without_variables"]


@dataclass(frozen=True)
class State:
    """A variable.

    Attributes:
        name: of the input.
        read: index of a tensor of the file with what a run reads.
        returned: index of the tensor with what it leaves.
        initial: what the first run is given.
        changed: index of the tensor of the file that holds what is read before a run and what is left behind
            it; None of a resource variable, which has a tensor for each.
    """

    name: str
    read: int
    returned: int
    initial: NDArray[Any]
    changed: int | None = None

    @property
    def returned_as(self) -> str:
        """The name of the output."""
        return f"{self.name}_next"


@dataclass
class _Variable:
    name: str
    reads: list[int] = field(default_factory=list)
    written: int | None = None
    initial: NDArray[Any] | None = None


def without_variables(model: Model) -> tuple[Subgraph, list[State]]:
    """The main subgraph with variables as inputs and outputs, behind its own.

    Raises:
        ModelError: a variable is read after it is written, or its type cannot be told.
    """
    main, states = _without_resources(model, with_called_graphs(model))
    tensors, operators, inputs = list(main.tensors), list(main.operators), dict.fromkeys(main.inputs)
    names = {tensor.name for tensor in tensors}
    for place, operator in enumerate(operators):
        for index in operator.inputs:
            like = tensors[index] if index >= 0 else None
            if like is None or not like.variable or index in inputs:
                continue
            left = len(tensors)
            name = _unique(f"{like.name}_next", names)
            tensors.append(replace(like, index=left, name=name, variable=False))
            operators[place] = replace(operators[place], outputs=(*operators[place].outputs, left))
            inputs[index] = None
            states.append(State(like.name, index, left, _initial(_Variable(like.name), like), index))
    return Subgraph(tuple(tensors), tuple(operators), tuple(inputs), main.outputs), states


def _without_resources(model: Model, main: Subgraph) -> tuple[Subgraph, list[State]]:
    if not any(one.kind in VARIABLES for one in main.operators):
        return main, []
    tensors, renamed, states, inputs = list(main.tensors), {}, [], list(main.inputs)
    names = {tensor.name for tensor in tensors}
    for variable in _variables(model, main).values():
        if not variable.reads:
            continue  # what is never read has no effect
        like, index = tensors[variable.reads[0]], len(tensors)
        renamed.update(dict.fromkeys(variable.reads, index))
        initial = _initial(variable, like)
        constant = variable.written is None
        name = _unique(variable.name, names)
        tensors.append(
            replace(like, index=index, name=name, open_axes=(), data=initial if constant else None)
        )
        if variable.written is not None:
            inputs.append(index)
            states.append(State(name, variable.reads[0], variable.written, initial))
    kept = [
        replace(one, inputs=tuple(renamed.get(i, i) for i in one.inputs))
        for one in main.operators
        if one.kind not in VARIABLES
    ]
    states = [replace(state, returned=renamed.get(state.returned, state.returned)) for state in states]
    outputs = tuple(renamed.get(i, i) for i in main.outputs)
    return Subgraph(tuple(tensors), tuple(kept), tuple(inputs), outputs), states


def _variables(model: Model, main: Subgraph) -> dict[str, _Variable]:
    found: dict[str, _Variable] = {}
    handles: dict[int, _Variable] = {}
    for one in main.operators:
        if one.kind == "VAR_HANDLE":
            name = _text(one.options.get("sharedName")) or f"variable_{one.index}"
            handles[one.outputs[0]] = found.setdefault(name, _Variable(name))
        elif one.kind == "READ_VARIABLE" and one.inputs[0] in handles:
            variable = handles[one.inputs[0]]
            if variable.written is not None:
                raise ModelError(
                    f"The variable {variable.name!r} is read after it is written in one run.",
                    hint="Convert the model so that it reads its state first.",
                )
            variable.reads.append(one.outputs[0])
        elif one.kind == "ASSIGN_VARIABLE" and one.inputs[0] in handles:
            handles[one.inputs[0]].written = one.inputs[1]
        elif one.kind == "CALL_ONCE":
            _initialise(model, int(one.options.get("initSubgraphIndex") or 0), found)
    return found


def _initialise(model: Model, index: int, found: dict[str, _Variable]) -> None:
    """Takes what a subgraph assigns, which has to be constants."""
    if not 0 < index < len(model.subgraphs):
        raise ModelError(f"CALL_ONCE calls a subgraph {index} that is not there.", hint="Convert it again.")
    graph = model.subgraphs[index]
    handles: dict[int, _Variable] = {}
    for one in graph.operators:
        if one.kind == "VAR_HANDLE":
            name = _text(one.options.get("sharedName")) or f"variable_{one.index}"
            handles[one.outputs[0]] = found.setdefault(name, _Variable(name))
        elif one.kind == "ASSIGN_VARIABLE" and one.inputs[0] in handles:
            data = graph.tensors[one.inputs[1]].data
            if data is None:
                raise ModelError(
                    f"The variable {handles[one.inputs[0]].name!r} is initialised with what is computed.",
                    hint="Convert the model with constant initial states.",
                )
            handles[one.inputs[0]].initial = data


def _initial(variable: _Variable, like: Tensor) -> NDArray[Any]:
    import numpy as np

    if like.dtype not in DTYPES:
        raise ModelError(
            f"The variable {variable.name!r} is of {like.dtype}, which edgepack does not have.",
            hint="Convert the model with states of numbers.",
        )
    zero = like.quantisation.zero[0] if like.quantisation is not None else 0
    if variable.initial is None:
        return np.full(like.shape, zero, like.dtype)
    if variable.initial.size != np.prod(like.shape, dtype=np.int64):
        raise ModelError(
            f"The variable {variable.name!r} is initialised with {variable.initial.size} numbers for the "
            f"shape {list(like.shape)}.",
            hint="Convert the model again.",
        )
    return variable.initial.reshape(like.shape).astype(like.dtype)


def _unique(name: str, taken: set[str]) -> str:
    """A name like this one that is not taken; from now on it is."""
    plain = "".join(c if c.isalnum() or c in "_./-" else "_" for c in name) or "state"
    made, count = plain, 1
    while made in taken:
        made, count = f"{plain}_{count}", count + 1
    taken.add(made)
    return made


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
