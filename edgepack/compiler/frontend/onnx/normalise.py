"""Brings a bound model into the form that TVM's importer reads well: constants folded, standard operators
only.

ONNX Runtime's basic optimiser does most of it (offline, about 0.4 s): it folds constants, shape arithmetic
and batch normalisation, and removes what does nothing. What it leaves, ``rewrites`` decomposes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx import rewrites, standard_evaluator
from edgepack.compiler.frontend.onnx.attribute_limits import check_attributes
from edgepack.compiler.frontend.onnx.byte_tables import with_byte_tables
from edgepack.compiler.frontend.onnx.classical.shapes import declare_results
from edgepack.compiler.frontend.onnx.constant_indices import check_constant_indices
from edgepack.compiler.frontend.onnx.custom import detached, reattached
from edgepack.compiler.frontend.onnx.extents import check_extents, stored_bytes
from edgepack.compiler.frontend.onnx.fixed_point import is_fixed_point
from edgepack.compiler.frontend.onnx.float16 import compute_in_float32
from edgepack.compiler.frontend.onnx.function_bodies import inlined, write_out
from edgepack.compiler.frontend.onnx.growing.apply import bound_growth
from edgepack.compiler.frontend.onnx.known_versions import for_onnxruntime
from edgepack.compiler.frontend.onnx.lighter_loops import lighten_loops
from edgepack.compiler.frontend.onnx.loop_lists import stack_lists
from edgepack.compiler.frontend.onnx.loop_ranks import keep_ranks
from edgepack.compiler.frontend.onnx.merged_padding import merge_padding
from edgepack.compiler.frontend.onnx.node_forms import check_forms
from edgepack.compiler.frontend.onnx.onnxruntime_session import optimise, value_types
from edgepack.compiler.frontend.onnx.quantisation_checks import check_quantisation
from edgepack.compiler.frontend.onnx.recurrent_loops.rewrite import recognise_layers
from edgepack.compiler.frontend.onnx.regions import Bounds, regions
from edgepack.compiler.frontend.onnx.rewrites.empty import check_empty_operands, settle_empty
from edgepack.compiler.frontend.onnx.rewrites.training import check_training, remove_dropout
from edgepack.compiler.frontend.onnx.rewrites.tree_ensembles import check_ensembles
from edgepack.compiler.frontend.onnx.sequences.expand import check_lists, expand_lists, without_identities
from edgepack.compiler.frontend.onnx.sequences.shapeless import without_wrong_shapes
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.compiler.frontend.onnx.storage_types import retype
from edgepack.compiler.frontend.onnx.support import check_known, is_importable, is_of_lists, is_refused
from edgepack.compiler.frontend.onnx.trip_count import count_trips
from edgepack.compiler.frontend.onnx.unread_channels import drop_unread_channels
from edgepack.compiler.frontend.onnx.unstacked import pick_before_stacking
from edgepack.errors import ModelError
from edgepack.plan.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["fold_constants", "normalise", "unrolled"]

#: Optimisers of ONNX Runtime's basic level that hinder fusion here: MatMul and Add of rank 3 would become a
#: Gemm of rank 2 between two reshapes, which keep the epilogue (GELU, residual) apart from the product. A
#: Dropout of training would be one of inference (``rewrites/training.py``).
DISABLED = ("MatMulAddFusion", "EliminateDropout")


def normalise(
    model: onnx.ModelProto, limits: Limits = DEFAULT_LIMITS, rooms: Mapping[str, int] = MappingProxyType({})
) -> onnx.ModelProto:
    """An equivalent model for the importer; inputs and outputs keep their names, order and types.

    Args:
        model: all input shapes static (:func:`edgepack.compiler.frontend.onnx.binding.bind`), weights loaded.
            One with operators of fixed-point numbers, of which ONNX Runtime knows nothing, has its constants
            folded, and the types and shapes of all values declared. Channels of it that no layer reads are
            left out.
        limits: how much may become of it.
        rooms: those of :class:`edgepack.compiler.frontend.onnx.regions.Bounds`.

    Raises:
        ModelError: ONNX Runtime refuses the model.
    """
    inner, bounds = partial(normalise, limits=limits), Bounds(limits.trips, rooms)
    if is_fixed_point(model):
        count_trips(model)
        model, inside = regions(model, inner, lambda folded: folded, bounds)
        bare = _with_types(detached(model, inside), model) if inside else model
        drop_unread_channels(bare)
        normal = _rewritten(bare)
        return reattached(normal, model, inside) if inside else normal
    model = unrolled(model, limits=limits)
    growth = bound_growth(model, limits.trips)
    if growth.changed:
        model, bounds = _settled(model, limits), Bounds(limits.trips, {**rooms, **growth.trips})
    check_quantisation(model)  # of what was in other graphs, and of constants that were folded
    check_lists(model, limits)
    model, inside = regions(model, inner, partial(_settled_lists, limits=limits), bounds)
    if not inside:
        return _rewritten(_typed(model))
    bare = _folded(detached(model, inside), limits)
    return reattached(_rewritten(_typed(bare)), model, inside)


def _with_types(part: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """A part of a model, in place, with what the whole declares of its values."""
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    outputs = {value.name for value in part.graph.output}
    for value in part.graph.output:
        value.CopyFrom(declared.get(value.name, value))
    computed = (name for node in part.graph.node for name in node.output)
    part.graph.value_info.extend(declared[n] for n in computed if n in declared and n not in outputs)
    return part


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with what ONNX Runtime alone knows of the types of its values, in place."""
    import onnx

    if any(not onnx.defs.has(node.op_type, node.domain) for node in model.graph.node):
        model.graph.value_info.extend(_value_types(model))
    return model


def _rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, whose constants are folded, of operators that the importer reads well; changed in place."""
    declare_results(model)
    settle_empty(model)
    check_constant_indices(model)
    model = rewrites.apply(model)
    settle_empty(model)  # of operators that rewrites make of others
    check_empty_operands(model)
    check_constant_indices(model)  # of operators that rewrites make of others
    retype(model)
    model = _with_shapes(with_byte_tables(model))
    check_forms(model)
    return model


def unrolled(
    model: onnx.ModelProto, *, widen: bool = True, limits: Limits = DEFAULT_LIMITS
) -> onnx.ModelProto:
    """The model without functions, its constants folded, and without control flow but for what is known at
    run time only, and long loops.

    Args:
        widen: compute float16 and bfloat16 in float32.
        limits: how much may become of the model.
    """
    check_attributes(model)
    model = _inline_functions(model)
    check_known(model, rewrites.REWRITES)
    check_ensembles(model)
    check_training(model)
    check_quantisation(model)
    _freeze_initializers(model)
    model = _settled(compute_in_float32(model) if widen else model, limits)
    check_constant_indices(model)
    return model


def _settled(model: onnx.ModelProto, limits: Limits) -> onnx.ModelProto:
    """The model, its constants folded, without the control flow that is known."""
    remove_dropout(model)
    without_wrong_shapes(model)
    expand_lists(model, limits)  # ONNX Runtime makes a loop of a SequenceMap
    model = _folded(model, limits)
    while _step(model, limits):
        model = _folded(model, limits)
    return model


def _step(model: onnx.ModelProto, limits: Limits) -> bool:
    """Whether something was changed, in place, of which more constants follow; the first that there is."""
    return (
        settle_empty(model)
        or remove_dropout(model)
        or keep_ranks(model)
        or count_trips(model)
        or expand_lists(model, limits)
        or stack_lists(model)
        or expand_lists(model, limits, choose="parts")
        or recognise_layers(model)
        or _written_out(model, limits)
        or expand_lists(model, limits, choose="all")
        or lighten_loops(model)
    )


def _written_out(model: onnx.ModelProto, limits: Limits) -> bool:
    """Whether control flow was written out, in place; then lists that go through it are taken out before ONNX
    Runtime sees the model, for an operator may take them in other opsets only."""
    if not rewrites.unroll(model):
        return False
    without_identities(model)
    expand_lists(model, limits)
    pick_before_stacking(model)
    return True


def _settled_lists(model: onnx.ModelProto, limits: Limits) -> onnx.ModelProto:
    """The model as :func:`_settled` leaves it, without lists but for those of which more will be known."""
    model = _settled(model, limits)
    check_lists(model, limits)
    return model


def _folded(model: onnx.ModelProto, limits: Limits) -> onnx.ModelProto:
    check_extents(model, limits)
    model = fold_constants(model, limits)
    if any(node.op_type in ("Shape", "Constant") for node in model.graph.node):
        model = fold_constants(
            model, limits
        )  # functions are inlined after constants are folded: fold theirs too
    check_extents(model, limits)  # of sizes that were constants to be folded
    return merge_padding(model)


def fold_constants(model: onnx.ModelProto, limits: Limits = DEFAULT_LIMITS) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic optimiser: standard operators, constants folded.

    What ONNX Runtime refuses though the standard allows it (a newer opset, an element type that it has no
    kernel for) is folded by the standard's own evaluator. What would take more than
    ``limits`` allow stays as it is.

    Raises:
        ModelError: the model is not valid.
    """
    largest = limits.constants(stored_bytes(model))
    try:
        return optimise(model, disabled=DISABLED, largest=largest)
    except Exception as error:  # onnxruntime's errors share no base class of their own
        refusal = error
    _check_valid(model, refusal)
    try:
        return optimise(for_onnxruntime(model), disabled=DISABLED, largest=largest)
    except Exception:  # as above
        return standard_evaluator.fold(model)


def _check_valid(model: onnx.ModelProto, refusal: Exception) -> None:
    """Raises ModelError with what ONNX Runtime says of a model that ONNX's own checker refuses as well."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        for value in inferred.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()  # the checker wants one, and binding removed it
        onnx.checker.check_model(inferred)
    except Exception as error:  # the checker's, or that of inference, or of protocol buffers above 2 GB
        raise _refused(refusal) from error


def _value_types(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    try:
        return value_types(model)
    except Exception as error:  # as above
        raise _refused(error) from error


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, its values and outputs annotated, in place."""
    inferred = infer_shapes(model).graph
    del model.graph.value_info[:], model.graph.output[:]
    model.graph.value_info.extend(inferred.value_info)
    model.graph.output.extend(inferred.output)
    return model


def _inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inlines the model's own functions, and standard operators that the importer lacks but ONNX defines."""
    model = inlined(model)

    def lacking(node: onnx.NodeProto) -> bool:
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        known = is_importable(node) or is_of_lists(node) or key in rewrites.REWRITES
        return not known and not is_refused(node)

    return write_out(model, lacking)


def _freeze_initializers(model: onnx.ModelProto) -> None:
    """Makes initializers that are listed as inputs (all are, up to IR version 3) constants, in place."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)


def _refused(error: Exception) -> ModelError:
    text = str(error).split(" : ", 2)[-1].strip()
    return ModelError(
        "ONNX Runtime refuses the model.",
        hint="Check the model with onnx.checker.check_model and run it with onnxruntime.",
        detail=text,
    )
