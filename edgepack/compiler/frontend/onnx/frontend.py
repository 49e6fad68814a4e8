"""The frontend for ONNX: reads, checks and normalises a file, imports it as Relax with static shapes."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import Float16Weights, ImportedModel, ImportOptions
from edgepack.compiler.frontend.onnx import reference, summary
from edgepack.compiler.frontend.onnx.binding import bind, input_dtype, model_inputs
from edgepack.compiler.frontend.onnx.bounded_shapes.apply import Padding
from edgepack.compiler.frontend.onnx.bounded_shapes.prepare import check_combinations, with_bounded_shapes
from edgepack.compiler.frontend.onnx.bounded_shapes.suggest import check_sizes
from edgepack.compiler.frontend.onnx.calibration import calibrate, calibration_ranges
from edgepack.compiler.frontend.onnx.classical.texts import with_numbers
from edgepack.compiler.frontend.onnx.compare.command import compare, draw
from edgepack.compiler.frontend.onnx.converters import convert
from edgepack.compiler.frontend.onnx.custom import (
    Detachable,
    custom_nodes,
    declare,
    detached,
    reattached,
)
from edgepack.compiler.frontend.onnx.cut import declared_values, open_model
from edgepack.compiler.frontend.onnx.error_attribution import attributed_errors
from edgepack.compiler.frontend.onnx.external_data import read_tensor, save_with_data
from edgepack.compiler.frontend.onnx.float16 import has_float16
from edgepack.compiler.frontend.onnx.float_mode import flushed_denormals
from edgepack.compiler.frontend.onnx.import_failures import ImportFailures, checked_result, output_specs
from edgepack.compiler.frontend.onnx.inner_tensors import inner_tensors
from edgepack.compiler.frontend.onnx.model_file import default_opset, external_files, read_model
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.quantise.command import quantise
from edgepack.compiler.frontend.onnx.region_import import with_names
from edgepack.compiler.frontend.onnx.run_time_operands import explained_operands
from edgepack.compiler.frontend.onnx.signature_quantisation import signature_quantisation, with_quantisation
from edgepack.compiler.frontend.onnx.standard_regions import with_standard_regions
from edgepack.compiler.frontend.onnx.static_results import check_static
from edgepack.compiler.frontend.onnx.suggest_cut import suggest_cuts
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, check_operators, node_name
from edgepack.compiler.frontend.onnx.weights import round_weights
from edgepack.compiler.frontend.recorded import RECORDED
from edgepack.errors import EdgepackError, ModelError
from edgepack.plan.custom import CustomOperator
from edgepack.plan.layers import InnerTensor
from edgepack.plan.limits import DEFAULT_LIMITS, Limits
from edgepack.plan.model_summary import ModelSummary
from edgepack.plan.types import LinearQuantisation, Signature, TensorSpec

if TYPE_CHECKING:
    import onnx
    import tvm

__all__ = [
    "compare",
    "draw",
    "import_file",
    "import_model",
    "load",
    "model_files",
    "prepare",
    "quantise",
    "record",
    "summarise",
    "tensors_inside",
]

#: What :func:`prepare` leaves: the normalised model, its large weights, and its inputs.
_MODEL, _WEIGHTS, _SIGNATURE = "model.onnx", "weights.bin", "signature.json"


def model_files(model: Path) -> tuple[Path, ...]:
    """The ONNX file and its external data files, sorted. Raises ModelError if it cannot be read."""
    return (model, *external_files(model))


def summarise(model: Path) -> ModelSummary:
    """What is in an ONNX file. Raises ModelError if it cannot be read."""
    with attributed_errors(model):
        return summary.summarise(model)


def prepare(model: Path, options: ImportOptions, folder: Path) -> tuple[str, ...]:
    """Read, check, bind and normalise the model; :func:`load` takes what is then in ``folder``. Returns
    warnings.

    Raises:
        ModelError: the file cannot be read, or the model not be compiled.
        ConfigError: ``options`` do not fit the model.
    """
    with attributed_errors(model):
        return _prepare(model, options, folder)


def _prepare(model: Path, options: ImportOptions, folder: Path) -> tuple[str, ...]:
    check_combinations(options)
    batches: list[str] = []
    bound = open_model(model, options, batches)
    declare(bound, options.custom)
    try:
        normal, inputs, padding = _normalised(bound, options.custom, options.maxima, options.limits)
    except RefusedNodesError as error:
        bound.graph.value_info.extend(declared_values(model, options))  # behind a node that nobody knows
        cuts = suggest_cuts(bound, error.tensors, partial(_refused_in, custom=options.custom))
        raise _with_cuts(error, cuts, bound) from error
    float16_weights = _float16_weights(bound, options)
    kept = round_weights(normal) if float16_weights != "never" else ()
    save_with_data(normal, folder / _MODEL, _WEIGHTS)  # protocol buffers end at 2 GB
    tensors = [name for node in bound.graph.node for name in node.output]
    signature = {
        "inputs": [asdict(spec) for spec in inputs],
        "tensors": tensors,
        "float16_weights": float16_weights,
        "padding": None if padding is None else asdict(padding),
        "quantised": {name: asdict(one) for name, one in signature_quantisation(bound).items()},
    }
    (folder / _SIGNATURE).write_text(json.dumps(signature, indent=1), encoding="utf-8", newline="\n")
    return (*batches, *kept)


def record(
    model: Path, options: ImportOptions, folder: Path, *, seed: int, inputs: Mapping[str, Path]
) -> tuple[str, ...]:
    """Record inputs and what ONNX Runtime makes of them in ``folder / "recorded"``; returns warnings.

    Raises:
        ConfigError: a given input does not fit.
        ModelError: ONNX Runtime cannot run the model.
    """
    import onnx

    signature = _signature(folder)
    # A float16 model's own arithmetic is its reference, whose tolerance covers rounded weights.
    rounded = folder / _MODEL if signature["float16_weights"] == "always" else None
    with attributed_errors(model), flushed_denormals(not options.strict_math):
        warned = reference.record(
            model,
            _inputs(folder),
            options,
            seed=seed,
            inputs=inputs,
            directory=folder / RECORDED,
            changed=reference.Changed(rounded, _padding(signature)),
        )
        if options.precision == "fp16":
            warned += calibrate(with_standard_regions(onnx.load(str(folder / _MODEL))), folder)
    return warned


def tensors_inside(folder: Path) -> list[InnerTensor]:
    """What can be looked at between the kernels of a model that :func:`prepare` left in ``folder``."""
    return inner_tensors(folder / _MODEL, _signature(folder)["tensors"])


def load(folder: Path) -> ImportedModel:
    """The Relax module of what :func:`prepare` left in ``folder``; ModelError if TVM cannot import it."""
    import onnx

    normal = onnx.load(str(folder / _MODEL), load_external_data=False)
    try:
        imported = _imported(normal, _inputs(folder), folder)
        noted, calibration = _signature(folder), calibration_ranges(folder)
        signature = _with_quantisation(imported.signature, noted["quantised"])
        weights = noted["float16_weights"]
        return replace(imported, signature=signature, float16_weights=weights, calibration=calibration)
    except RefusedNodesError as error:
        names = set(_signature(folder)["tensors"])
        cuts = suggest_cuts(normal, error.tensors, partial(_not_imported_in, folder=folder), names)
        raise _with_cuts(error, cuts, normal) from error


def import_file(path: Path, *, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> ImportedModel:
    """The Relax module of an ONNX file.

    Args:
        path: an ``.onnx`` file; external data lies beside it.
        shapes: whole shapes of inputs, by input name.
        dims: sizes of named dimensions.

    Raises:
        ModelError: the file cannot be read, or the model not be compiled.
        ConfigError: ``shapes`` or ``dims`` do not fit the model.
    """
    model = read_model(path)
    with_numbers(model)
    bind(model, shapes=shapes, dims=dims)
    return import_model(model)


def import_model(model: onnx.ModelProto, maxima: Mapping[str, int] | None = None) -> ImportedModel:
    """The Relax module of a model whose inputs all have static shapes; ``maxima`` as in ``ImportOptions``."""
    return _imported(*_normalised(model, (), maxima)[:2])


def _normalised(
    model: onnx.ModelProto,
    custom: Sequence[CustomOperator] = (),
    maxima: Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[onnx.ModelProto, tuple[TensorSpec, ...], Padding | None]:
    """The model as the importer takes it, its inputs, and with ``maxima`` what its outputs are."""
    if not model.graph.output:
        raise ModelError(
            "The model's graph has no outputs: there is nothing to compute.", hint="Export it again."
        )
    inputs = model_inputs(model)
    for value in model.graph.output:
        if value.type.WhichOneof("value") is not None:
            input_dtype(value)
    nodes: Sequence[Detachable] = custom_nodes(model, custom)
    padding, rooms = None, dict(maxima or {})
    if maxima:
        with explained_operands(model):
            model, nodes, padding = with_bounded_shapes(model, maxima, limits)
        rooms |= padding.trips
    with explained_operands(model):
        normal = _normal(model, nodes, limits, rooms)
        check_static(normal)
    specs = tuple(
        TensorSpec(i.name, i.dtype, tuple(d for d in i.shape or () if isinstance(d, int))) for i in inputs
    )
    return normal, specs, padding


def _padding(signature: Mapping[str, Any]) -> Padding | None:
    """What :func:`prepare` noted of the outputs of a model with maxima."""
    found = signature["padding"]
    return None if found is None else Padding.from_json(found)


def _refused_in(part: onnx.ModelProto, custom: Sequence[CustomOperator]) -> Sequence[str]:
    """Tensors of nodes of a part of the model that cannot be compiled, as far as it is seen without TVM."""
    bind(part, shapes={}, dims={})
    declare(part, custom)
    try:
        _normalised(part, custom)
    except RefusedNodesError as error:
        return error.tensors
    return ()


def _not_imported_in(part: onnx.ModelProto, folder: Path) -> Sequence[str]:
    """Tensors of nodes of a part of a normalised model that TVM cannot import."""
    try:
        _convert(part, folder, [])
    except RefusedNodesError as error:
        return error.tensors
    return ()


def _with_cuts(
    error: RefusedNodesError, cuts: Sequence[Mapping[str, Any]], model: onnx.ModelProto
) -> ModelError:
    refused = error.refused or [
        {"operator": node.op_type, "nodes": [node_name(node, index)], "reason": error.message}
        for index, node in enumerate(model.graph.node)
        if not set(error.tensors).isdisjoint(node.output)
    ]
    said = {"hint": error.hint, "detail": error.detail}
    return ModelError(error.message, **said, refused=refused, cuts=cuts)


def _normal(
    model: onnx.ModelProto, nodes: Sequence[Detachable], limits: Limits, rooms: Mapping[str, int]
) -> onnx.ModelProto:
    """The normalised model; what the user computes in C is not looked at."""
    bare = detached(model, nodes) if nodes else model
    normal = normalise(bare, limits, rooms) if bare.graph.node else bare
    check_sizes(normal)
    check_operators(normal)
    return reattached(normal, model, nodes) if nodes else normal


def _imported(
    normal: onnx.ModelProto, inputs: tuple[TensorSpec, ...], folder: Path = Path()
) -> ImportedModel:
    import onnx

    nodes: list[str] = []
    graphs = {
        name: _convert(onnx.helper.make_model(graph, opset_imports=list(normal.opset_import)), folder, nodes)
        for name, graph in with_names(normal).items()
    }
    with explained_operands(normal):
        module = _convert(normal, folder, nodes)
        outputs = output_specs(module, [value.name for value in normal.graph.output])
    operators = dict(sorted(Counter(n.op_type for n in normal.graph.node).items()))
    signature = Signature(inputs, outputs, tuple(nodes))
    return ImportedModel(module, signature, operators, layout="NCHW", graphs=graphs)


def _signature(folder: Path) -> dict[str, Any]:
    """What :func:`prepare` noted of the model."""
    signature: dict[str, Any] = json.loads((folder / _SIGNATURE).read_text(encoding="utf-8"))
    return signature


def _inputs(folder: Path) -> tuple[TensorSpec, ...]:
    inputs = _signature(folder)["inputs"]
    return tuple(TensorSpec(i["name"], i["dtype"], tuple(i["shape"])) for i in inputs)


def _with_quantisation(signature: Signature, quantised: Mapping[str, Any]) -> Signature:
    """A signature with what :func:`prepare` noted of the integers of inputs and outputs."""
    known = {name: LinearQuantisation(**one) for name, one in quantised.items()}
    inputs, outputs = (with_quantisation(specs, known) for specs in (signature.inputs, signature.outputs))
    return replace(signature, inputs=inputs, outputs=outputs)


def _float16_weights(bound: onnx.ModelProto, options: ImportOptions) -> Float16Weights:
    """How weights are stored: as the user says, else as the model has them where that costs no time."""
    if options.weights is not None:
        return "always" if options.weights == "float16" else "never"
    return "where it is fast" if has_float16(bound.graph) else "never"


def _convert(model: onnx.ModelProto, folder: Path, names: list[str]) -> tvm.IRModule:
    """The Relax module.

    Args:
        folder: with weights that are not in the model.
        names: of the nodes that its variables ``n<index>_`` stand for, which are added.

    Raises:
        RefusedNodesError: names all nodes that cannot be imported, as far as those before them have shapes.
    """
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    failures = ImportFailures(model)

    class Importer(ONNXGraphImporter):  # type: ignore[misc]
        """Asks our own converters first, and goes on behind a node that fails."""

        def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
            """Checks nothing: ``check_operators`` did, which also knows our own converters."""

        def _parse_array(self, tensor_proto: onnx.TensorProto) -> tvm.runtime.Tensor:
            array = read_tensor(tensor_proto, folder)
            return tvm.runtime.tensor(array.reshape(tuple(tensor_proto.dims)))

        def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
            name = attrs["tvm_custom"]["name"]
            failures.enter(op_name, name)
            try:
                value = convert(self.bb, op_name, inputs, attrs, opset)
                if value is None:
                    value = super()._convert_operator(op_name, inputs, attrs, opset)
            except EdgepackError as error:
                raise failures.of_node(error) from None
            except Exception as error:  # the converters raise what they happen to raise
                failures.note(error)
                if (instead := failures.stand_in(self.bb)) is None:
                    raise
                return instead
            if isinstance(value, relax.Call | relax.Var) and name:
                value = self.bb.emit(value, name_hint=f"n{len(names)}_")
                names.append(name)
            elif isinstance(value, relax.Call):
                value = self.bb.normalize(value)  # the next converter asks for its shape
            return checked_result(op_name, name, value)

    importer = Importer({}, "float32")
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importer.from_onnx(model.graph, default_opset(model))
    except EdgepackError:
        raise
    except Exception as error:
        raise failures.refusal(error) from error
    if failures:
        raise failures.refusal(None)
    return module
