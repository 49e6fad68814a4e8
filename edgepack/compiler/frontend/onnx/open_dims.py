"""Dimensions of a model's inputs that its file leaves open: which of them is the batch, and what to say of
those that the user has to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgepack.compiler.frontend.onnx.proposed_sizes import ModelInput, OpenSizes, suggested_shape
from edgepack.compiler.frontend.onnx.usual_sizes import is_length
from edgepack.errors import ModelError
from edgepack.plan.model_summary import Dim

__all__ = [
    "ModelInput",
    "UnboundSizesError",
    "check_bound",
    "described",
    "suggested_shape",
    "with_batch",
]


def with_batch(
    inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]], sizes: dict[str, int]
) -> tuple[tuple[ModelInput, ...], tuple[str, ...]]:
    """The inputs, each with a batch of 1 where the first of several dimensions is open, unless its name says
    that it is a length.

    Args:
        shapes: of inputs that the user gave; these are left alone.
        sizes: of named dimensions; the batch's name is added.

    Returns:
        the inputs, and a sentence for each dimension that was bound so.
    """
    named: dict[str, list[str]] = {}
    nameless: list[str] = []
    found = []
    for item in inputs:
        first = item.shape[0] if item.shape and len(item.shape) > 1 and item.name not in shapes else 0
        if isinstance(first, str) and first not in sizes and not is_length(first):
            named.setdefault(first, []).append(item.name)
        elif first is None:
            nameless.append(item.name)
        nameless_batch = first is None and item.shape is not None
        found.append(replace(item, shape=(1, *item.shape[1:])) if nameless_batch and item.shape else item)
    sizes |= dict.fromkeys(named, 1)
    said = [
        f"the first dimension of {_listed(names)}, {name!r}, is open and taken for a batch of 1 "
        f"(--dim {name}=... gives another size)"
        for name, names in named.items()
    ]
    if nameless:
        said.append(
            f"the first dimension of {_listed(nameless)} is open and taken for a batch of 1 "
            f"(--shape {nameless[0]}=... gives another size)"
        )
    return tuple(found), tuple(said)


class UnboundSizesError(ModelError):
    """Inputs of a model have open dimensions that nothing binds.

    Attributes:
        choice: "its size", or "their sizes".
        asked: what is to be chosen.
    """

    def __init__(self, message: str, *, hint: str, choice: str, asked: OpenSizes) -> None:
        super().__init__(message, hint=hint)
        self.choice, self.asked = choice, asked


def check_bound(
    inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> None:
    """Raise UnboundSizesError, with all dimensions of all inputs that are open still and one command line
    that binds them, unless there are none."""
    missing = [item for item in inputs if item.name not in shapes and _open(item, sizes)]
    if not missing:
        return
    asked = OpenSizes(inputs, missing, sizes)
    lines = [f"{item.name!r} ({described(item.shape)}): {', '.join(_open(item, sizes))}" for item in missing]
    # A name is one size wherever it stands; a dimension without one is that input's own.
    sizes_to_choose = {
        dim if "'" in dim else (item.name, dim) for item in missing for dim in _open(item, sizes)
    }
    one_or_more = "its size" if len(sizes_to_choose) == 1 else "their sizes"
    options = asked.proposal()
    raise UnboundSizesError(
        f"Input {lines[0]} {'are' if len(_open(missing[0], sizes)) > 1 else 'is'} not bound"
        + (f"; and input {'; input '.join(lines[1:])}." if len(lines) > 1 else "."),
        hint=f"Choose {one_or_more}, for example: {options}",
        choice=one_or_more,
        asked=asked,
    )


def described(shape: Sequence[Dim] | None) -> str:
    """``batch x 3 x ? x ?``."""
    if shape is None:
        return "of unknown rank"
    return " x ".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def _open(item: ModelInput, sizes: Mapping[str, int]) -> list[str]:
    """What is open of an input, in words."""
    if item.shape is None:
        return ["its shape"]
    found = []
    for index, dim in enumerate(item.shape):
        if dim is None:
            found.append(f"dimension {index}")
        elif isinstance(dim, str) and dim not in sizes:
            found.append(f"dimension {dim!r}")
    return list(dict.fromkeys(found))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more inputs" if len(names) > 3 else "")
