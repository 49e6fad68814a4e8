"""What a Loop stacks whose trips are known at run time only: results with a maximum, as of ``--max``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import COUNT, Entries
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.regions import Bounds, region_of
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.errors import ConfigError
from edgepack.plan.limits import Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["stacked_results"]


def stacked_results(
    model: onnx.ModelProto, maxima: Mapping[str, int], limits: Limits
) -> dict[str, tuple[int, Entries]]:
    """Gives Loops a result that counts their trips, in place, and declares the shapes of what they stack.

    Args:
        model: constants folded, input shapes static.
        maxima: by name of a result, the trips that it has room for.
        limits: how much may become of the model.

    Returns:
        The results with a maximum, the axis along which they are padded, and by how much.

    Raises:
        ConfigError: two results of one Loop have different maxima, or one that has a size of its own has one.
    """
    found: dict[str, tuple[int, Entries]] = {}
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Loop" or node.domain not in ("", "ai.onnx"):
            continue
        carried = len(attributes(node)["body"].input) - 2
        stacked = [name for name in node.output[carried:] if name]
        given = {name: maxima[name] for name in stacked if name in maxima}
        if not given:
            continue
        if len(set(given.values())) > 1:
            raise ConfigError(
                f"--max: {' and '.join(map(repr, given))} are results of one Loop, with as many parts.",
                hint=f"Give one of them: --max {next(iter(given))}={max(given.values())}.",
            )
        name, most = next(iter(given.items()))
        region = region_of(
            model, node, index, partial(normalise, limits=limits), Bounds(limits.trips, maxima)
        )
        if not region.about["room"]:
            raise ConfigError(
                f"--max: the number of trips of the Loop of {name!r} is known when the model is packed.",
                hint="Leave it out.",
            )
        entries = Entries(most, f"{name}{COUNT}", name)
        declared = {value.name: value for value in region.outputs}
        kept = [value for value in model.graph.value_info if value.name not in declared]
        del model.graph.value_info[:]
        model.graph.value_info.extend([*kept, *region.outputs])
        for output in model.graph.output:
            output.CopyFrom(declared.get(output.name, output))
        _count(model, node, entries.count, carried)
        found.update(dict.fromkeys(stacked, (0, entries)))
    return found


def _count(model: onnx.ModelProto, node: onnx.NodeProto, name: str, carried: int) -> None:
    """Adds a number to what a Loop carries, which is that of its trips, as a result of this name."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    body: onnx.GraphProto = attributes(node)["body"]
    start, before, one, behind = (f"{name}/{part}" for part in ("start", "before", "one", "behind"))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(0, np.int64), start))
    body.initializer.append(numpy_helper.from_array(np.asarray(1, np.int64), one))
    body.node.append(helper.make_node("Add", [before, one], [behind], name=behind))
    number = partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.INT64, shape=[])
    body.input.append(number(before))
    body.output.insert(1 + carried, number(behind))
    node.input.append(start)
    node.output.insert(carried, name)
    model.graph.value_info.append(number(name))
