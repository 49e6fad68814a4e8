"""The two that are compared: models as they are run, and which input and output is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.error_attribution import attributed_errors
from edgepack.compiler.frontend.onnx.model_file import read_model
from edgepack.compiler.frontend.onnx.normalise import unrolled
from edgepack.compiler.frontend.onnx.quantise.float_model import is_quantised, name_nodes
from edgepack.compiler.frontend.onnx.quantise.samples import input_specs
from edgepack.errors import ConfigError
from edgepack.plan.comparison import Side
from edgepack.plan.model_summary import Dim
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx

__all__ = ["Opened", "check_inputs", "matched", "opened_sides"]


@dataclass(frozen=True)
class Opened:
    """A side that is ready.

    Attributes:
        side: what the job says of it.
        model: None for a bundle.
        inputs: all of static shape.
        outputs: names.
    """

    side: Side
    model: onnx.ModelProto | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]


def opened_sides(sides: Sequence[Side], options: ImportOptions, notes: list[str]) -> list[Opened]:
    """Both sides, their models with the sizes that ``options`` or the other side give.

    Args:
        notes: gets a sentence for each dimension that is open and was taken for a batch of 1.

    Raises:
        ModelError: a model cannot be read, or has an open dimension.
        ConfigError: ``options`` do not fit.
    """
    declared = [_declared(side) for side in sides]
    found = []
    for side, own, other in zip(sides, declared, reversed(declared), strict=True):
        if side.bundle:
            found.append(Opened(side, None, side.inputs, tuple(spec.name for spec in side.outputs)))
        else:
            found.append(_opened(side, _options_of(options, own, other), notes))
    return found


def _declared(side: Side) -> dict[str, tuple[Dim, ...]]:
    """What a side says of its inputs' shapes."""
    if side.bundle:
        return {spec.name: spec.shape for spec in side.inputs}
    items = model_inputs(read_model(Path(side.name), weights=False))
    return {item.name: item.shape or () for item in items}


def _options_of(
    options: ImportOptions, own: Mapping[str, tuple[Dim, ...]], other: Mapping[str, tuple[Dim, ...]]
) -> ImportOptions:
    """What of ``options`` is for a side, and the shapes that it leaves open and the other one says. What is
    for neither is left to be refused."""
    shapes = {
        name: tuple(dim for dim in other[name] if isinstance(dim, int))
        for name, shape in own.items()
        if name in other and not _static(shape) and shape and _static(other[name])
    }
    own_dims, other_dims = ({dim for shape in one.values() for dim in shape} for one in (own, other))
    return replace(
        options,
        shapes={**shapes, **{k: v for k, v in options.shapes.items() if k in own or k not in other}},
        dims={k: v for k, v in options.dims.items() if k in own_dims or k not in other_dims},
        const={k: v for k, v in options.const.items() if k in own or k not in other},
    )


def _static(shape: tuple[Dim, ...]) -> bool:
    return all(isinstance(dim, int) for dim in shape)


def _opened(side: Side, options: ImportOptions, notes: list[str]) -> Opened:
    path = Path(side.name)
    with attributed_errors(path):
        model = open_model(path, options, notes)
        if not is_quantised(model):  # a quantiser folds batch normalisations and constants first
            model = unrolled(model, widen=False, limits=options.limits)
    name_nodes(model.graph.node)
    return Opened(side, model, input_specs(model), tuple(value.name for value in model.graph.output))


def matched(
    what: str, first: Sequence[str], second: Sequence[str], sides: Sequence[Opened]
) -> dict[str, str]:
    """The name of each input or output of the first side, and what the second calls it: the same, or, where
    no name agrees, in the order of both.

    Args:
        what: ``input`` or ``output``.

    Raises:
        ConfigError: they do not have the same ones.
    """
    if set(first) == set(second):
        return {name: name for name in first}
    if len(first) == len(second) and set(first).isdisjoint(second):
        return dict(zip(first, second, strict=True))
    one, other = (opened.side.name for opened in sides)
    raise ConfigError(
        f"{one} and {other} have different {what}s: {_listed(first)} and {_listed(second)}.",
        hint="Compare models of the same network; names have to be the same, or all to differ.",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "none"


def check_inputs(names: Mapping[str, str], first: Opened, second: Opened) -> None:
    """Raises ConfigError unless both sides take the same arrays."""
    others = {spec.name: spec for spec in second.inputs}
    for spec in first.inputs:
        other = others[names[spec.name]]
        if (spec.dtype, spec.shape) != (other.dtype, other.shape):
            raise ConfigError(
                f"The input {spec.name} is {spec.dtype} {list(spec.shape)} in {first.side.name}, and "
                f"{other.dtype} {list(other.shape)} in {second.side.name}.",
                hint="Both have to take the same; --shape and --dim give sizes that a model leaves open.",
            )
