"""The worker's part of ``edgepack compare``: draws what both sides are run on, and compares what they
compute."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.compare.sides import Opened, check_inputs, matched, opened_sides
from edgepack.compiler.frontend.onnx.compare.stored import read_arrays, write_samples
from edgepack.compiler.frontend.onnx.compare.tensors import NamedTensors, shared_tensors
from edgepack.compiler.frontend.onnx.quantise.difference import Difference
from edgepack.compiler.frontend.onnx.quantise.samples import given_samples, random_samples
from edgepack.errors import ConfigError
from edgepack.plan.comparison import ComparedLayer, ComparedOutput, ComparisonFigures, Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["compare", "draw"]

#: What they add, a mask of -10000 say, is a signal that tells nothing: their result is no better than what
#: they read, whatever its ratio is.
_ADDS = {"Add", "Concat", "Sub", "Sum", "Where"}

_UNNAMED = "No tensor inside of one has the name of one inside of the other: only the outputs are compared."


def draw(
    sides: Sequence[Side], options: ImportOptions, folder: Path, inputs: Path | None, draws: Mapping[str, int]
) -> None:
    """Write the inputs of the runs to ``folder / "samples"``, in the order of the first side's, and which of
    them is each input of the second.

    Args:
        inputs: the user's files; None for random inputs, such as the first side that is a model takes. Of two
            bundles nothing is drawn then: there is one sample, what is recorded.
        draws: ``samples``, how many at most, and ``seed`` of the random ones.

    Raises:
        ModelError: a model cannot be read.
        ConfigError: the files or ``options`` do not fit, or the sides take different inputs.
    """
    notes: list[str] = []
    first, second = opened_sides(sides, options, notes)
    names = _input_names(first, second)
    arrays: Iterator[Mapping[str, NDArray[Any]]] = iter([])
    count = 1
    if inputs is not None:
        drawn = given_samples(inputs, first.inputs, draws["samples"], "inputs")
        if drawn.unused:
            notes.append(f"{drawn.unused} more samples of the inputs were not used (--samples).")
        arrays, count = iter(drawn), drawn.count
    elif (model := first.model or second.model) is not None:
        other = first.model is None
        drawn = random_samples(model, draws["seed"], draws["samples"])
        arrays = ({name: one[names[name]] for name in names} if other else one for one in drawn)
        count = drawn.count
    (place := folder / "samples").mkdir()
    write_samples(place, arrays, first.inputs)
    taken = {names[spec.name]: index for index, spec in enumerate(first.inputs)}
    order = [taken[spec.name] for spec in second.inputs]
    said = {"count": count, "order": order, "notes": notes}
    (place / "samples.json").write_text(json.dumps(said), encoding="utf-8", newline="\n")


def compare(sides: Sequence[Side], options: ImportOptions, samples: Path) -> ComparisonFigures:
    """Compare what both sides compute of the inputs in ``samples``; models are run here, what bundles
    computed lies in their folders.

    Raises:
        ModelError: a model cannot be read or run.
        ConfigError: the sides' inputs or outputs are not the same.
    """
    count = int(json.loads((samples / "samples.json").read_text(encoding="utf-8"))["count"])
    first, second = opened_sides(sides, options, [])
    inputs = _input_names(first, second)
    outputs = matched("output", first.outputs, second.outputs, (first, second))
    one, other = (NamedTensors(side.model) if side.model is not None else None for side in (first, second))
    pairs = dict(outputs)
    if one is not None and other is not None:
        pairs = {**shared_tensors(one, other), **outputs}
    run, run_other = _runner(first, one, [*pairs]), _runner(second, other, [*pairs.values()])
    found = {name: Difference() for name in pairs}
    dtypes: dict[str, str] = {}
    for number in range(count):
        place = samples / str(number)
        given = read_arrays(place, "input", first.inputs)
        results = run(number, given)
        others = run_other(number, {inputs[name]: array for name, array in given.items()})
        for name, difference in found.items():
            a, b = results[name], others[pairs[name]]
            _check_shapes(name, a, b, first, second, must=name in outputs)
            if a.shape == b.shape:
                difference.add(a, b)
            dtypes[name] = str(a.dtype)
    real = {name: one for name, one in found.items() if name in outputs or "float" in dtypes.get(name, "")}
    unnamed = one is not None and other is not None and len(pairs) == len(outputs)
    return ComparisonFigures(
        outputs=tuple(_output(name, dtypes[name], found[name]) for name in outputs),
        layers=_layers(one, real) if one is not None and len(pairs) > len(outputs) else (),
        samples=count,
        warnings=(_UNNAMED,) if unnamed else (),
    )


def _input_names(first: Opened, second: Opened) -> dict[str, str]:
    names = matched(
        "input", [one.name for one in first.inputs], [one.name for one in second.inputs], (first, second)
    )
    check_inputs(names, first, second)
    return names


def _runner(side: Opened, named: NamedTensors | None, names: list[str]) -> Callable[..., Any]:
    """A function of a sample's number and inputs that returns the tensors of these names."""
    if named is None:
        folder = Path(side.side.folder)
        return lambda number, _: read_arrays(folder / str(number), "output", side.side.outputs)
    run = named.runner(names, side.side.name)
    return lambda _, arrays: run(arrays)


def _check_shapes(
    name: str, a: NDArray[Any], b: NDArray[Any], first: Opened, second: Opened, *, must: bool
) -> None:
    if must and a.shape != b.shape:
        raise ConfigError(
            f"The output {name} is {list(a.shape)} of {first.side.name}, and {list(b.shape)} of "
            f"{second.side.name}.",
            hint="Compare models of the same network.",
        )


def _output(name: str, dtype: str, one: Difference) -> ComparedOutput:
    return ComparedOutput(
        name=name,
        dtype=dtype,
        elements=one.elements,
        sqnr=one.sqnr,
        cosine=one.cosine,
        max_error=inf if one.unlike else one.max_error,
        mean_error=inf if one.unlike else one.error / max(one.elements, 1),
        largest=one.largest,
        top1=one.top1,
    )


def _layers(first: NamedTensors, found: Mapping[str, Difference]) -> tuple[ComparedLayer, ...]:
    """The tensors inside, each with what was lost since those that it is computed from."""
    reached: dict[str, float | None] = {}
    layers = []
    for name, node in first.origins.items():
        known = [ratio for read in node.input if (ratio := reached.get(first.name_of(read))) is not None]
        before = min(known, default=None)
        one = found.get(name)
        if one is None or not one.elements:
            reached[name] = before
            continue
        reached[name] = now = one.sqnr
        if node.op_type in _ADDS and before is not None and now is not None:
            reached[name] = min(before, now)
        lost = None if before is None or now is None else before - now
        largest_error = inf if one.unlike else one.max_error
        layers.append(ComparedLayer(node.name, node.op_type, name, now, lost, largest_error, one.largest))
    return tuple(layers)
