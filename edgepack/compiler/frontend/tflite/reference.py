"""The recorded data of a model of integers: what LiteRT's reference kernels compute, which bundles repeat bit
for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.corner_inputs import corner_inputs
from edgepack.compiler.frontend.onnx.corners import LARGEST_DATA
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.output_facts import output_facts
from edgepack.compiler.frontend.onnx.sampling import random_inputs
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.onnx.user_arrays import user_input
from edgepack.compiler.frontend.recorded import (
    RECORDED,
    DifferentModelError,
    compare_outputs,
    judged,
    read_inputs,
    replace_outputs,
    write_recorded,
)
from edgepack.compiler.frontend.tflite.checked_copy import checked_copy
from edgepack.compiler.frontend.tflite.convert import Converted
from edgepack.compiler.frontend.tflite.interpreter import Interpreter
from edgepack.compiler.frontend.tolerances import limits_of, tolerance_of
from edgepack.errors import ModelError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_interpreter", "record_interpreter"]

#: What is said to have computed the recorded outputs.
SOURCE = "LiteRT, reference kernels"

#: What activations that are rounded to bytes move an output by, of its largest magnitude, at most.
HYBRID = 0.1

#: Runs before the recorded one, so that its states are not those of the start.
_EARLIER_RUNS = 2


def record_interpreter(
    converted: Converted,
    options: ImportOptions,
    folder: Path,
    seed: int,
    inputs: Mapping[str, Path],
) -> tuple[str, ...]:
    """Write recorded data to ``folder / "recorded"``. A part of a model (``options.inputs``), and one in
    forms that LiteRT has no kernels for, is computed by ONNX's own evaluator, with integers all the same.

    Args:
        converted: what the TFLite file became.
        inputs: ``.npy`` files of inputs, by name; others are random.

    Returns:
        Warnings, a sentence each.

    Raises:
        ConfigError: a given input does not fit.
        ModelError: the interpreter refuses the model.
    """
    import numpy as np

    bound = open_model(folder / "converted.onnx", options)
    specs = [_spec(value) for value in bound.graph.input]
    given = {name: user_input(name, file, specs) for name, file in inputs.items()}
    arrays = {**random_inputs(bound, seed), **given}
    arrays.update(_assumed(converted, arrays))
    wanted = [value.name for value in bound.graph.output]
    about: dict[str, Any] = {}
    own = {converted.subgraph.tensors[index].name for index in converted.subgraph.inputs}
    states = {state.name for state in converted.states}
    whole = not options.inputs and not options.const and own >= arrays.keys() and not states & given.keys()
    if whole and not converted.foreign:
        arrays, results = _interpreted(converted, arrays, wanted, seed)
        source = SOURCE
        about = _record_ends(converted, bound, arrays, given, folder / RECORDED)
    else:
        initial = {state.name: state.initial for state in converted.states if state.name in arrays}
        arrays = {**arrays, **initial, **given}
        if whole:
            arrays.update(_states_later(converted, bound, arrays, seed))
        results = dict(zip(wanted, evaluate(bound, arrays), strict=True))
        source = "onnx.reference, the arithmetic of LiteRT's reference kernels"
    limits = _limits(bound, results)
    write_recorded(
        folder / RECORDED, {spec.name: arrays[spec.name] for spec in specs}, results, limits, source, about
    )
    return tuple(text for name, array in results.items() for text in judged(name, np.asarray(array)))


def _limits(bound: Any, results: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, float]]:
    """What outputs may be off by: integers by nothing."""
    facts = output_facts(bound)
    return {
        name: limits_of(array, tolerance_of(facts[name]) if facts[name].is_float else 0, None)
        for name, array in results.items()
    }


def _record_ends(
    converted: Converted,
    bound: Any,
    arrays: Mapping[str, NDArray[Any]],
    given: Mapping[str, NDArray[Any]],
    folder: Path,
) -> dict[str, Any]:
    """Record a run on the ends of ranges beside the usual one; returns what is said of it in that one."""
    names = [value.name for value in bound.graph.input]
    left_out = dict.fromkeys(("special", "large"), "it computes with integers, which have no such numbers")
    reason = "there is no input to put them into"
    if converted.states:
        reason = "the model keeps states from run to run"
    elif sum(array.nbytes for array in arrays.values()) > LARGEST_DATA:
        reason = f"the inputs have more than {LARGEST_DATA >> 20} MiB"
    else:
        for inputs in corner_inputs(bound, arrays, tuple(given), "ends"):
            inputs.update(_assumed(converted, inputs))
            _, results = _interpreted(converted, inputs, [value.name for value in bound.graph.output], 0)
            own = {name: inputs[name] for name in names}
            write_recorded(folder / "ends", own, results, _limits(bound, results), SOURCE)
            return {"corners": ["ends"], "corners_left_out": left_out}
    return {"corners": [], "corners_left_out": {**left_out, "ends": reason}}


def check_interpreter(path: Path, converted: Converted, folder: Path) -> None:
    """Put what LiteRT's reference kernels compute of recorded inputs in the place of ONNX Runtime's outputs.
    Of a part of the model, of another one (``options.const``), and of one in forms that LiteRT has no kernel
    for these stay. So they do with dynamic-range quantisation, whose kernels round activations to bytes:
    these have to be near.

    Args:
        folder: with the recorded data of the converted model.

    Raises:
        ModelError: the two differ by more than an output may be off by.
    """
    inputs = read_inputs(folder / RECORDED)
    names = {converted.subgraph.tensors[index].name: index for index in converted.subgraph.inputs}
    if converted.states or converted.foreign or inputs.keys() != names.keys():
        return
    recorded = json.loads((folder / RECORDED / "recorded.json").read_text(encoding="utf-8"))
    tensors = {tensor.name: tensor.index for tensor in converted.subgraph.tensors} | converted.places
    inputs |= _assumed(converted, inputs)
    places = {names[name]: array for name, array in inputs.items()}
    interpreter = Interpreter(checked_copy(converted.source), places)
    interpreter.run(places)
    results = {one["name"]: interpreter.tensor(tensors[one["name"]]) for one in recorded["outputs"]}
    try:
        if converted.hybrid:
            compare_outputs(folder / RECORDED, results, relative=HYBRID)
        else:
            replace_outputs(folder / RECORDED, results, SOURCE)
    except DifferentModelError as error:
        raise ModelError(
            f"{path}: the converted model computes something else than LiteRT's reference kernels: {error}.",
            hint="Report the model, or leave the layer out (--outputs).",
        ) from error


def _spec(value: Any) -> TensorSpec:
    import onnx

    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return TensorSpec(value.name, str(dtype), tuple(dim.dim_value for dim in tensor.shape.dim))


def _assumed(converted: Converted, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Inputs that say the sizes of a result as the conversion took them to be: no other run is the same."""
    import numpy as np

    known = converted.assumed.items()
    return {name: np.asarray(sizes, arrays[name].dtype) for name, sizes in known if name in arrays}


def _states_later(
    converted: Converted, bound: Any, arrays: Mapping[str, NDArray[Any]], seed: int
) -> dict[str, NDArray[Any]]:
    """States as some runs leave them whose inputs are shuffled, by the names of the inputs that they are; as
    they were given where the model's outputs have them not."""
    import numpy as np

    outputs = [value.name for value in bound.graph.output]
    states = {state.name: state.returned_as for state in converted.states if state.returned_as in outputs}
    random, kept = np.random.default_rng(seed), {name: arrays[name] for name in states}
    for _ in range(_EARLIER_RUNS if states else 0):
        shuffled = {
            name: random.permutation(array.ravel()).reshape(array.shape) for name, array in arrays.items()
        }
        made = dict(zip(outputs, evaluate(bound, {**shuffled, **kept}), strict=True))
        kept = {name: made[returned] for name, returned in states.items()}
    return kept


def _interpreted(
    converted: Converted,
    arrays: Mapping[str, NDArray[Any]],
    wanted: list[str],
    seed: int,
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The inputs, with the states of the recorded run, and the wanted tensors of that run."""
    import numpy as np

    graph, states = converted.subgraph, {state.name: state for state in converted.states}
    names = {tensor.name: tensor.index for tensor in graph.tensors} | converted.places
    own = {name: array for name, array in arrays.items() if name not in states}
    given = {names[name]: array for name, array in own.items()}
    interpreter = Interpreter(checked_copy(converted.source), given)
    random = np.random.default_rng(seed)
    for _ in range(_EARLIER_RUNS if states else 0):
        shuffled = {name: random.permutation(array.ravel()) for name, array in own.items()}
        interpreter.run({names[name]: array.reshape(own[name].shape) for name, array in shuffled.items()})
    changed = {name: state for name, state in states.items() if state.changed is not None}
    before = {name: interpreter.tensor(state.read) for name, state in changed.items()}
    interpreter.run({names[name]: array for name, array in own.items()})
    read = {name: interpreter.tensor(state.read) for name, state in states.items()}
    found = {**arrays, **read, **before}
    results = {name: interpreter.tensor(names[name]) for name in wanted}
    for spec in converted.outputs:
        if spec.name in results and results[spec.name].shape != spec.shape:
            raise ModelError(
                f"LiteRT computes {spec.name!r} of the shape {list(results[spec.name].shape)}, and the file "
                f"says {list(spec.shape)}.",
                hint="Convert the model again: it is damaged.",
            )
    return found, results
