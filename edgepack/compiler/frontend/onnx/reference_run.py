"""Runs a model for what it must compute: with ONNX Runtime, unoptimised, or with ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.custom import custom_nodes
from edgepack.compiler.frontend.onnx.custom_reference import run_with_custom
from edgepack.compiler.frontend.onnx.known_versions import for_onnxruntime
from edgepack.compiler.frontend.onnx.machine_independent import machine_independent
from edgepack.compiler.frontend.onnx.onnxruntime_session import Level, create_session
from edgepack.compiler.frontend.onnx.rewrites.empty import as_the_standard_says
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.onnx.storage_types import as_bytes, from_bytes, has_storage_types
from edgepack.errors import ModelError
from edgepack.plan.custom import CustomOperator

if TYPE_CHECKING:
    import onnx
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["run_custom", "run_drawn", "run_each", "run_reference"]


def run_custom(
    model: onnx.ModelProto, arrays: Mapping[str, NDArray[Any]], custom: Sequence[CustomOperator]
) -> tuple[dict[str, NDArray[Any]], onnx.ModelProto | None, str]:
    """Does what :func:`run_whatever_serves` does, for a model that may have custom operators."""
    nodes = custom_nodes(model, custom)
    if not nodes:
        return run_whatever_serves(model, arrays)
    sources: dict[str, None] = {}

    def run(part: onnx.ModelProto, given: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        results, _, source = run_whatever_serves(part, given)
        sources[source] = None
        return results

    outputs = run_with_custom(model, arrays, nodes, run)
    files = sorted({Path(one.operator.reference).name for one in nodes})
    return outputs, None, ", ".join([*sources, *files])


def run_drawn(
    model: onnx.ModelProto, drawn: Iterable[dict[str, NDArray[Any]]], custom: Sequence[CustomOperator]
) -> tuple[dict[str, NDArray[Any]], tuple[dict[str, NDArray[Any]], onnx.ModelProto | None, str]]:
    """The first inputs that the model runs on, and what :func:`run_custom` returns for them.

    Raises:
        ModelError: it runs on none of them; the error is that of the first ones.
    """
    failure: ModelError | None = None
    for arrays in drawn:
        try:
            return arrays, run_custom(model, arrays, custom)
        except ModelError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def run_reference(
    model: onnx.ModelProto, arrays: Mapping[str, NDArray[Any]], level: Level = "none"
) -> dict[str, NDArray[Any]]:
    """Outputs by name, in the graph's order; ONNX Runtime on the CPU, by default without graph optimisations.

    Raises:
        ModelError: ONNX Runtime cannot run the model on these inputs.
    """
    return run_each(model, [arrays], level)[0]


def run_each(
    model: onnx.ModelProto, runs: Iterable[Mapping[str, NDArray[Any]]], level: Level = "none"
) -> list[dict[str, NDArray[Any]]]:
    """What :func:`run_reference` returns for each of several inputs, by one session."""
    runs = list(runs)
    try:
        session = create_session(model, level)
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise _cannot_run(error, runs[0]) from error
    return [_run_session(session, model, arrays) for arrays in runs]


def _run_session(
    session: onnxruntime.InferenceSession, model: onnx.ModelProto, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    import numpy as np

    names = [value.name for value in model.graph.output]
    try:
        results = session.run(names, dict(arrays))
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise _cannot_run(error, arrays) from error
    return {name: np.asarray(array) for name, array in zip(names, results, strict=True)}


def _unsupported(error: ModelError) -> bool:
    """Whether ONNX Runtime lacks something, and the inputs may be right."""
    return any(text in error.detail.lower() for text in ("not supported", "not implemented"))


def _cannot_run(error: Exception, arrays: Mapping[str, NDArray[Any]]) -> ModelError:
    return ModelError(
        "ONNX Runtime cannot run the model, so there is nothing to compare with.",
        hint="Give inputs that it can run on with --input NAME=FILE.npy." if arrays else "",
        detail=str(error).strip(),
    )


def run_whatever_serves(
    model: onnx.ModelProto, arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], onnx.ModelProto | None, str]:
    """The outputs, the model that ONNX Runtime ran (None if it cannot), and the name of what ran it.

    ONNX's own evaluator serves what ONNX Runtime makes no session of: a newer opset, a type without kernel;
    what a kernel of its refuses when it runs, for it has only a part of the operator; and what has inputs or
    outputs of bfloat16, which it neither takes from NumPy nor gives.
    """
    import onnx
    import onnxruntime

    reference = f"onnxruntime {onnxruntime.__version__}"
    failure: Exception | None = None
    ends = (*model.graph.input, *model.graph.output)
    # NumPy has none of these types, and ONNX Runtime takes NumPy's arrays only.
    other = has_storage_types(model) or any(
        value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 for value in ends
    )
    for known in () if other else (False, True):
        try:
            # Once for both runs: it is a copy of all weights.
            known_there = as_the_standard_says(for_onnxruntime(model) if known else model)
            prepared = machine_independent(known_there)
            session = create_session(prepared)
        except Exception as error:  # as above
            failure = failure or error
            continue
        try:
            return _run_session(session, prepared, arrays), prepared, reference
        except ModelError as error:
            if not _unsupported(error):
                raise
            failure = error
            break
    elements = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    try:
        results = evaluate(model, {name: from_bytes(a, elements.get(name, 0)) for name, a in arrays.items()})
    except Exception as error:  # the evaluator's have no base class either
        raise (
            failure if isinstance(failure, ModelError) else _cannot_run(failure or error, arrays)
        ) from error
    results = [as_bytes(result) for result in results]
    names = [value.name for value in model.graph.output]
    return dict(zip(names, results, strict=True)), None, f"onnx {onnx.__version__}"
