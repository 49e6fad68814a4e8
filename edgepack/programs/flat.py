"""Programs that take and return tensors only, side by side, with readable names.

A program's arguments and results may be nested, of types that only the process knows that exported it
(dataclasses, transformers' ModelOutput), and may hold what is no tensor. A flat program takes and returns a
tuple of tensors, and is read anywhere.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.errors import ModelError
from edgepack.programs.names import input_names, output_names, placeholders, unique
from edgepack.programs.quantised import has_wrapped_tensors, of_plain_tensors
from edgepack.programs.structure import structure

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["FlatProgram", "example_of", "flattened", "open_sizes", "unlifted"]

#: Types of nested arguments that every process knows.
_PLAIN = (tuple, list, dict, OrderedDict, type(None))


@dataclass(frozen=True)
class FlatProgram:
    """A program, and what its tensors are called.

    Attributes:
        program: its arguments are tensors, perhaps nested in tuples, lists and dicts; so are its results.
        inputs: names of the arguments, in order.
        outputs: names of the results, in order.
        nested: how the arguments and results of the program that it was made of are nested
            (:class:`edgepack.bundle.structure.NestedRecord`, as JSON); None: it cannot be said.
    """

    program: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nested: dict[str, Any] | None = None


def flattened(program: ExportedProgram, where: str) -> FlatProgram:
    """The program, traced once more where its arguments or results are not plain.

    Args:
        where: of the program, for messages.

    Raises:
        ModelError: it has no example inputs, or cannot be traced without its types.
    """
    import torch
    from torch.export.graph_signature import OutputKind, TensorArgument
    from torch.utils import _pytree as pytree

    given = example_of(program, where)
    leaves, spec = pytree.tree_flatten(given)
    tensors = [isinstance(leaf, torch.Tensor) for leaf in leaves]
    module = of_plain_tensors(unlifted(program))
    kinds = [one.arg for one in program.graph_signature.output_specs if one.kind == OutputKind.USER_OUTPUT]
    returned = [isinstance(one, TensorArgument) for one in kinds]
    results = program.call_spec.out_spec.unflatten(kinds) if program.call_spec.out_spec else kinds
    outputs = unique([name for name, one in zip(output_names(results), returned, strict=True) if one])
    inputs = unique([name for name, one in zip(input_names(program, given), tensors, strict=True) if one])
    nested = _nested(given, inputs, results, outputs)
    plain = all((*tensors, *returned)) and all(map(_is_plain, (spec, program.call_spec.out_spec)))
    if plain and not has_wrapped_tensors(program.state_dict.values()):
        return FlatProgram(program, tuple(inputs), tuple(outputs), nested)

    class Flat(torch.nn.Module):  # type: ignore[misc]
        """The module, of tensors side by side; the other arguments are as in the example."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors_only: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rest = iter(tensors_only)
            filled = [
                next(rest) if is_tensor else leaf for leaf, is_tensor in zip(leaves, tensors, strict=True)
            ]
            arguments, keywords = pytree.tree_unflatten(filled, spec)
            nested = pytree.tree_leaves(self.module(*arguments, **keywords))
            return tuple(one for one in nested if isinstance(one, torch.Tensor))

    chosen = tuple(leaf for leaf, is_tensor in zip(leaves, tensors, strict=True) if is_tensor)
    sizes = open_sizes(program)
    names = placeholders(program)
    dynamic = tuple(sizes.get(name) for name, one in zip(names, tensors, strict=True) if one)
    try:
        flat = torch.export.export(Flat(), chosen, dynamic_shapes=(dynamic,))
    except Exception as error:  # PyTorch's own, of many classes
        raise ModelError(
            f"{where} cannot be traced with tensors only: {_first_line(error)}",
            hint="Export a module that takes and returns tensors, or dicts and tuples of them.",
        ) from error
    return FlatProgram(flat, tuple(inputs), tuple(outputs), nested)


def _nested(given: Any, inputs: list[str], results: Any, outputs: list[str]) -> dict[str, Any] | None:
    """:attr:`FlatProgram.nested`, of the example and of the results of a signature."""
    import torch
    from torch.export.graph_signature import ConstantArgument, TensorArgument
    from torch.utils import _pytree as pytree

    results = pytree.tree_map(lambda one: one.value if isinstance(one, ConstantArgument) else one, results)
    held = structure(given, torch.Tensor, inputs), structure(results, TensorArgument, outputs)
    return dict(zip(("arguments", "results"), held, strict=True)) if all(held) else None


def example_of(program: ExportedProgram, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that a program was exported with. Raises ModelError if its file has none."""
    if program.example_inputs is None:
        raise ModelError(
            f"{where} has no example inputs in it.",
            hint="Save it again: torch.export.save keeps those that torch.export.export was given.",
        )
    inputs, keywords = program.example_inputs
    return tuple(inputs), dict(keywords)


def unlifted(program: ExportedProgram) -> torch.nn.Module:
    """The program as a module, which does not check what it is given."""
    try:
        return program.module(check_guards=False)
    except TypeError:  # before 2.9
        return program.module()


def open_sizes(program: ExportedProgram) -> dict[str, dict[int, Any] | None]:
    """Which sizes of each argument, by its placeholder's name, are open, as ``dynamic_shapes`` takes them."""
    import torch

    found: dict[str, dict[int, Any] | None] = {}
    for node in program.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", None) if node.op == "placeholder" else None
        if shape is not None:
            axes = {
                axis: torch.export.Dim.AUTO for axis, size in enumerate(shape) if not isinstance(size, int)
            }
            found[node.name] = axes or None
    return found


def _is_plain(spec: Any) -> bool:
    if spec is None:
        return True
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    return (spec.type is None or spec.type in _PLAIN) and all(map(_is_plain, children))


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
