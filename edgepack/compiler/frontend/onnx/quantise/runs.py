"""Runs a model with tensors inside it as outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.compiler.memory import ran_out
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["runner"]

#: Runs a model on inputs by name; the arrays of the tensors by theirs.
Run = Callable[[Mapping[str, "NDArray[Any]"]], "dict[str, NDArray[Any]]"]


def runner(model: onnx.ModelProto, tensors: Iterable[str], what: str = "the model") -> Run:
    """What runs a model for the values of some of its tensors.

    Args:
        model: all input shapes static.
        tensors: names of inputs, outputs and what is computed in between.
        what: is run, for messages.

    Raises:
        ModelError: ONNX Runtime refuses the model; what is returned raises it where a run fails.
    """
    import numpy as np
    import onnx

    names = list(dict.fromkeys(tensors))
    given = {value.name for value in model.graph.input}
    computed = [name for name in names if name not in given]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    own = {value.name for value in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed if name not in own)
    try:
        session = create_session(shown)
    except Exception as error:  # onnxruntime's errors share no base class of their own
        if ran_out(error):
            raise
        raise _cannot_run(error, what) from error

    def run(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        try:
            results = session.run(computed, dict(arrays)) if computed else []
        except Exception as error:  # as above
            if ran_out(error):
                raise
            raise _cannot_run(error, what) from error
        found = dict(zip(computed, map(np.asarray, results), strict=True))
        return {name: found[name] if name in found else np.asarray(arrays[name]) for name in names}

    return run


def _cannot_run(error: Exception, what: str) -> ModelError:
    return ModelError(
        f"ONNX Runtime cannot run {what} on these data.",
        hint="Look whether the data are such as the model takes: indices in range, masks of 0 and 1.",
        detail=str(error).strip(),
    )
