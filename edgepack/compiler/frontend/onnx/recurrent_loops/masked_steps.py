"""Steps that a mask chooses, for each sequence of a batch others: the layer makes these steps alone, one
behind the other, and its results are put where they belong. A state stays as it is in all other steps."""

from __future__ import annotations

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

__all__ = ["MaskedSteps"]


class MaskedSteps:
    """The steps of a mask.

    Attributes:
        lengths: how many there are for each sequence, int32 [batch]; 1 where there are none, for ONNX Runtime
            refuses 0.
    """

    def __init__(self, editor: Editor, mask: str, *, where: bool, steps: int, batch: int) -> None:
        """``mask``: 1 or 0, float32 [steps, batch, 1]; those of ``where`` are the steps that are made."""
        import numpy as np

        self.editor, self.steps, self.batch = editor, steps, batch
        chosen = editor.reshape(mask, (steps, batch))
        if not where:
            chosen = editor.op("Sub", self._number(1.0), chosen)
        self._counts = editor.op("CumSum", chosen, editor.const(np.asarray(0, np.int64)))
        total = self._sliced(self._counts, steps - 1, steps)
        self._none = editor.op("Less", total, self._number(0.5))
        most = editor.op("Where", self._none, self._number(1.0), total)
        self.lengths = editor.reshape(editor.cast(most, np.dtype(np.int32)), (batch,))
        first_ones = editor.const(np.arange(steps, 0, -1, dtype=np.float32)[:, None])
        order = editor.op("Mul", chosen, first_ones)
        _, places = editor.ops("TopK", order, editor.const(np.asarray([steps], np.int64)), outputs=2, axis=0)
        self._places = self._rows(places)
        self._behind = self._rows(editor.cast(self._counts, np.dtype(np.int64)))

    def chosen(self, sequence: str, columns: int) -> str:
        """The elements of the steps that are made, first; [steps, batch, columns]."""
        return self._gathered(self.editor.reshape(sequence, (self.steps * self.batch, columns)), self._places)

    def behind(self, results: str, start: str, size: int) -> str:
        """A state behind each step, [steps, batch, size].

        Args:
            results: of the steps that are made, [steps, batch, size].
            start: the state before them, [1, batch, size].
        """
        whole = self.editor.op("Concat", start, results, axis=0)
        return self._gathered(self.editor.reshape(whole, ((self.steps + 1) * self.batch, size)), self._behind)

    def last(self, result: str, start: str) -> str:
        """A state behind the last step: what the layer gives, or the one before where it makes no step; all
        are [1, batch, size]."""
        none = self.editor.reshape(self._none, (1, self.batch, 1))
        return self.editor.op("Where", none, start, result)

    def _rows(self, places: str) -> str:
        """Numbers of steps [steps, batch], as numbers of rows."""
        import numpy as np

        if self.batch == 1:
            return places
        wide = self.editor.op("Mul", places, self.editor.const(np.asarray(self.batch, np.int64)))
        return self.editor.op("Add", wide, self.editor.const(np.arange(self.batch, dtype=np.int64)))

    def _gathered(self, rows: str, places: str) -> str:
        return self.editor.op("Gather", rows, places, axis=0)

    def _sliced(self, name: str, start: int, stop: int) -> str:
        import numpy as np

        numbers = (self.editor.const(np.asarray([one], np.int64)) for one in (start, stop, 0))
        return self.editor.op("Slice", name, *numbers)

    def _number(self, value: float) -> str:
        import numpy as np

        return self.editor.scalar(value, np.dtype(np.float32))
