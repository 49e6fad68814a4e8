"""What a value of a trip is of the elements of the sequences and of the states before: sums of products by
constant matrices, and of products of functions of such sums, element by element.

A formula has a fixed number of columns, and stands for each row of a batch alike. Two formulas of the same
``key`` are the same computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Atom",
    "Factor",
    "Formula",
    "Function",
    "Mask",
    "Part",
    "TooLongError",
    "atom",
    "constant",
    "masked",
]

#: Products that a formula may have: a GRU's result has three, of two factors each.
MOST_PRODUCTS = 12

#: Factors that one of them may have.
MOST_FACTORS = 6

#: Functions in each other, and terms in all of them together: a head of some layers behind a cell.
MOST_DEPTH, MOST_TERMS = 32, 1024


class TooLongError(Exception):
    """A formula has more terms than any that is looked for."""


def _digest(*parts: object) -> str:
    return sha1("|".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()


def _digest_of(array: NDArray[Any]) -> str:
    import numpy as np

    return sha1(np.ascontiguousarray(array).data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, eq=False)
class Atom:
    """What formulas are made of: a row of numbers.

    Attributes:
        kind: an element of a sequence, a state before the trip, or all that ``formula`` computes.
        number: of the sequence or state.
        size: its columns.
    """

    kind: Literal["input", "state", "whole"]
    number: int
    size: int
    formula: Formula | None = None

    @cached_property
    def key(self) -> str:
        inner = "" if self.formula is None else self.formula.key
        return f"{self.kind}:{self.number}:{inner}"


@dataclass(frozen=True, eq=False)
class Part:
    """Columns of an atom, ``start`` to ``start + size - 1``."""

    atom: Atom
    start: int
    size: int

    @cached_property
    def key(self) -> str:
        return f"{self.atom.key}[{self.start}+{self.size}]"

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the atom."""
        return self.size == self.atom.size

    def columns(self, start: int, stop: int) -> Part:
        """Some of them."""
        return Part(self.atom, self.start + start, stop - start)


@dataclass(frozen=True, eq=False)
class Mask:
    """0 or 1, the same in ``size`` columns: the one column of an element of a sequence of truths."""

    atom: Atom
    size: int

    @cached_property
    def key(self) -> str:
        return f"{self.atom.key}?{self.size}"

    def columns(self, start: int, stop: int) -> Mask:
        """Some of them."""
        return Mask(self.atom, stop - start)


@dataclass(frozen=True, eq=False)
class Function:
    """An ONNX operator of one operand, element by element; of no name: the operand itself, as one factor.

    Attributes:
        numbers: its alpha and beta, as far as it has them.
    """

    name: str
    argument: Formula
    numbers: tuple[float, ...] = ()

    @cached_property
    def key(self) -> str:
        return f"{self.name}{self.numbers}({self.argument.key})"

    @property
    def size(self) -> int:
        return self.argument.size

    def columns(self, start: int, stop: int) -> Function:
        """Some of them."""
        return Function(self.name, self.argument.columns(start, stop), self.numbers)


Factor = Part | Mask | Function

#: Products by their factors' keys: factors and coefficients, float64 [columns].
Products = Mapping[tuple[str, ...], tuple[tuple[Factor, ...], "NDArray[Any]"]]


@dataclass(frozen=True, eq=False)
class Formula:
    """``bias`` + sum of atom @ matrix + sum of coefficients * product of factors.

    Attributes:
        bias: float64 [columns].
        matrices: by the atom's key: the atom and its matrix, float32 [columns of the atom, columns].
    """

    bias: NDArray[Any]
    matrices: Mapping[str, tuple[Atom, NDArray[Any]]] = field(default_factory=dict)
    products: Products = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Its columns."""
        return len(self.bias)

    @cached_property
    def key(self) -> str:
        terms = [f"{name}@{_digest_of(matrix)}" for name, (_, matrix) in sorted(self.matrices.items())]
        terms += [f"{'*'.join(keys)}*{_digest_of(c)}" for keys, (_, c) in sorted(self.products.items())]
        return _digest(self.size, _digest_of(self.bias + 0.0), *terms)

    @property
    def is_constant(self) -> bool:
        return not self.matrices and not self.products

    @cached_property
    def is_known(self) -> bool:
        """Whether it depends on elements of sequences alone, on no state."""
        return all(one.kind != "state" for one in self._atoms()) and all(map(_is_known, self._inner()))

    @cached_property
    def extent(self) -> tuple[int, int]:
        """How deep functions lie in each other, and how many terms there are in all."""
        inner = [formula.extent for formula in self._inner()]
        terms = len(self.matrices) + len(self.products) + sum(count for _, count in inner)
        return 1 + max((depth for depth, _ in inner), default=0), terms

    def _atoms(self) -> Iterator[Atom]:
        yield from (one for one, _ in self.matrices.values())
        yield from (one.atom for one in self._factors() if not isinstance(one, Function))

    def _factors(self) -> Iterator[Factor]:
        return (one for factors, _ in self.products.values() for one in factors)

    def _inner(self) -> Iterator[Formula]:
        """The formulas in it."""
        yield from (one.formula for one in self._atoms() if one.formula is not None)
        yield from (one.argument for one in self._factors() if isinstance(one, Function))

    def bounded(self) -> Formula:
        """Itself. Raises TooLongError."""
        depth, terms = self.extent
        if depth > MOST_DEPTH or terms > MOST_TERMS:
            raise TooLongError
        _ = self.is_known, self.key  # each looks at what is in it no deeper than one level
        return self

    def columns(self, start: int, stop: int) -> Formula:
        """Some of them."""
        if (start, stop) == (0, self.size):
            return self
        return Formula(
            self.bias[start:stop],
            {name: (a, matrix[:, start:stop]) for name, (a, matrix) in self.matrices.items()},
            _collected(
                ([one.columns(start, stop) for one in factors], c[start:stop])
                for factors, c in self.products.values()
            ),
        )

    def plus(self, other: Formula) -> Formula:
        """The sum."""
        matrices = dict(self.matrices)
        for name, (one, matrix) in other.matrices.items():
            matrices[name] = (one, matrices[name][1] + matrix) if name in matrices else (one, matrix)
        return Formula(
            self.bias + other.bias,
            {name: (one, matrix) for name, (one, matrix) in matrices.items() if matrix.any()},
            _collected([*self.products.values(), *other.products.values()]),
        )

    def scaled(self, by: NDArray[Any] | float) -> Formula:
        """Times constants, [columns] or one."""
        import numpy as np

        row = np.broadcast_to(np.asarray(by, np.float64), (self.size,))
        return Formula(
            self.bias * row,
            {name: (one, (matrix * row).astype(np.float32)) for name, (one, matrix) in self.matrices.items()},
            _collected((factors, c * row) for factors, c in self.products.values()),
        )

    def times(self, other: Formula) -> Formula:
        """The product, element by element. Raises TooLongError."""
        import numpy as np

        if self.is_constant or other.is_constant:
            return self.scaled(other.bias) if other.is_constant else other.scaled(self.bias)
        found = []
        for ours, c in self._summands():
            found += [([*ours, *theirs], c * d) for theirs, d in other._summands()]
        bias = sum((c for factors, c in found if not factors), np.zeros(self.size))
        return Formula(np.asarray(bias), {}, _collected((f, c) for f, c in found if f))

    def _summands(self) -> list[tuple[Sequence[Factor], NDArray[Any]]]:
        """What it is the sum of, as factors and coefficients; a product by a matrix, with all that is added
        to it, is one factor."""
        import numpy as np

        if self.matrices:
            return [((Function("", self.bounded()),), np.ones(self.size))]
        bias: list[tuple[Sequence[Factor], NDArray[Any]]] = [((), self.bias)] if self.bias.any() else []
        return [*self.products.values(), *bias]

    def product(self, matrix: NDArray[Any]) -> Formula:
        """Times a constant matrix, float32 [columns, other columns]. What is more than parts of atoms, and
        constants, becomes an atom of its own."""
        import numpy as np

        parts = [(factors[0], c) for factors, c in self.products.values() if len(factors) == 1]
        only_parts = len(parts) == len(self.products) and all(isinstance(one, Part) for one, _ in parts)
        if self.matrices or not only_parts:
            whole = Atom("whole", 0, self.size, self.bounded())
            return Formula(np.zeros(matrix.shape[1]), {whole.key: (whole, matrix)})
        result = Formula(self.bias @ matrix.astype(np.float64))
        for part, c in parts:
            assert isinstance(part, Part)
            rows = matrix if (c == 1).all() else (c[:, None] * matrix).astype(np.float32)
            if not part.is_whole:
                wide = np.zeros((part.atom.size, matrix.shape[1]), np.float32)
                wide[part.start : part.start + part.size] = rows
                rows = wide
            result = result.plus(Formula(np.zeros(result.size), {part.atom.key: (part.atom, rows)}))
        return result

    def function(self, name: str, *numbers: float) -> Formula:
        """A function of it."""
        import numpy as np

        one = Function(name, self.bounded(), numbers)
        return Formula(np.zeros(self.size), {}, {(one.key,): ((one,), np.ones(self.size))})

    @property
    def masks(self) -> dict[str, Atom]:
        """What masks it, by key, but inside of functions."""
        return {one.atom.key: one.atom for one in self._factors() if isinstance(one, Mask)}

    def where(self, key: str, is_one: bool) -> Formula:
        """What it is where a mask, by its atom's key, is 1, or is 0."""
        import numpy as np

        bias, total = self.bias.copy(), Formula(np.zeros(self.size), self.matrices)
        kept = []
        for factors, c in self.products.values():
            rest = [one for one in factors if not (isinstance(one, Mask) and one.atom.key == key)]
            if len(rest) < len(factors) and not is_one:
                continue
            alone = rest[0] if len(rest) == 1 else None
            if not rest:
                bias = bias + c
            elif isinstance(alone, Function) and not alone.name:
                total = total.plus(alone.argument.scaled(c))
            else:
                kept.append((rest, c))
        return total.plus(Formula(bias, {}, _collected(kept)))

    @property
    def as_function(self) -> Function | None:
        """The function that it is, if it is nothing but one."""
        if self.matrices or self.bias.any() or len(self.products) != 1:
            return None
        ((factors, coefficients),) = self.products.values()
        only = len(factors) == 1 and isinstance(factors[0], Function) and bool((coefficients == 1).all())
        return factors[0] if only else None  # type: ignore[return-value]


def _is_known(formula: Formula) -> bool:
    return formula.is_known


def _collected(products: Any) -> Products:
    """Factors and coefficients by key; coefficients of the same factors added up. Raises TooLongError."""
    found: dict[tuple[str, ...], tuple[tuple[Factor, ...], NDArray[Any]]] = {}
    for factors, c in products:
        different = {one.key: one for one in factors if isinstance(one, Mask)}  # one times itself is itself
        rest = [one for one in factors if not isinstance(one, Mask)]
        ordered = tuple(sorted([*different.values(), *rest], key=lambda one: one.key))
        keys = tuple(one.key for one in ordered)
        if len(keys) > MOST_FACTORS:
            raise TooLongError
        found[keys] = (ordered, found[keys][1] + c if keys in found else c)
    kept = {keys: one for keys, one in found.items() if one[1].any()}
    if len(kept) > MOST_PRODUCTS:
        raise TooLongError
    return kept


def atom(one: Atom) -> Formula:
    """The formula that is an atom."""
    import numpy as np

    part = Part(one, 0, one.size)
    return Formula(np.zeros(one.size), {}, {(part.key,): ((part,), np.ones(one.size))})


def masked(one: Atom, size: int) -> Formula:
    """The formula that is a mask."""
    import numpy as np

    factor = Mask(one, size)
    return Formula(np.zeros(size), {}, {(factor.key,): ((factor,), np.ones(size))})


def constant(row: NDArray[Any]) -> Formula:
    """The formula of constants, [columns]."""
    import numpy as np

    return Formula(np.asarray(row, np.float64))
