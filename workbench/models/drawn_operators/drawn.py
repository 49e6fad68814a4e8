"""The operator of a seed, and what ONNX's own evaluator and ONNX Runtime compute of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from workbench.models.drawn_operators.contributed import CONTRIBUTED
from workbench.models.drawn_operators.elementwise import ELEMENTWISE
from workbench.models.drawn_operators.layers import LAYERS
from workbench.models.drawn_operators.moves import MOVES
from workbench.models.drawn_operators.node import NodeDraw, Operator, opsets_of
from workbench.models.drawn_operators.reductions import REDUCTIONS
from workbench.models.evaluate import run_onnxruntime

__all__ = ["RECIPES", "drawn", "references"]

RECIPES = {**ELEMENTWISE, **REDUCTIONS, **MOVES, **LAYERS, **CONTRIBUTED}


def drawn(seed: int, operators: Sequence[str] = ()) -> Operator:
    """A model of one operator.

    Args:
        operators: those to draw from, with their domain if it is not the standard one; none for all.
    """
    rng = np.random.default_rng(seed)
    names = sorted(operators or RECIPES)
    name = names[int(rng.integers(len(names)))]
    domain, _, operator = name.rpartition(".")
    first, last = opsets_of(operator, domain)[int(rng.integers(len(opsets_of(operator, domain))))]
    opset = int(rng.integers(first, last + 1))
    return RECIPES[name](NodeDraw(seed, operator, rng, opset, domain))


def references(operator: Operator) -> dict[str, list[np.ndarray]]:
    """What each computes, by name; one that cannot is not among them: it has no such operator, type or
    form."""
    found = {}
    with np.errstate(all="ignore"):
        for name, run in (("onnx", _by_onnx), ("onnxruntime", _by_onnxruntime)):
            try:
                found[name] = run(operator)
            except Exception:
                continue
    return found


def _by_onnx(operator: Operator) -> list[np.ndarray]:
    results = ReferenceEvaluator(operator.model).run(None, dict(operator.inputs))
    return [np.asarray(array) for array in results]


def _by_onnxruntime(operator: Operator) -> list[np.ndarray]:
    model = onnx.ModelProto()
    model.CopyFrom(operator.model)
    return run_onnxruntime(model, operator.inputs)
