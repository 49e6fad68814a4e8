"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble: a walk through the trees, and what becomes
of its sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.ensemble import Ensemble, read_ensemble, read_old_ensemble
from edgepack.compiler.frontend.onnx.classical.forest import Walk, check_trees, walk_of
from edgepack.compiler.frontend.onnx.classical.refusals import refuse
from edgepack.compiler.frontend.onnx.classical.texts import DOMAIN
from edgepack.compiler.frontend.onnx.rewrites.classical_operators import write_walk
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.scores import (
    as_rows,
    best,
    chosen,
    column,
    label_numbers,
    labels_of,
    probit,
    side_by_side,
    transformed,
)

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["check_ensembles", "tree_ensemble", "tree_ensemble_classifier", "tree_ensemble_regressor"]


def check_ensembles(model: onnx.ModelProto) -> None:
    """Reads the trees of a model before anything else does, which might not end where they are none.

    Raises:
        RefusedNodesError: attributes of a node do not fit each other, or a node leads back to itself.
    """
    import numpy as np

    for node in model.graph.node:
        if node.domain == DOMAIN and node.op_type.startswith("TreeEnsemble"):
            read = read_ensemble if node.op_type == "TreeEnsemble" else read_old_ensemble
            check_trees(node, read(node, attributes(node), np.dtype(np.float64)))


def _input(editor: Editor, node: onnx.NodeProto) -> tuple[str, tuple[int, int], np.dtype[Any]] | None:
    """The input as rows, its shape, and the type that it is compared in."""
    import numpy as np

    found = as_rows(editor, node.input[0])
    if found is None:
        return None
    x, shape = found
    given = editor.dtype(node.input[0])
    dtype = np.dtype(np.float64 if given == np.float64 else np.float32)
    return (x if given == dtype else editor.cast(x, dtype)), shape, dtype


def tree_ensemble(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Results have the type of the input, which is that of the thresholds."""
    found = _input(editor, node)
    if found is None:
        return None
    x, shape, dtype = found
    made = read_ensemble(node, attributes(node), dtype)
    return [_regression(editor, node, made, x, shape)]


def tree_ensemble_regressor(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Results are float32, whatever is added up."""
    import numpy as np

    found = _input(editor, node)
    if found is None:
        return None
    x, shape, dtype = found
    made = read_old_ensemble(node, attributes(node), dtype)
    result = _regression(editor, node, made, x, shape)
    return [result if dtype == np.float32 else editor.cast(result, np.dtype(np.float32))]


def _regression(editor: Editor, node: onnx.NodeProto, made: Ensemble, x: str, shape: tuple[int, int]) -> str:
    """[rows, targets]: what the trees give, averaged, with the base values added, transformed."""
    import numpy as np

    dtype = made.weights.dtype
    walk = walk_of(node, made, shape[1])
    adds = made.aggregate in ("SUM", "AVERAGE")
    sums = write_walk(editor, x, walk, shape, "SUM" if adds else made.aggregate)
    if not adds:  # what no leaf has a weight for is 0
        absent = editor.op("IsInf", sums) if dtype == np.float32 else _infinite(editor, sums, dtype)
        sums = editor.op("Where", absent, editor.scalar(0.0, dtype), sums)
    if made.aggregate == "AVERAGE":
        sums = editor.op("Div", sums, editor.scalar(float(len(made.roots)), dtype))
    scores = _spread(editor, sums, walk, shape[0], made.targets, dtype)
    base = made.base
    if len(base) and (len(base) == made.targets):
        scores = editor.op("Add", scores, editor.const(base.astype(dtype)))
    single = made.targets == 1
    if made.transform == "NONE" or (single and made.transform != "PROBIT"):
        return editor.op("Identity", scores)
    scores = scores if dtype == np.float32 else editor.cast(scores, np.dtype(np.float32))
    scores = probit(editor, scores) if single else transformed(editor, scores, made.transform)
    return scores if dtype == np.float32 else editor.cast(scores, np.dtype(np.float64))


def _infinite(editor: Editor, x: str, dtype: np.dtype[Any]) -> str:
    return editor.op("Equal", editor.op("Abs", x), editor.scalar(float("inf"), dtype))


def _spread(editor: Editor, sums: str, walk: Walk, rows: int, targets: int, dtype: np.dtype[Any]) -> str:
    """The columns of a walk at the places of their targets; those without trees are 0."""
    import numpy as np

    if len(walk.columns) == targets:
        return sums
    padded = side_by_side(editor, sums, editor.const(np.zeros((rows, 1), dtype)))
    place = np.full(targets, len(walk.columns), np.int64)
    place[walk.columns] = np.arange(len(walk.columns))
    return editor.op("Gather", padded, editor.const(place), axis=1)


def tree_ensemble_classifier(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The label, and the scores, float32."""

    found = _input(editor, node)
    if found is None:
        return None
    x, shape, dtype = found
    values = attributes(node)
    made = read_old_ensemble(node, values, dtype)
    made.aggregate = "SUM"
    needed = made.targets > 2 and not len(made.base)
    walk = walk_of(node, made, shape[1], count=needed or made.targets == 2)
    sums = write_walk(editor, x, walk, shape, "SUM")
    head = _Head(editor, node, made, walk, sums, values, shape[0])
    label, scores = head.of_two() if made.targets <= 2 else head.of_many()
    return [label, scores]


class _Head:
    """What a classifier makes of the sums of its trees."""

    def __init__(
        self,
        editor: Editor,
        node: onnx.NodeProto,
        made: Ensemble,
        walk: Walk,
        sums: str,
        values: dict[str, Any],
        rows: int,
    ) -> None:
        import numpy as np

        self.editor, self.node, self.made, self.walk = editor, node, made, walk
        self.values, self.rows, self.dtype = values, rows, made.weights.dtype
        self.counts = ""
        width = len(walk.columns)
        if walk.rows is not None and walk.rows.shape[1] > width:
            sums, self.counts = (
                editor.op("Gather", sums, editor.const(np.arange(width, dtype=np.int64) + start), axis=1)
                for start in (0, width)
            )
        self.sums = sums

    def of_many(self) -> tuple[str, str]:
        """Three classes or more: the greatest score, among those that a leaf has given, wins."""
        import numpy as np

        e, made = self.editor, self.made
        scores = _spread(e, self.sums, self.walk, self.rows, made.targets, self.dtype)
        if len(made.base):
            scores = e.op("Add", scores, e.const(made.base.astype(self.dtype)))
        ranked = scores
        if not len(made.base) and (self.counts or len(self.walk.columns) < made.targets):
            lowest = e.scalar(float("-inf"), self.dtype)
            one = e.const(np.ones((1, len(self.walk.columns)), self.dtype))
            given = self.counts or e.op("Mul", one, e.const(np.ones((self.rows, 1), self.dtype)))
            counts = _spread(e, given, self.walk, self.rows, made.targets, self.dtype)
            ranked = e.op("Where", e.op("Greater", counts, e.scalar(0.0, self.dtype)), scores, lowest)
        label = labels_of(e, best(e, ranked), self.values)
        return label, e.op("Identity", transformed(e, self._float32(scores), made.transform))

    def of_two(self) -> tuple[str, str]:
        """One or two classes, of which the first alone may have scores: those of the second then."""
        e, made, walk = self.editor, self.made, self.walk
        if made.targets == 1:
            return self._of_one()
        has = [bool((walk.columns == c).any()) for c in (0, 1)]
        if self.counts and not all(walk.always):
            return self._undecided()
        scores = [column(e, self.sums, int((walk.columns < c).sum())) if has[c] else "" for c in (0, 1)]
        return self._decided(scores, second=has[1])

    def _decided(self, scores: list[str], *, second: bool) -> tuple[str, str]:
        """The label and the scores where it is known whether the second class has any."""
        import numpy as np

        e, made = self.editor, self.made
        zero = e.const(np.zeros((self.rows, 1), self.dtype))
        low, high = (score or zero for score in scores)
        both = second
        if len(made.base) == 2 and second:  # as ONNX Runtime has it
            high = self._plus(low, made.base[1])
            low = e.op("Neg", high)
        elif len(made.base) == 2:
            low, both = self._plus(low, made.base[0]), True  # a class without a score stays 0
        elif len(made.base) == 1:
            low = self._plus(low, made.base[0])
        positive = high if second else low
        label = self._label(positive)
        if both:
            pair = side_by_side(e, low, high)
            return label, e.op("Identity", transformed(e, self._float32(pair), made.transform))
        return label, self._second_added(low)

    def _second_added(self, score: str) -> str:
        """The scores of both classes, of one that stands for both."""
        import numpy as np

        e, made = self.editor, self.made
        if made.transform == "PROBIT":
            refuse(self.node, "has the post_transform PROBIT for one column of scores of two classes")
        score = self._float32(score)
        if made.transform == "LOGISTIC":
            return side_by_side(e, e.op("Sigmoid", e.op("Neg", score)), e.op("Sigmoid", score))
        if self._binary and self._positive:
            return side_by_side(e, e.op("Sub", e.scalar(1.0, np.dtype(np.float32)), score), score)
        return side_by_side(e, e.op("Neg", score), score)

    def _undecided(self) -> tuple[str, str]:
        """Both forms are computed where leaves decide whether the second class has a score."""
        e, walk = self.editor, self.walk
        places = [int((walk.columns < c).sum()) for c in (0, 1)]
        has = [bool((walk.columns == c).any()) for c in (0, 1)]
        scores = [column(e, self.sums, p) if there else "" for p, there in zip(places, has, strict=True)]
        with_second = self._decided(scores, second=True)
        alone = self._decided([scores[0], ""], second=False)
        if not has[1]:
            return alone
        given = e.op("Greater", column(e, self.counts, places[1]), e.scalar(0.0, self.dtype))
        label = e.op("Where", e.reshape(given, [self.rows]), with_second[0], alone[0])
        return label, e.op("Where", given, with_second[1], alone[1])

    def _of_one(self) -> tuple[str, str]:
        e, made = self.editor, self.made
        score = self._plus(self.sums, made.base[0]) if len(made.base) else self.sums
        label = self._label(score)
        score = self._float32(score)
        return label, probit(e, score) if made.transform == "PROBIT" else e.op("Identity", score)

    @property
    def _binary(self) -> bool:
        """Whether there are two classes, and weights for one."""
        return self.made.targets == 2 and len(self.walk.columns) == 1

    @property
    def _positive(self) -> bool:
        return bool((self.made.weights >= 0).all())

    def _label(self, positive: str) -> str:
        """The label by the score of the second class."""
        e = self.editor
        bar = 0.5 if self._binary and self._positive else 0.0
        yes, no = 1, 0
        if self._binary:
            no, yes = label_numbers(self.values)
        condition = e.op("Greater", positive, e.scalar(bar, self.dtype))
        return chosen(e, condition, yes, no, self.rows)

    def _plus(self, score: str, value: float) -> str:
        return self.editor.op("Add", score, self.editor.scalar(float(value), self.dtype))

    def _float32(self, score: str) -> str:
        import numpy as np

        return score if self.dtype == np.float32 else self.editor.cast(score, np.dtype(np.float32))
