"""Buffers that a program changes (caches, streaming states, running means) become inputs and outputs.

ONNX has no state: PyTorch's exporter keeps what the module returns and drops every write that no output
reads. Which buffers are written to is known only after functionalisation (``run_decompositions``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.torch.shared import join_shared
from edgepack.errors import ModelError
from edgepack.programs.flat import example_of, open_sizes, unlifted
from edgepack.programs.names import placeholders
from edgepack.programs.training import refuse_training

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["Stateless", "without_state"]


@dataclass(frozen=True)
class Stateless:
    """A program that changes nothing.

    Attributes:
        program: takes (states, inputs, keywords), and returns (results, new states); the program itself where
            nothing was changed.
        states: names of the buffers, as in ``state_dict``; () for none.
        values: what they hold at first.
    """

    program: ExportedProgram
    states: tuple[str, ...] = ()
    values: tuple[torch.Tensor, ...] = ()


def without_state(program: ExportedProgram, where: str) -> Stateless:
    """A program without state; see :class:`Stateless`.

    Args:
        where: of the program, for messages.

    Raises:
        ModelError: it was exported in training mode, or changes one of its inputs.
    """
    import torch

    join_shared(program)
    try:
        functional = program.run_decompositions({})
    except Exception as error:  # PyTorch's own, of many classes
        raise ModelError(
            f"{where} cannot be taken apart by PyTorch: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}",
            hint="Do parts of its buffers share memory? Make each a tensor of its own, or give and return "
            "the state as arguments of forward.",
        ) from error
    refuse_training(functional, where)
    signature = functional.graph_signature
    if signature.user_inputs_to_mutate:
        names = ", ".join(sorted(set(map(str, signature.user_inputs_to_mutate.values()))))
        raise ModelError(
            f"{where} writes to its own input {names}, which a packed model never does.",
            hint="Return the new value instead, or make it a buffer of the module (register_buffer): "
            "buffers that are written to become an input and an output.",
        )
    mutated = tuple(dict.fromkeys(signature.buffers_to_mutate.values()))
    if not mutated:
        return Stateless(program)
    module = unlifted(program)
    values = tuple(_buffer(module, name).detach().clone() for name in mutated)

    class Functional(torch.nn.Module):  # type: ignore[misc]
        """The module with its buffers as arguments."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, states: Any, inputs: Any, keywords: Any) -> Any:
            new = tuple(state.clone() for state in states)
            given = dict(zip(mutated, new, strict=True))
            results = torch.func.functional_call(self.module, given, tuple(inputs), dict(keywords))
            return results, new

    inputs, keywords = example_of(program, where)
    arguments = (values, inputs, keywords)
    try:
        changed = torch.export.export(Functional(), arguments, dynamic_shapes=_dynamic(arguments, program))
    except Exception as error:
        raise ModelError(
            f"{where} changes its buffers {', '.join(mutated)}, and cannot be exported with them as inputs: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}",
            hint="Give and return the state as arguments of forward.",
        ) from error
    return Stateless(changed, mutated, values)


def _buffer(module: torch.nn.Module, name: str) -> torch.Tensor:
    owner, _, last = name.rpartition(".")
    value: torch.Tensor = getattr(module.get_submodule(owner) if owner else module, last)
    return value


def _dynamic(arguments: Any, program: ExportedProgram) -> Any:
    """Open sizes of the program's inputs stay open."""
    from torch.utils import _pytree as pytree

    opened = open_sizes(program)
    states, *rest = arguments
    leaves, spec = pytree.tree_flatten(tuple(rest))
    dynamic = [opened.get(name) for name in placeholders(program)]
    assert len(dynamic) == len(leaves)
    return (tuple(None for _ in states), *pytree.tree_unflatten(dynamic, spec))
