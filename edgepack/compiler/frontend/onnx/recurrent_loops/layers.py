"""Writes the layers that were found, and what else a loop computes, over all steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.cells import Cell, Gate
from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import (
    Atom,
    Factor,
    Formula,
    Mask,
    Part,
)
from edgepack.compiler.frontend.onnx.recurrent_loops.masked_steps import MaskedSteps
from edgepack.compiler.frontend.onnx.recurrent_loops.trip import Sequences
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["Layers"]


class Layers:
    """Writes values of all steps, [steps, batch, columns].

    Attributes:
        results: by the number of a sequence, what it is called, if it is there.
    """

    def __init__(self, editor: Editor, sequences: Sequences, *, steps: int, batch: int) -> None:
        self.editor, self.sequences, self.steps, self.batch = editor, sequences, steps, batch
        self.results: dict[int, str] = {}
        self._formulas: dict[str, str] = {}

    # Layers -----------------------------------------------------------------------------------------------

    def layer(
        self, cell: Cell, hidden: str, memory: str, masked: MaskedSteps | None = None
    ) -> tuple[str, str, str]:
        """The operator of a cell: its results of all steps, the last hidden state and the last cell state
        ("" of others than an LSTM), both [1, batch, size].

        Args:
            hidden, memory: the states before the first step, [1, batch, size]; "" for 0.
            masked: the steps that are made; the results are those of these, from the first on.
        """
        import numpy as np

        editor, size = self.editor, cell.hidden.atom.size
        inputs, weights = self._inputs([gate.inputs for gate in cell.gates])
        if masked is not None:
            inputs = masked.chosen(inputs, weights.shape[1])
        state = np.concatenate([gate.matrix.T for gate in cell.gates])[None]
        given = [
            inputs,
            editor.const(np.ascontiguousarray(weights[None], np.float32)),
            editor.const(np.ascontiguousarray(state, np.float32)),
            self._biases(cell.gates),
            "" if masked is None else masked.lengths,
            hidden,
        ]
        if cell.operator == "LSTM":
            given.append(memory)
        if cell.peepholes is not None:
            given.append(editor.const(cell.peepholes.reshape(1, -1).astype(np.float32)))
        while not given[-1]:
            given.pop()
        said = self._attributes(cell) | {"hidden_size": size}
        count = 3 if cell.operator == "LSTM" else 2
        every, last, *memories = editor.ops(cell.operator, *given, outputs=count, **said)
        return self._shaped(every, size), last, memories[0] if memories else ""

    def _attributes(self, cell: Cell) -> dict[str, Any]:
        """Those of the node, but for its size."""
        alphas = [numbers[0] for _, numbers in cell.activations if numbers]
        betas = [numbers[1] for _, numbers in cell.activations if len(numbers) > 1]
        said: dict[str, Any] = {"activations": [name for name, _ in cell.activations]}
        if alphas:
            said["activation_alpha"] = alphas
        if betas:
            said["activation_beta"] = betas
        if cell.operator == "GRU":
            said["linear_before_reset"] = int(cell.linear_before_reset)
        return said

    def _biases(self, gates: Sequence[Gate]) -> str:
        """[1, 2 * gates * size]: those of the inputs, and those of the state."""
        import numpy as np

        ours = [gate.inputs.bias for gate in gates]
        theirs = [np.zeros(len(gate.inputs.bias)) if gate.bias is None else gate.bias for gate in gates]
        row = np.concatenate([*ours, *theirs])
        return self.editor.const(row.astype(np.float32)[None])

    def _inputs(self, gates: Sequence[Formula]) -> tuple[str, NDArray[Any]]:
        """A sequence, and the matrix [gates * size, columns] by whose transpose it is multiplied for the
        gates."""
        import numpy as np

        size = gates[0].size
        names: dict[str, str] = {}
        rows: dict[str, NDArray[Any]] = {}

        def wanted(key: str, columns: int) -> NDArray[Any]:
            return rows.setdefault(key, np.zeros((columns, len(gates) * size), np.float32))

        for number, formula in enumerate(gates):
            place, others = slice(number * size, (number + 1) * size), []
            for key, (one, matrix) in formula.matrices.items():
                names.setdefault(key, self._of_atom(one))
                wanted(key, one.size)[:, place] += matrix
            for factors, c in formula.products.values():
                if len(factors) > 1 or not isinstance(factors[0], Part):
                    others.append((factors, c))
                    continue
                part = factors[0]
                names.setdefault(part.atom.key, self._of_atom(part.atom))
                at = part.start + np.arange(size), number * size + np.arange(size)
                wanted(part.atom.key, part.atom.size)[at] += c.astype(np.float32)
            if others:
                products = {tuple(f.key for f in factors): (factors, c) for factors, c in others}
                rest = Formula(np.zeros(size), {}, products)
                names.setdefault(rest.key, self.of(rest))
                wanted(rest.key, size)[:, place] += np.eye(size, dtype=np.float32)
        if not names:  # what is computed of the state alone
            nothing = np.zeros((self.steps, self.batch, 1), np.float32)
            return self.editor.const(nothing), np.zeros((len(gates) * size, 1), np.float32)
        sequences = list(names.values())
        whole = self.editor.op("Concat", *sequences, axis=2) if len(sequences) > 1 else sequences[0]
        return whole, np.concatenate([rows[key] for key in names]).T

    # Formulas ---------------------------------------------------------------------------------------------

    def of(self, formula: Formula) -> str:
        """What a formula of the inputs is in each step."""
        if formula.key not in self._formulas:
            self._formulas[formula.key] = self._written(formula)
        return self._formulas[formula.key]

    def _written(self, formula: Formula) -> str:
        import numpy as np

        editor = self.editor
        terms = [
            editor.op("MatMul", self._of_atom(one), editor.const(np.ascontiguousarray(matrix, np.float32)))
            for one, matrix in formula.matrices.values()
        ]
        for factors, c in formula.products.values():
            name = self._of_factor(factors[0])
            for factor in factors[1:]:
                name = editor.op("Mul", name, self._of_factor(factor))
            terms.append(name if (c == 1).all() else editor.op("Mul", name, self._row(c)))
        if not terms:
            whole = np.broadcast_to(formula.bias, (self.steps, self.batch, formula.size))
            return editor.const(np.ascontiguousarray(whole, np.float32))
        total = terms[0]
        for term in terms[1:]:
            total = editor.op("Add", total, term)
        return editor.op("Add", total, self._row(formula.bias)) if formula.bias.any() else total

    def _row(self, row: NDArray[Any]) -> str:
        import numpy as np

        return self.editor.const(np.ascontiguousarray(row, np.float32))

    def _of_factor(self, one: Factor) -> str:
        import numpy as np

        if isinstance(one, Mask):
            zeros = self._row(np.zeros(one.size))
            return self.editor.op("Add", self.mask(one.atom), zeros)
        if isinstance(one, Part):
            whole = self._of_atom(one.atom)
            if one.is_whole:
                return whole
            return self.sliced(whole, one.start, one.start + one.size, 2)
        inner = self.of(one.argument)
        if not one.name:
            return inner
        if one.name == "Min1":
            return self.editor.op("Min", inner, self._number(1.0))
        names = ("alpha", "beta")[: len(one.numbers)]
        return self.editor.op(one.name, inner, **dict(zip(names, one.numbers, strict=True)))

    def _number(self, value: float) -> str:
        import numpy as np

        return self.editor.const(np.asarray(value, np.float32))

    def _of_atom(self, one: Atom) -> str:
        if one.formula is not None:
            return self.of(one.formula)
        if one.number not in self.results:
            self.results[one.number] = self._sequence(one)
        return self.results[one.number]

    def mask(self, one: Atom) -> str:
        """A mask, 1 or 0, [steps, batch, 1]."""
        import numpy as np

        key = f"{one.key}?"
        if key not in self._formulas:
            self._formulas[key] = self.editor.cast(self._of_atom(one), np.dtype(np.float32))
        return self._formulas[key]

    def _sequence(self, one: Atom) -> str:
        """A sequence of the graph around, in the order of the steps."""
        source = self.sequences.sources[one.number]
        assert source is not None
        name, shape, axis, first, step = source
        if axis:
            perm = [axis, *(i for i in range(len(shape)) if i != axis)]
            name = self.editor.op("Transpose", name, perm=perm)
        if (first, step, shape[axis]) != (0, 1, self.steps):
            last = first + step * self.steps
            name = self.sliced(name, first, last if last >= 0 else -(2**31), 0, step)
        rest = [extent for i, extent in enumerate(shape) if i != axis]
        return name if rest == [self.batch, one.size] else self._shaped(name, one.size)

    def _shaped(self, name: str, size: int) -> str:
        return self.editor.reshape(name, (self.steps, self.batch, size))

    def sliced(self, name: str, start: int, stop: int, axis: int, step: int = 1) -> str:
        import numpy as np

        numbers = (self.editor.const(np.asarray([one], np.int64)) for one in (start, stop, axis, step))
        return self.editor.op("Slice", name, *numbers)
