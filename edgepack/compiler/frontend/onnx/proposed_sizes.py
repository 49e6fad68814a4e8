"""Sizes that are proposed for what a model leaves open of its inputs: usual ones, which fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgepack.compiler.frontend.onnx.input_use import InputUse
from edgepack.compiler.frontend.onnx.related_sizes import usual_total, value_of
from edgepack.compiler.frontend.onnx.usual_sizes import grows, image_side, is_state, says_nothing, usual_size
from edgepack.plan.model_summary import Dim

__all__ = ["ModelInput", "OpenSizes", "Proposal", "Scale", "suggested_shape"]


@dataclass(frozen=True)
class ModelInput:
    """An input as the file declares it.

    Attributes:
        shape: None where even the rank is open.
        use: what it is by its readers, where that was asked for.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    use: InputUse = ""


@dataclass(frozen=True)
class Scale:
    """Which sizes are proposed.

    Attributes:
        factor: lengths and images are so many times as large as usual.
        image: height and width of images; None for the usual ones.
    """

    factor: int = 1
    image: tuple[int, int] | None = None


#: The usual sizes.
USUAL = Scale()


@dataclass(frozen=True)
class Proposal:
    """Sizes for what is open of a model's inputs.

    Attributes:
        shapes: of inputs, by name, for ``--shape``.
        dims: of named dimensions, for ``--dim``.
    """

    shapes: Mapping[str, tuple[int, ...]]
    dims: Mapping[str, int]

    def __str__(self) -> str:
        """The options, as on a command line."""
        options = [f"--dim {name}={size}" for name, size in self.dims.items()]
        options += [f"--shape {name}={','.join(map(str, shape))}" for name, shape in self.shapes.items()]
        return " ".join(options)


@dataclass(frozen=True)
class OpenSizes:
    """What is to be chosen.

    Attributes:
        inputs: all of the model's, those with open batches changed.
        missing: those of them that have open dimensions still.
        sizes: of named dimensions, as far as they are known.
    """

    inputs: Sequence[ModelInput]
    missing: Sequence[ModelInput]
    sizes: Mapping[str, int]

    def proposal(self, scale: Scale = USUAL) -> Proposal:
        """Sizes that bind all that is open: the usual ones, or by another scale."""
        usual = _usual_sizes(self.inputs, self.sizes, scale)
        # An input is named by its shape where something in it has no name that says anything; that says its
        # named sizes too, in every input.
        by_shape: dict[str, tuple[int, ...]] = {}
        said: set[Dim] = set()
        for item in self.missing:
            dims = item.shape or ()
            mute = [dim for dim in dims if isinstance(dim, str) and dim in usual and says_nothing(dim)]
            if item.shape is None or None in dims or not said.issuperset(mute):
                by_shape[item.name] = proposed_shape(item, {**self.sizes, **usual}, self.streams, scale)
                said.update(dims)
        asked = {name for item in self.missing for name in item.shape or () if isinstance(name, str)}
        derived = {name for name in usual if value_of(name, {**self.sizes, **usual}) is not None}
        names = [name for name in usual if name in asked and name not in said and name not in derived]
        return Proposal(by_shape, {name: usual[name] for name in names})

    @property
    def streams(self) -> bool:
        """Whether a state is among the inputs."""
        return _streams(self.inputs)


def suggested_shape(item: ModelInput, sizes: Mapping[str, int] | None = None) -> str:
    """``x=1,3,224,224``: an input with sizes that its open dimensions usually have.

    Args:
        sizes: of named dimensions, as far as they are known.
    """
    return f"{item.name}={','.join(map(str, proposed_shape(item, sizes or {}, streams=False)))}"


def proposed_shape(
    item: ModelInput, sizes: Mapping[str, int], streams: bool, scale: Scale = USUAL
) -> tuple[int, ...]:
    """Sizes that the dimensions of an input usually have, where ``sizes`` do not know them; arguments as for
    :meth:`OpenSizes.proposal`."""
    declared = item.shape if item.shape is not None else (None, 3, None, None)

    def size(index: int, dim: Dim) -> int:
        known = dim if isinstance(dim, int) else sizes.get(str(dim), 0)
        return known or _grown(declared, index, item, streams, scale)

    return tuple(size(index, dim) for index, dim in enumerate(declared))


def _grown(shape: Sequence[Dim], index: int, item: ModelInput, streams: bool, scale: Scale) -> int:
    if scale.image and (side := image_side(shape, index)) is not None:
        return scale.image[side]
    usual = usual_size(shape, index, item.dtype, item.use, streams=streams)
    return usual * scale.factor if scale.factor > 1 and grows(shape, index) else usual


def _usual_sizes(
    inputs: Sequence[ModelInput], sizes: Mapping[str, int], scale: Scale = USUAL
) -> dict[str, int]:
    """A size for each name that has none: of several inputs with it, the integers (tokens) know best. What is
    computed of others, or is a total of them by its name, fits these."""
    found: dict[str, int] = {}
    streams = _streams(inputs)
    for item in sorted(inputs, key=lambda one: not one.dtype.startswith(("int", "uint"))):
        for index, dim in enumerate(item.shape or ()):
            if isinstance(dim, str) and dim not in sizes and dim not in found:
                found[dim] = _grown(item.shape or (), index, item, streams, scale)
    for name, size in list(found.items()):
        known = {**sizes, **found}
        found[name] = value_of(name, known) or usual_total(name, known) or size
    return found


def _streams(inputs: Sequence[ModelInput]) -> bool:
    return any(item.shape is not None and is_state(item.shape) for item in inputs)
