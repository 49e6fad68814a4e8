"""The operator of a seed, and its right results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from workbench.models.drawn_operators.elementwise import ELEMENTWISE
from workbench.models.drawn_operators.layers import LAYERS
from workbench.models.drawn_operators.moves import MOVES
from workbench.models.drawn_operators.node import NodeDraw, Operator, opsets_of
from workbench.models.drawn_operators.reductions import REDUCTIONS
from workbench.models.evaluate import run_onnxruntime

__all__ = ["RECIPES", "agrees", "drawn", "references"]

RECIPES = {**ELEMENTWISE, **REDUCTIONS, **MOVES, **LAYERS}

#: Relative tolerance by type, and the absolute one in units of the largest finite result: functions are
#: approximated to a few units in the last place, sums are added up in another order.
_TOLERANCES = {"float16": (4e-3, 2e-3), "float32": (1e-4, 2e-6), "float64": (1e-4, 2e-6)}


def drawn(seed: int, operators: Sequence[str] = ()) -> Operator:
    """A model of one operator.

    Args:
        operators: those to draw from; none for all.
    """
    rng = np.random.default_rng(seed)
    names = sorted(operators or RECIPES)
    name = names[int(rng.integers(len(names)))]
    first, last = opsets_of(name)[int(rng.integers(len(opsets_of(name))))]
    return RECIPES[name](NodeDraw(seed, name, rng, int(rng.integers(first, last + 1))))


def references(operator: Operator) -> dict[str, list[np.ndarray]]:
    """What ONNX's own evaluator and ONNX Runtime compute, by name; one that cannot is not among them."""
    found = {}
    with np.errstate(all="ignore"):
        for name, run in (("onnx", _by_onnx), ("onnxruntime", _by_onnxruntime)):
            try:
                found[name] = run(operator)
            except Exception:  # noqa: S112 - they have no operator, no type, or no such form of it
                continue
    return found


def _by_onnx(operator: Operator) -> list[np.ndarray]:
    results = ReferenceEvaluator(operator.model).run(None, dict(operator.inputs))
    return [np.asarray(array) for array in results]


def _by_onnxruntime(operator: Operator) -> list[np.ndarray]:
    model = onnx.ModelProto()
    model.CopyFrom(operator.model)
    return run_onnxruntime(model, operator.inputs)


def agrees(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    """Whether results have the same types, shapes and, within rounding, numbers."""
    return all(map(_same, found, wanted)) and len(found) == len(wanted)


def _same(found: np.ndarray, wanted: np.ndarray) -> bool:
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return False
    if wanted.dtype.kind != "f":
        return np.array_equal(found, wanted)
    relative, floor = _TOLERANCES[wanted.dtype.name]
    sizes = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    largest = sizes[sizes < 1e4].max(initial=0)
    return np.allclose(found, wanted, rtol=relative, atol=floor * largest + 1e-38, equal_nan=True)
