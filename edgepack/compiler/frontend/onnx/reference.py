"""Records what a model must compute: seeded inputs, ONNX Runtime's outputs, and how far off one may be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import EXPORT_DYNAMIC
from edgepack.compiler.frontend.onnx.bounded_shapes.apply import Padding
from edgepack.compiler.frontend.onnx.bounded_shapes.prepare import padded_results, warn_of_counts, with_counts
from edgepack.compiler.frontend.onnx.custom import declare
from edgepack.compiler.frontend.onnx.custom_reference import check_references
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.onnxruntime_session import Level
from edgepack.compiler.frontend.onnx.per_sample_reference import per_sample_outputs
from edgepack.compiler.frontend.onnx.reference_run import run_custom, run_drawn, run_reference
from edgepack.compiler.frontend.onnx.reordered_sums import reorder_sums
from edgepack.compiler.frontend.onnx.rounded_factors import round_factors
from edgepack.compiler.frontend.onnx.sampling import drawn_inputs
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.compiler.frontend.onnx.storage_types import storage_name
from edgepack.compiler.frontend.onnx.user_arrays import user_input, user_outputs
from edgepack.errors import ModelError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Changed", "Tolerance", "record", "tolerances"]


@dataclass(frozen=True)
class Tolerance:
    """Allowed error: ``relative * max|ref|``, at least ``floor``, plus ``relative_each * |ref|``."""

    relative: float
    floor: float
    relative_each: float


#: By the coarsest arithmetic that an output depends on.
#:
#: float32: a sum of K products, added up in any order, is off by at most about K u of the sum of magnitudes
#: (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1; u = 6e-8), and K is some
#: thousands: 1e-4 of the output's range. What is measured is far less: 6e-7 for whole networks with direct
#: convolutions, 1.3e-5 for one Winograd F(4x4, 3x3) layer. float16 has u = 5e-4, and each layer of the
#: reference rounds once more (edgepack computes in float32): 1e-2, and for bfloat16, u = 4e-3, 5e-2.
#: quantised: a value next to the middle of two steps may be rounded to the other one: two steps of 1/127.
#: tf32: the factors of a product are off by up to u = 5e-4 each, 3e-4 together on average, and so is a sum of
#: such products, however many they are, for they are off independently: 2e-3, and ROUNDING_FACTOR.
TOLERANCES = {
    "float64": Tolerance(1e-9, 1e-12, 1e-9),
    "float32": Tolerance(1e-4, 1e-7, 1e-3),
    "tf32": Tolerance(2e-3, 1e-6, 1e-3),
    "quantised": Tolerance(2 / 127, 1e-6, 1e-3),
    "float16": Tolerance(1e-2, 1e-4, 1e-2),
    "bfloat16": Tolerance(5e-2, 1e-3, 5e-2),
}

_COARSENESS = list(TOLERANCES)

#: Some networks amplify rounding errors. How much is seen from ONNX Runtime itself: the same model, run with
#: its fusions and with the terms of all products reversed, adds up in another order. An output may be off by
#: this many times what that changes, but never by more than CONDITION_LIMIT of its range. Measured over the
#: test networks, edgepack's results are off by 0.6 to 4.5 times what that changes.
CONDITION_FACTOR = 30.0
CONDITION_LIMIT = 1e-2

#: What rounding the factors of products to TF32 adds up to over the layers of a network is seen from ONNX
#: Runtime too, given rounded factors. An output may be off by this many times what that changes, for a GPU
#: multiplies other numbers where it fused or rearranged, but never by more than ROUNDING_LIMIT of its range.
ROUNDING_FACTOR = 3.0
ROUNDING_LIMIT = 5e-2

#: What is said to have computed outputs that the user gave.
GIVEN = "the given outputs"

#: Operators that round to steps, or sum up integers as floats: an integer output may be off by one.
ROUNDING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "Resize"}


@dataclass(frozen=True)
class Changed:
    """What makes the outputs of a bundle others than those of the model as it is.

    Attributes:
        rounded: the normalised model with rounded weights, where these are asked for: its outputs are then
            the reference, so that the comparison stays as tight as without rounding.
        padding: what the outputs are where results have a maximum: the model's, cut or padded with 0.
    """

    rounded: Path | None = None
    padding: Padding | None = None


def record(
    path: Path,
    model_inputs: Sequence[TensorSpec],
    options: ImportOptions,
    *,
    seed: int,
    inputs: Mapping[str, Path],
    directory: Path,
    changed: Changed | None = None,
) -> tuple[str, ...]:
    """Runs the original model with ONNX Runtime, unoptimised, or with ONNX's own evaluator; writes inputs,
    outputs and tolerances.

    Writes ``input_<i>.bin``, ``output_<i>.bin`` (raw, little-endian, C order) and ``recorded.json``.

    Args:
        path: an ``.onnx`` file; external data lies beside it.
        model_inputs: the model's inputs, with static shapes.
        options: what gives them these shapes, and where the model is cut.
        seed: seed of the random inputs.
        inputs: ``.npy`` files to use instead, by input name. With ``options.expected`` nothing is run.
        directory: where to write; is made if it is missing.
        changed: what the user asked for that makes the outputs others than the model's.

    Returns:
        Warnings: outputs that prove little, or that rounding the weights moves far.

    Raises:
        ConfigError: a given input does not fit.
        ModelError: ONNX Runtime cannot run the model.
    """
    rounded, padding = (changed.rounded, changed.padding) if changed is not None else (None, None)
    model = _opened(path, options)
    given = {name: user_input(name, file, model_inputs) for name, file in inputs.items()}
    drawn = drawn_inputs(model, seed, given)
    allowed = tolerances(model, _rounded(options, rounded))
    if options.expected:
        arrays, prepared, source = next(drawn), None, GIVEN
        results = user_outputs(model, options.expected, inputs, model_inputs)
    else:
        arrays, (results, prepared, source) = run_drawn(with_counts(model, padding), drawn, options.custom)
    if options.batch > 1 and not options.custom and not options.expected:
        results = _singly(path, options, arrays, results, allowed)
        source += f", {options.batch} runs with a batch of 1"
    del model, drawn  # which hold another copy of the weights than ``prepared``
    warnings: list[str] = []
    if rounded is not None and not options.expected:
        results, prepared, warnings = _with_rounded_weights(rounded, arrays, options, results)
    tf32 = prepared is not None and options.precision == "tf32"
    coarse = _if_it_runs(round_factors(prepared) if tf32 else None, arrays, "none")
    prepared = prepared and reorder_sums(prepared)  # the same order on any machine
    other = _if_it_runs(prepared, arrays, "extended")
    if padding is not None:
        warnings += warn_of_counts(results, padding)
        names, runs = list(allowed), (results, other, coarse)
        results, other, coarse = (padded_results(run, padding, names) if run else run for run in runs)
        allowed |= dict.fromkeys(padding.counts, 0)
    limits = {n: _limits(x, allowed[n], other.get(n), coarse.get(n)) for n, x in results.items()}
    _write_all(directory, {spec.name: arrays[spec.name] for spec in model_inputs}, results, limits, source)
    return (*warnings, *(text for name, array in results.items() for text in _judge(name, array)))


def _with_rounded_weights(
    path: Path, arrays: Mapping[str, NDArray[Any]], options: ImportOptions, exact: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], onnx.ModelProto | None, list[str]]:
    """The outputs of the model with rounded weights, that model, and warnings where they are far off."""
    import onnx

    results, prepared, _ = run_custom(onnx.load(str(path)), arrays, options.custom)
    return results, prepared, [text for name in exact for text in _moved(name, exact[name], results[name])]


def _rounded(options: ImportOptions, model: Path | None) -> str | None:
    """What the bundle's tensors, or the factors of its products ("tf32"), are rounded to, where the reference
    has exact ones; ``model`` has rounded weights."""
    if options.precision == "fp16" or (model is not None and options.expected):
        return "float16"
    return "tf32" if options.precision == "tf32" else None


def _opened(path: Path, options: ImportOptions) -> onnx.ModelProto:
    if not options.expected:
        check_references(options.custom)
    model = open_model(path, options)
    declare(model, options.custom)
    return model


def _write_all(
    directory: Path,
    arrays: Mapping[str, NDArray[Any]],
    results: Mapping[str, NDArray[Any]],
    limits: Mapping[str, Mapping[str, float]],
    source: str,
) -> None:
    """Writes inputs, outputs and ``recorded.json``, which names what computed them."""
    directory.mkdir(parents=True, exist_ok=True)
    recorded: dict[str, Any] = {
        kind: [
            {**_write(directory / f"{kind[:-1]}_{index}.bin", name, array), **more.get(name, {})}
            for index, (name, array) in enumerate(values.items())
        ]
        for kind, values, more in (("inputs", arrays, {}), ("outputs", results, limits))
    }
    text = json.dumps({**recorded, "reference": source}, indent=1)
    (directory / "recorded.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _singly(
    path: Path,
    options: ImportOptions,
    arrays: Mapping[str, NDArray[Any]],
    results: Mapping[str, NDArray[Any]],
    allowed: Mapping[str, Tolerance | int],
) -> dict[str, NDArray[Any]]:
    """The results of a batch sample by sample; refuses a model whose samples do not stay apart in one."""
    import numpy as np

    shapes = {name: array.shape for name, array in results.items()}
    singly = per_sample_outputs(path, options, arrays, shapes, run_reference)
    for name, array in singly.items():
        limits = _limits(array, allowed[name], None)
        one, all_at_once = array.astype(np.float64), results[name].astype(np.float64)
        near = np.isclose(all_at_once, one, rtol=limits["rtol"], atol=limits["atol"], equal_nan=True)
        if not near.all():
            raise ModelError(
                f"--set-batch {options.batch}: the output {name!r} of a batch is not that of its samples "
                "one by one.",
                hint=f"{EXPORT_DYNAMIC}.",
            )
    return singly


def tolerances(model: onnx.ModelProto, rounded: str | None = None) -> dict[str, Tolerance | int]:
    """What each output may be off by: a :class:`Tolerance`, or a number of integer steps for integers; with
    ``rounded``, the exact model is the reference, and the bundle has its weights, all that lies between
    its kernels, or the factors of its products ("tf32") rounded to that type."""
    import onnx

    graph = infer_shapes(model).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    producers = {name: node for node in graph.node for name in node.output}
    floats = {
        onnx.TensorProto.FLOAT: "float32",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.BFLOAT16: "bfloat16",
        onnx.TensorProto.DOUBLE: "float64",
    }
    found: dict[str, Tolerance | int] = {}
    for value in graph.output:
        ancestors = _ancestors(value.name, producers)
        exact = {name for name in ancestors if name in producers and types.get(name) not in floats}
        ops = {producers[name].op_type for name in exact}
        kinds = {floats[types[name]] for name in ancestors if types.get(name) in floats}
        if ops & ROUNDING:
            kinds.add("quantised")
        if rounded is not None:
            kinds.add(rounded)
        if types.get(value.name) in floats:
            found[value.name] = TOLERANCES[max(kinds, key=_COARSENESS.index)]
        else:
            steps = ops & ROUNDING or storage_name(types.get(value.name, 0))
            found[value.name] = 1 if steps else 0
    return found


def _ancestors(name: str, producers: Mapping[str, onnx.NodeProto]) -> set[str]:
    todo, seen = [name], set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in producers:
            todo += [source for source in producers[value].input if source]
    return seen


def _write(file: Path, name: str, array: NDArray[Any]) -> dict[str, Any]:
    import numpy as np

    dense = np.ascontiguousarray(array)
    file.write_bytes(dense.astype(dense.dtype.newbyteorder("<")).tobytes())
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "file": file.name}


def _if_it_runs(
    model: onnx.ModelProto | None, arrays: Mapping[str, NDArray[Any]], level: Level
) -> dict[str, NDArray[Any]]:
    """The outputs of a changed model, with a level of ONNX Runtime's fusions; empty if there is none, or it
    cannot run it."""
    try:
        return {} if model is None else run_reference(model, arrays, level)
    except ModelError:
        return {}


def _limits(
    array: NDArray[Any],
    allowed: Tolerance | int,
    other: NDArray[Any] | None,
    coarse: NDArray[Any] | None = None,
) -> dict[str, float]:
    """What is recorded of an output; ``other`` is what another order makes of it, ``coarse`` what rounded
    factors do."""
    import numpy as np

    values = np.abs(array.astype(np.float64))
    finite = np.isfinite(values)
    largest = float(values[finite].max()) if finite.any() else 0.0
    if isinstance(allowed, int):
        return {"atol": float(allowed), "rtol": 0.0, "max_abs": largest}
    if allowed == TOLERANCES["tf32"] and coarse is None:  # a factor has as many bits as one in float16
        allowed = TOLERANCES["float16"]
    atol = max(allowed.floor, allowed.relative * largest)
    measured = ((other, CONDITION_FACTOR, CONDITION_LIMIT), (coarse, ROUNDING_FACTOR, ROUNDING_LIMIT))
    for results, factor, limit in measured:
        if results is not None and finite.any():
            changed = np.abs(results.astype(np.float64) - array.astype(np.float64))[finite]
            spread = factor * float(np.nan_to_num(changed, posinf=0.0).max())
            atol = max(atol, min(spread, limit * largest))
    # Two digits, so that the limits read well.
    return {"atol": float(f"{atol:.1e}"), "rtol": allowed.relative_each, "max_abs": largest}


def _moved(name: str, exact: NDArray[Any], rounded: NDArray[Any]) -> list[str]:
    """Says so if rounding the weights moves an output further than float16's own tolerance."""
    import numpy as np

    if exact.dtype.kind != "f":
        percent = 100 * float((exact != rounded).mean()) if exact.size else 0.0
        text = f"Weights in float16 change {percent:.2g} % of the elements of output {name!r}."
        return [text] if percent > 1 else []
    before, after = (np.nan_to_num(a.astype(np.float64), posinf=0.0, neginf=0.0) for a in (exact, rounded))
    largest, moved = (float(np.abs(a).max(initial=0.0)) for a in (before, after - before))
    if moved <= TOLERANCES["float16"].relative * largest:
        return []
    percent = 100 * moved / largest if largest else 100.0
    return [f"Weights in float16 move output {name!r} by {percent:.2g} % of its largest recorded value."]


def _judge(name: str, array: NDArray[Any]) -> list[str]:
    import numpy as np

    if not np.isfinite(array.astype(np.float64)).all():
        return [f"Output {name!r} of the recorded run is not finite everywhere: it proves little."]
    if array.size > 1 and (array == array.flat[0]).all():
        return [f"All elements of output {name!r} are equal in the recorded run: it proves little."]
    return []
