"""A program whose inputs and outputs are tensors with names, and what its eager module computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.torch.state import without_state
from edgepack.errors import ModelError
from edgepack.programs.flat import FlatProgram, example_of, unlifted
from edgepack.programs.names import plain, unique
from edgepack.programs.structure import renamed

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

__all__ = ["Named", "named"]


@dataclass
class Named:
    """A program that changes nothing, with the names of what it takes and returns.

    Attributes:
        program: takes and returns tensors, nested.
        inputs: by name, in the program's order: the example that it was exported with.
        outputs: names of the outputs.
        states: pairs of an input and an output: what a run returns is given to the next.
        spec: how the inputs are nested.
        nested: as of :class:`edgepack.programs.flat.FlatProgram`, with the names of these outputs.
    """

    program: ExportedProgram
    inputs: dict[str, NDArray[Any]]
    outputs: list[str]
    states: list[tuple[str, str]] = field(default_factory=list)
    spec: Any = None
    nested: dict[str, Any] | None = None

    def eager(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """What PyTorch computes of inputs, eagerly, on the CPU."""
        import torch
        from torch.utils import _pytree as pytree

        leaves = [_tensor(array) for array in inputs.values()]
        arguments, keywords = pytree.tree_unflatten(leaves, self.spec)
        with torch.inference_mode():
            results = unlifted(self.program)(*arguments, **keywords)
        found = pytree.tree_leaves(results)
        return {name: _array(one) for name, one in zip(self.outputs, found, strict=True)}


def named(flat: FlatProgram, where: str) -> Named:
    """A program whose state is among its inputs and outputs.

    Args:
        where: of the program, for messages.

    Raises:
        ModelError: the program changes what it must not, was exported in training mode, or has inputs that
            are no tensors.
    """
    from torch.utils import _pytree as pytree

    names, results = list(flat.inputs), list(flat.outputs)
    stateless = without_state(flat.program, where)
    changed = stateless.program
    given = example_of(changed, where)
    leaves, spec = pytree.tree_flatten(given)
    _refuse_other_inputs(leaves, where)
    states = unique([plain(name) for name in stateless.states], taken=names)
    if stateless.states:
        names = [*states, *names]
        results = [*results, *(f"{name}_next" for name in states)]
    results = unique(results, taken=names)
    arrays = {name: _array(leaf) for name, leaf in zip(names, leaves, strict=True)}
    pairs = list(zip(states, results[len(results) - len(states) :], strict=True))
    nested = flat.nested
    if nested is not None:
        called = dict(zip(flat.outputs, results, strict=False))
        nested = {**nested, "results": renamed(nested["results"], called)}
    return Named(changed, arrays, results, pairs, spec, nested)


def _refuse_other_inputs(leaves: list[Any], where: str) -> None:
    import torch

    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            raise ModelError(
                f"{where} takes {leaf!r:.60} as argument {number}, which is no tensor.",
                hint="Make it a constant of a module around this one, or leave it out.",
            )
        if leaf.device.type != "cpu":
            raise ModelError(
                f"{where} was exported on {leaf.device}, and edgepack reads programs of the CPU.",
                hint="Export module.cpu() with inputs on the CPU; for which GPU it is packed, --device says.",
            )


def _array(value: torch.Tensor) -> NDArray[Any]:
    """A tensor as an array; bfloat16, which NumPy has not, is that of ml_dtypes."""
    import torch

    tensor = value.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        tensor = tensor.view(torch.uint16)
        bits: NDArray[Any] = tensor.numpy().view(ml_dtypes.bfloat16)
        return bits
    array: NDArray[Any] = tensor.numpy()
    return array


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """What :func:`_array` gives as a tensor with memory of its own."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())
