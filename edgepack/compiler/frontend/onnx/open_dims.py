"""Dimensions of a model's inputs that its file leaves open: which of them is the batch, and what to say of
those that the user has to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgepack.compiler.frontend.onnx.usual_sizes import is_length, usual_size
from edgepack.errors import ModelError
from edgepack.plan.model_summary import Dim

__all__ = ["ModelInput", "check_bound", "described", "suggested_shape", "with_batch"]


@dataclass(frozen=True)
class ModelInput:
    """An input as the file declares it; ``shape`` is None where even the rank is open."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None


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


def check_bound(
    inputs: Sequence[ModelInput], shapes: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> None:
    """Raise ModelError, with all dimensions of all inputs that are open still and one command line that binds
    them, unless there are none."""
    missing = [item for item in inputs if item.name not in shapes and _open(item, sizes)]
    if not missing:
        return
    usual = _usual_sizes(inputs, sizes)
    # An input is named by its shape where something in it has no name, and that says its named sizes too.
    by_shape = [item for item in missing if item.shape is None or None in item.shape]
    said = {dim for item in by_shape for dim in item.shape or ()}
    by_name = [name for name in usual if name not in said]
    options = [f"--dim {name}={usual[name]}" for name in by_name]
    options += [f"--shape {suggested_shape(item, {**sizes, **usual})}" for item in by_shape]
    lines = [f"{item.name!r} ({described(item.shape)}): {', '.join(_open(item, sizes))}" for item in missing]
    # A name is one size wherever it stands; a dimension without one is that input's own.
    sizes_to_choose = {
        dim if "'" in dim else (item.name, dim) for item in missing for dim in _open(item, sizes)
    }
    one_or_more = "its size" if len(sizes_to_choose) == 1 else "their sizes"
    raise ModelError(
        f"Input {lines[0]} {'are' if len(_open(missing[0], sizes)) > 1 else 'is'} not bound"
        + (f"; and input {'; input '.join(lines[1:])}." if len(lines) > 1 else "."),
        hint=f"Choose {one_or_more}, for example: {' '.join(options)}",
    )


def suggested_shape(item: ModelInput, sizes: Mapping[str, int] | None = None) -> str:
    """``x=1,3,224,224``: an input with sizes that its open dimensions usually have.

    Args:
        sizes: of named dimensions, as far as they are known.
    """
    known = sizes or {}
    declared = item.shape if item.shape is not None else (None, 3, None, None)
    shape = [
        (dim if isinstance(dim, int) else known.get(str(dim), 0)) or usual_size(declared, index, item.dtype)
        for index, dim in enumerate(declared)
    ]
    return f"{item.name}={','.join(map(str, shape))}"


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


def _usual_sizes(inputs: Sequence[ModelInput], sizes: Mapping[str, int]) -> dict[str, int]:
    """A size for each name that has none: of several inputs with it, the integers (tokens) know best."""
    found: dict[str, int] = {}
    for item in sorted(inputs, key=lambda one: not one.dtype.startswith(("int", "uint"))):
        for index, dim in enumerate(item.shape or ()):
            if isinstance(dim, str) and dim not in sizes and dim not in found:
                found[dim] = usual_size(item.shape or (), index, item.dtype)
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more inputs" if len(names) > 3 else "")
