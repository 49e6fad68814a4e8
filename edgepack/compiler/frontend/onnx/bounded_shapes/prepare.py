"""A model with static maxima of entries: prepared for the normalisation, and as the reference runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.bounded_shapes.apply import Padding, apply_maxima
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.function_bodies import inlined
from edgepack.compiler.frontend.onnx.growing.apply import Growth, bound_growth
from edgepack.compiler.frontend.onnx.normalise import unrolled
from edgepack.compiler.frontend.onnx.onnxruntime_session import value_types
from edgepack.errors import ConfigError
from edgepack.plan.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "Selected",
    "check_combinations",
    "padded_results",
    "warn_of_counts",
    "with_bounded_shapes",
    "with_counts",
]


@dataclass(frozen=True)
class Selected:
    """A node whose result has a maximum, taken out while the model is normalised."""

    node: onnx.NodeProto

    @property
    def inputs(self) -> Sequence[str]:
        return list(self.node.input)

    def call(self, declared: Mapping[str, onnx.ValueInfoProto]) -> onnx.NodeProto:
        """The node itself."""
        import onnx

        del declared
        copy = onnx.NodeProto()
        copy.CopyFrom(self.node)
        return copy


def with_bounded_shapes(
    model: onnx.ModelProto, maxima: Mapping[str, int], limits: Limits = DEFAULT_LIMITS
) -> tuple[onnx.ModelProto, list[Selected], Padding]:
    """The model with static shapes, the nodes in it that nobody else knows, and what its outputs are.

    Args:
        model: input shapes static, weights loaded.
        limits: how much may become of the model.

    Raises:
        ConfigError: a name is no result whose size the data decide.
        ModelError: a node has no maximum, or mixes entries of which some are padding.
    """
    import onnx

    model = inlined(model)
    tensors = {name for node in model.graph.node for name in node.output if name}
    kept = [value.name for value in model.graph.output]
    wanted = onnx.ModelProto()
    wanted.CopyFrom(model)
    more = [name for name in maxima if name in tensors and name not in kept]
    wanted.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    ready = unrolled(wanted, widen=False, limits=limits)
    outputs = [value for value in ready.graph.output if value.name in kept]
    types = [value for value in ready.graph.value_info if value.name in more]
    del ready.graph.output[:], ready.graph.value_info[:]
    ready.graph.output.extend(outputs)
    ready.graph.value_info.extend(types)
    if any(not onnx.defs.has(node.op_type, node.domain) for node in ready.graph.node):
        ready.graph.value_info.extend(_static_types(ready))
    growth = bound_growth(ready, limits.trips, maxima, count=True)
    left = {name: most for name, most in maxima.items() if name not in growth.used}
    grown = _sizes(ready, growth)
    padding = apply_maxima(ready, left, tensors, limits)
    padding = replace(
        padding,
        shapes={**padding.shapes, **grown},
        counts={**growth.counts, **padding.counts},
        most={**{c: grown[name][axis] for c, (name, axis) in growth.counts.items()}, **padding.most},
        trips=growth.trips,
        totals=growth.totals,
        grown=tuple(growth.counts),
    )
    return ready, [Selected(node) for node in ready.graph.node if node.domain == "edgepack"], padding


def _sizes(model: onnx.ModelProto, growth: Growth) -> dict[str, tuple[int, ...]]:
    """The shapes of outputs that are padded, for they grew in a loop."""
    shapes = {value.name: static_shape(value) for value in model.graph.output}
    return {name: shapes[name] or () for name, _ in growth.counts.values()}


def _static_types(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What ONNX Runtime knows of the tensors in the model that have a static shape."""
    return [value for value in value_types(model) if static_shape(value) is not None]


def with_counts(model: onnx.ModelProto, padding: Padding | None) -> onnx.ModelProto:
    """The model as it is, of dynamic shapes, with outputs for all tensors whose entries are counted; itself
    if there are none."""
    import onnx

    if padding is None:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(inlined(model))
    known = {value.name for value in copy.graph.output}
    wanted = dict.fromkeys(tensor for tensor, _ in padding.counts.values() if tensor not in known)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    return copy


def padded_results(
    results: Mapping[str, NDArray[Any]], padding: Padding, names: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """The outputs of a bundle from those of :func:`with_counts`: cut or padded with 0, then the counts.

    Args:
        names: of the model's own outputs, in order.
    """
    import numpy as np

    found: dict[str, NDArray[Any]] = {}
    for name in names:
        array = results[name]
        shape = padding.shapes.get(name)
        if shape is not None:
            part = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape, strict=True))
            whole = np.zeros(shape, array.dtype)
            whole[part] = array[part]
            array = whole
        found[name] = array
    for name, (tensor, axis) in padding.counts.items():
        found[name] = np.asarray(results[tensor].shape[axis], np.int64)
    return found


def warn_of_counts(results: Mapping[str, NDArray[Any]], padding: Padding) -> list[str]:
    """Says so where a recorded run has no entries, or more than there is room for.

    Raises:
        ConfigError: it has more than there is room for of what grows in a loop, so that a bundle's run fails.
    """
    found = []
    for name, (tensor, axis) in padding.counts.items():
        count, most = results[tensor].shape[axis], padding.most[name]
        if not count:
            found.append(f"{tensor!r} has no entries in the recorded run: it proves little.")
        elif count > most and name in padding.grown:
            raise ConfigError(
                f"--max: {tensor!r} has more entries in the recorded run than the {most} that there is room "
                "for: such a run of the bundle fails with EP_E_TRIPS.",
                hint="Give it more room, or inputs with which it has fewer entries (--input NAME=FILE.npy).",
            )
        elif count > most:
            found.append(f"{tensor!r} has {count} entries in the recorded run, of which --max leaves {most}.")
    return found


def check_combinations(options: ImportOptions) -> None:
    """Raises ConfigError for what cannot be asked for together with a maximum."""
    for option, given in (
        ("--set-batch", options.batch > 1),
        ("--custom", bool(options.custom)),
        ("--expected", bool(options.expected)),
        ("--weights float16", options.weights == "float16"),
    ):
        if options.maxima and given:
            raise ConfigError(f"--max cannot be given together with {option}.", hint="Leave one of them out.")
