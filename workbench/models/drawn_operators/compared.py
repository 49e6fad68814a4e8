"""Drawn operators, compiled many at a time, beside what the references compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from edgepack.compiler.frontend.onnx.error_attribution import attributed_errors
from edgepack.errors import EdgepackError
from workbench.compiled import Compiled, plan_of
from workbench.models.drawn_operators.node import Operator

__all__ = ["Comparison", "agrees", "compare"]

#: Relative tolerance by type, and the absolute one in units of the largest result that is no outlier:
#: functions are approximated to a few units in the last place, sums are added up in another order.
_TOLERANCES = {"float16": (4e-3, 2e-3), "float32": (1e-4, 2e-6), "float64": (1e-4, 2e-6)}

#: Numbers from which on a result is an outlier.
_OUTLIER = 1e4

#: Words of the compiler underneath, which no sentence to a user has.
_INSIDE = ("TVM", "relax", "tir.", "ir.Op")

#: What is smaller is not compared: functions are exact to that much of 1.
_LEAST = 1e-7

Results = Sequence[np.ndarray]


@dataclass
class Comparison:
    """What became of drawn operators.

    Attributes:
        wrong: by seed, in words: other results than each reference's, a crash, a refusal in words of the
            compiler underneath.
        refused: by seed the sentence of those that are refused, which no reference refuses.
        counts: of operators by what became of them: ``right``, ``wrong``, ``refused``, ``as NAME`` where the
            references differ, ``no reference``.
    """

    wrong: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, operator: Operator, what: str, text: str = "") -> None:
        self.counts[what] += 1
        if what == "wrong":
            self.wrong[operator.seed] = f"{operator}: {text}"
        if what == "refused":
            self.refused[operator.seed] = f"{operator}: {text}"


def compare(
    operators: Iterable[tuple[Operator, Mapping[str, Results]]], folder: Path, found: Comparison
) -> None:
    """Compiles operators into one library, runs each, and adds to ``found`` what became of it.

    Args:
        operators: with the results of each reference, by its name.
        folder: for the library; must exist.
    """
    known: dict[str, tuple[Operator, Mapping[str, Results]]] = {}
    for operator, results in operators:
        if not results:
            found.add(operator, "no reference")
        elif _can_be_compiled(operator, folder, found):
            known[str(operator.seed)] = operator, results
    if not known:
        return
    compiled = Compiled({name: operator.model for name, (operator, _) in known.items()}, folder)
    for name, (operator, results) in known.items():
        got = list(compiled.run(name, operator.inputs, poison=0x7B).values())
        right = [reference for reference, wanted in results.items() if agrees(got, wanted)]
        if len(right) == len(results):
            found.add(operator, "right")
        elif right:
            found.add(operator, f"as {right[0]}")
        else:
            found.add(operator, "wrong", _difference(got, results))


def _can_be_compiled(operator: Operator, folder: Path, found: Comparison) -> bool:
    path = folder / f"{operator.seed}.onnx"
    onnx.save(operator.model, path)
    try:
        with attributed_errors(path):
            plan_of(operator.model)
    except EdgepackError as error:
        said = f"{error.message} {error.hint}"
        if error.exit_code == 3 and not any(word in said for word in _INSIDE):
            found.add(operator, "refused", error.message)
        else:
            found.add(operator, "wrong", f"{said} {error.detail}")
    except Exception as error:  # whatever the compiler underneath raises would end a command
        found.add(operator, "wrong", repr(error)[:300])
    else:
        return True
    return False


def agrees(found: Results, wanted: Results) -> bool:
    """Whether results have the same types, shapes and, within rounding, numbers."""
    return len(found) == len(wanted) and all(map(_same, found, wanted))


def _same(found: np.ndarray, wanted: np.ndarray) -> bool:
    return (found.shape, found.dtype) == (wanted.shape, wanted.dtype) and not _differing(found, wanted).any()


def _differing(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which elements are not the same."""
    if wanted.dtype.kind != "f":
        return np.asarray(found != wanted)
    relative, floor = _TOLERANCES[wanted.dtype.name]
    sizes = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    least = floor * sizes[sizes < _OUTLIER].max(initial=0) + _LEAST
    with np.errstate(all="ignore"):
        return ~np.isclose(found, wanted, rtol=relative, atol=least, equal_nan=True)


def _difference(got: Results, results: Mapping[str, Results]) -> str:
    """The first elements that are not what a reference has, by its name."""
    parts = []
    for reference, wanted in results.items():
        for number, (one, other) in enumerate(zip(got, wanted, strict=False)):
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                parts.append(
                    f"{reference}, output {number}: {one.dtype}{one.shape}, not {other.dtype}{other.shape}"
                )
                continue
            where = _differing(one, other)
            if where.any():
                shown = f"{one[where][:4].tolist()}, not {other[where][:4].tolist()}"
                parts.append(f"{reference}, output {number}, {where.sum()} of {where.size}: {shown}")
    return "; ".join(parts)
