"""SVMClassifier and SVMRegressor: kernels of the support vectors, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.refusals import refuse
from edgepack.compiler.frontend.onnx.rewrites.classical_operators import write_coupling
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.linear_models import transform_of
from edgepack.compiler.frontend.onnx.rewrites.scores import (
    as_rows,
    best,
    chosen,
    in_float32,
    label_numbers,
    labels_of,
    side_by_side,
    transformed,
)

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["svm_classifier", "svm_regressor"]

#: Bounds of a probability of one class against another, as ONNX Runtime has them.
_LEAST = 1e-7


@dataclass
class _Machine:
    """A node's input and numbers.

    Attributes:
        x: float32 [rows, features].
        vectors: [support vectors, features]; None for a linear model.
        coefficients: flat, rho: likewise.
    """

    editor: Editor
    node: onnx.NodeProto
    values: dict[str, Any]
    x: str
    rows: int
    features: int
    vectors: NDArray[Any] | None
    coefficients: NDArray[Any]
    rho: NDArray[Any]

    def number(self, value: float) -> str:
        """A scalar."""
        import numpy as np

        return self.editor.scalar(float(value), np.dtype(np.float32))

    def linear(self, columns: int) -> str:
        """[rows, columns]: products by the coefficients, and rho added."""
        import numpy as np

        if len(self.coefficients) != columns * self.features:
            held = f"{len(self.coefficients)} coefficients for {columns} columns"
            refuse(self.node, f"has {held} of {self.features} features")
        weights = np.ascontiguousarray(self.coefficients.reshape(columns, self.features).T)
        product = self.editor.op("MatMul", self.x, self.editor.const(weights))
        return self.editor.op("Add", product, self.number(self.rho[0]))

    def kernels(self) -> str:
        """[rows, support vectors]: the kernel of each."""
        import numpy as np

        e, vectors = self.editor, self.vectors
        assert vectors is not None
        kind = str(self.values.get("kernel_type", "LINEAR"))
        gamma, offset, degree = [*map(float, self.values.get("kernel_params", ())), 0.0, 0.0, 0.0][:3]
        if kind == "RBF":
            apart = e.op("Sub", e.reshape(self.x, [self.rows, 1, self.features]), e.const(vectors))
            total = e.reduce("ReduceSum", e.op("Mul", apart, apart), 2)
            flat = e.reshape(total, [self.rows, len(vectors)])
            return e.op("Exp", e.op("Mul", flat, self.number(-gamma)))
        product = e.op("MatMul", self.x, e.const(np.ascontiguousarray(vectors.T)))
        if kind == "LINEAR":
            return product
        if kind not in ("POLY", "SIGMOID"):
            refuse(self.node, f"has the kernel_type {kind!r}, which ONNX does not know")
        moved = e.op("Add", e.op("Mul", product, self.number(gamma)), self.number(offset))
        if kind == "SIGMOID":
            return e.op("Tanh", moved)
        if degree in (2.0, 3.0):
            square = e.op("Mul", moved, moved)
            return square if degree == 2.0 else e.op("Mul", square, moved)
        return e.op("Pow", moved, self.number(degree))


def _machine(editor: Editor, node: onnx.NodeProto, count: int) -> _Machine | None:
    """A node's numbers; ``count`` support vectors."""
    import numpy as np

    found = as_rows(editor, node.input[0])
    if found is None:
        return None
    x, (rows, features) = found
    values = attributes(node)
    vectors, coefficients, rho = (
        np.asarray(values.get(name, ()), np.float32) for name in ("support_vectors", "coefficients", "rho")
    )
    if not len(rho):
        refuse(node, "has no rho")
    if count and len(vectors) != count * features:
        held = f"{len(vectors)} numbers for {count} support vectors"
        refuse(node, f"has {held} of {features} features")
    shaped = vectors.reshape(count, features) if count else None
    return _Machine(editor, node, values, in_float32(editor, x), rows, features, shaped, coefficients, rho)


def svm_regressor(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """[rows, 1], float32; of one class 1 where it is that class, else -1."""
    import numpy as np

    count = int(attributes(node).get("n_supports", 0))
    if count < 0:
        refuse(node, f"has {count} support vectors")
    machine = _machine(editor, node, count)
    if machine is None:
        return None
    if count:
        if len(machine.coefficients) != count:
            refuse(node, f"has {count} support vectors, and {len(machine.coefficients)} coefficients")
        column = editor.const(machine.coefficients.reshape(count, 1))
        score = editor.op(
            "Add", editor.op("MatMul", machine.kernels(), column), machine.number(machine.rho[0])
        )
    else:
        score = machine.linear(1)
    if not machine.values.get("one_class", 0):
        return [score]
    dtype = np.dtype(np.float32)
    inside = editor.op("Greater", score, editor.scalar(0.0, dtype))
    return [editor.op("Where", inside, editor.scalar(1.0, dtype), editor.scalar(-1.0, dtype))]


def svm_classifier(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The label, and the scores, float32: of each class, or without probabilities of each pair of classes."""
    values = attributes(node)
    counts = [int(n) for n in values.get("vectors_per_class", ())]
    labels = label_numbers(values)
    if not labels:
        refuse(node, "has no labels")
    if any(n < 0 for n in counts):
        refuse(node, f"has {min(counts)} support vectors of a class")
    if sum(counts) and len(counts) != len(labels):
        refuse(node, f"has {len(labels)} labels, and {len(counts)} vectors_per_class")
    machine = _machine(editor, node, sum(counts))
    if machine is None:
        return None
    transform = transform_of(node, values)
    if not sum(counts):
        return _linear_classes(machine, labels, transform)
    return _classes_of_pairs(machine, counts, labels, transform)


def _linear_classes(machine: _Machine, labels: list[int], transform: str) -> list[str]:
    import numpy as np

    e, classes = machine.editor, len(labels)
    scores = machine.linear(classes)
    label = labels_of(e, best(e, scores), machine.values)
    if classes == 2:
        positive = bool((machine.coefficients >= 0).all())
        most = e.reduce("ReduceMax", scores, 1)
        condition = e.op("GreaterOrEqual" if positive else "Greater", most, machine.number(0.5 * positive))
        condition = e.reshape(condition, [machine.rows])
        label = e.op("Where", condition, e.scalar(labels[1], np.dtype(np.int64)), label)
    if classes == 1:
        return [label, scores]
    return [label, e.op("Identity", transformed(e, scores, transform))]


def _classes_of_pairs(machine: _Machine, counts: list[int], labels: list[int], transform: str) -> list[str]:
    """Each pair of classes has a score; the class that wins most of its pairs is the label."""
    import numpy as np

    e, classes = machine.editor, len(labels)
    pairs = list(combinations(range(classes), 2))
    if not pairs:
        refuse(machine.node, "has support vectors of one class")
    scores = _pair_scores(machine, counts, pairs)
    first = np.zeros((len(pairs), classes), np.float32)
    second = first.copy()
    for at, (i, j) in enumerate(pairs):
        first[at, i] = second[at, j] = 1
    wins = e.op("Greater", scores, machine.number(0.0))
    if classes == 2:
        label = chosen(e, wins, labels[0], labels[1], machine.rows)
    else:
        won = e.cast(wins, np.dtype(np.float32))
        votes = e.op("Add", e.op("MatMul", won, e.const(first - second)), e.const(second.sum(axis=0)))
        label = labels_of(e, best(e, votes), machine.values)
    if machine.values.get("prob_a"):
        return [label, _probabilities(machine, scores, pairs, classes, transform)]
    if classes > 2:
        return [label, e.op("Identity", transformed(e, scores, transform))]
    if transform == "PROBIT":
        refuse(machine.node, "has the post_transform PROBIT for one column of scores of two classes")
    if transform == "LOGISTIC":
        return [label, side_by_side(e, e.op("Sigmoid", e.op("Neg", scores)), e.op("Sigmoid", scores))]
    if transform == "NONE":
        return [label, side_by_side(e, e.op("Neg", scores), scores)]
    return [label, side_by_side(e, e.op("Sub", machine.number(1.0), scores), scores)]


def _pair_scores(machine: _Machine, counts: list[int], pairs: list[tuple[int, int]]) -> str:
    """[rows, pairs]: the kernels of both classes' vectors by the coefficients of the pair, and its rho."""
    import numpy as np

    e, total, classes = machine.editor, sum(counts), len(counts)
    if len(machine.coefficients) < (classes - 1) * total:
        held = f"{len(machine.coefficients)} coefficients"
        refuse(machine.node, f"has {held} for {total} support vectors of {classes} classes")
    if len(machine.rho) < len(pairs):
        refuse(machine.node, f"has {len(machine.rho)} rho for {len(pairs)} pairs of classes")
    table = machine.coefficients[: (classes - 1) * total].reshape(classes - 1, total)
    starts = np.concatenate([[0], np.cumsum(counts)])
    weights = np.zeros((total, len(pairs)), np.float32)
    for at, (i, j) in enumerate(pairs):
        weights[starts[i] : starts[i + 1], at] = table[j - 1, starts[i] : starts[i + 1]]
        weights[starts[j] : starts[j + 1], at] = table[i, starts[j] : starts[j + 1]]
    product = e.op("MatMul", machine.kernels(), e.const(weights))
    return e.op("Add", product, e.const(machine.rho[: len(pairs)]))


def _probabilities(
    machine: _Machine, scores: str, pairs: list[tuple[int, int]], classes: int, transform: str
) -> str:
    """[rows, classes], of the probabilities of pairs (Platt)."""
    import numpy as np

    e, values = machine.editor, machine.values
    a, b = (np.asarray(values.get(name, ()), np.float32) for name in ("prob_a", "prob_b"))
    if len(a) != len(b) or len(a) < len(pairs):
        refuse(machine.node, f"has {len(a)} prob_a and {len(b)} prob_b for {len(pairs)} pairs of classes")
    scaled = e.op("Add", e.op("Mul", scores, e.const(a[: len(pairs)])), e.const(b[: len(pairs)]))
    of_pairs = e.op("Sigmoid", e.op("Neg", scaled))
    inside = e.op("Min", e.op("Max", of_pairs, machine.number(_LEAST)), machine.number(1 - _LEAST))
    of_classes = write_coupling(e, inside, machine.rows, classes)
    return e.op("Identity", transformed(e, of_classes, transform))
