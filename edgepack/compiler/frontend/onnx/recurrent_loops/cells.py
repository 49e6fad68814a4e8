"""The cells of ONNX's LSTM, GRU and RNN, found in the formulas of a trip's states.

The equations are those of the ONNX operators. Each of them is compared as a sum of products, so it does not
matter how a model writes it: ``(1 - z) * n + z * h`` is ``n + z * (h - n)``. A gate ``1 - sigmoid(a)`` is
``sigmoid(-a)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import (
    Atom,
    Factor,
    Formula,
    Function,
    Part,
    atom,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cell", "Gate", "State", "find_cell"]

#: The functions that ONNX's recurrent operators have; "" is none of them.
ACTIVATIONS = {
    *(
        "Elu",
        "HardSigmoid",
        "LeakyRelu",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Tanh",
        "ThresholdedRelu",
    ),
}


@dataclass(frozen=True)
class State:
    """A state of a loop.

    Attributes:
        atom: before the trip.
        result: behind it; None where that is not known.
    """

    atom: Atom
    result: Formula | None


@dataclass(frozen=True)
class Gate:
    """``inputs`` + h @ ``matrix`` + ``bias``.

    Attributes:
        inputs: formula of the elements of the sequences.
        matrix: float32 [size, size].
        bias: that of the product by the matrix alone, float64 [size], where it matters which one it is.
    """

    inputs: Formula
    matrix: NDArray[Any]
    bias: NDArray[Any] | None = None


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        hidden, memory: the states h and c (LSTM).
        gates: in ONNX's order.
        activations: names and numbers, in ONNX's order.
        peepholes: float64 [3, size], of an LSTM that has them.
    """

    operator: Literal["LSTM", "GRU", "RNN"]
    hidden: State
    memory: State | None
    gates: tuple[Gate, ...]
    activations: tuple[tuple[str, tuple[float, ...]], ...]
    linear_before_reset: bool = False
    peepholes: NDArray[Any] | None = None


def find_cell(states: Sequence[State]) -> Cell | None:
    """A cell of some of the states that depends on no other one."""
    for hidden in states:
        if hidden.result is None or hidden.result.is_known:
            continue
        for memory in states:
            if memory is not hidden and memory.result is not None:
                cell = _lstm(hidden, memory)
                if cell is not None:
                    return cell
        cell = _gru(hidden) or _rnn(hidden)
        if cell is not None:
            return cell
    return None


# Cells ----------------------------------------------------------------------------------------------------


def _lstm(hidden: State, memory: State) -> Cell | None:
    """c' = f * c + i * g, h' = o * function(c')."""
    assert hidden.result is not None and memory.result is not None
    if hidden.atom.size != memory.atom.size or len(hidden.result.products) != 1:
        return None
    ((factors, scale),) = hidden.result.products.values()
    if _terms(hidden.result) is None or not _is(scale, 1) or len(factors) != 2:
        return None
    for shown, gate in (factors, factors[::-1]):
        if not isinstance(shown, Function) or shown.argument.key != memory.result.key:
            continue
        for forget, taken, new in _blends(memory):
            cell = _lstm_of(hidden, memory, (taken, gate, forget, new), shown)
            if cell is not None:
                return cell
    return None


def _lstm_of(hidden: State, memory: State, found: Sequence[Factor], shown: Function) -> Cell | None:
    import numpy as np

    if not _are_activations([*found, shown]) or not _same_function(found[:3]):
        return None
    arguments = [one.argument for one in found if isinstance(one, Function)]
    looks = []
    assert memory.result is not None
    for index, seen in ((0, _before(memory)), (1, memory.result), (2, _before(memory))):
        arguments[index], peephole = _without(arguments[index], seen)
        looks.append(peephole)
    gates = _gates(arguments, hidden)
    functions = tuple(_named(one) for one in (found[0], found[3], shown))
    peepholes = np.stack(looks) if any(look.any() for look in looks) else None
    if gates is None:
        return None
    return Cell("LSTM", hidden, memory, gates, functions, peepholes=peepholes)


def _gru(hidden: State) -> Cell | None:
    """h' = z * h + (1 - z) * n; the reset gate is in n."""
    for update, taken, new in _blends(hidden):
        if not _are_opposite(update, taken) or not isinstance(new, Function):
            continue
        for reset, rest, state, linear in _resets(new.argument, hidden):
            if not _are_activations([update, reset, new]) or not _same_function([update, reset]):
                continue
            arguments = [one.argument for one in (update, reset) if isinstance(one, Function)]
            gates = _gates(arguments, hidden)
            if gates is not None and rest.is_known:
                last = Gate(rest, state.matrix, state.bias)
                functions = (_named(update), _named(new))
                return Cell("GRU", hidden, None, (*gates, last), functions, linear_before_reset=linear)
    return None


def _rnn(hidden: State) -> Cell | None:
    """h' = function(...)."""
    assert hidden.result is not None
    function = hidden.result.as_function
    if function is None or not _are_activations([function]):
        return None
    gates = _gates([function.argument], hidden)
    return None if gates is None else Cell("RNN", hidden, None, gates, (_named(function),))


# Their equations ------------------------------------------------------------------------------------------


def _blends(state: State) -> Iterator[tuple[Factor, Factor, Factor]]:
    """f, i and g of a result that is f * state + i * g; i may be 1 - f, or f may be 1 - i."""
    terms = _terms(state.result) if state.result is not None else None
    if terms is None:
        return
    own = Part(state.atom, 0, state.atom.size).key
    kept = [([f for f in factors if f.key != own], s) for factors, s in terms if own in _keys(factors)]
    added = [(list(factors), s) for factors, s in terms if own not in _keys(factors)]
    signs = sorted(sign for _, sign in kept), sorted(sign for _, sign in added)
    kept.sort(key=lambda one: len(one[0]))
    added.sort(key=lambda one: len(one[0]))
    lengths = [len(factors) for factors, _ in kept], [len(factors) for factors, _ in added]
    if lengths == ([1], [2]) and signs == ([1], [1]):  # f * c + i * g
        (forget,), (one, other) = kept[0][0], added[0][0]
        yield forget, one, other
        yield forget, other, one
    elif lengths == ([1], [1, 2]) and [added[0][1], added[1][1], kept[0][1]] == [1, -1, 1]:  # f*c + g - f*g
        (forget,), (new,) = kept[0][0], added[0][0]
        taken = _opposite(forget)
        if taken is not None and sorted(_keys(added[1][0])) == sorted((forget.key, new.key)):
            yield forget, taken, new
    elif lengths == ([0, 1], [2]) and [kept[0][1], kept[1][1], added[0][1]] == [1, -1, 1]:  # c - i*c + i*g
        (given,), pair = kept[1][0], added[0][0]
        forget_gate = _opposite(given)
        others = [one for one in pair if one.key != given.key]
        if forget_gate is not None and len(others) == 1:
            yield forget_gate, given, others[0]


def _terms(formula: Formula) -> list[tuple[tuple[Factor, ...], int]] | None:
    """A formula as products of factors and their signs; None of one that is more than that."""
    if formula.matrices or formula.bias.any():
        return None
    signed = [
        (factors, 1 if _is(c, 1) else -1 if _is(c, -1) else 0) for factors, c in formula.products.values()
    ]
    return signed if all(sign for _, sign in signed) else None


def _resets(argument: Formula, hidden: State) -> Iterator[tuple[Factor, Formula, Gate, bool]]:
    """The reset gate in the argument of a GRU's hidden gate; all else in it, which is of the inputs; the
    product of the state; and whether that product is made before the gate is applied."""
    import numpy as np

    own = Part(hidden.atom, 0, hidden.atom.size).key
    nothing = Formula(np.zeros(argument.size))
    for name, (one, matrix) in argument.matrices.items():
        inner = _terms(one.formula) if one.formula is not None else None
        if inner is None or len(inner) != 1 or inner[0][1] != 1 or own not in _keys(inner[0][0]):
            continue
        gates = [factor for factor in inner[0][0] if factor.key != own]
        if len(gates) == 1:
            others = {key: value for key, value in argument.matrices.items() if key != name}
            rest = Formula(argument.bias, others, argument.products)
            yield gates[0], rest, Gate(nothing, matrix), False
    for keys, (factors, scale) in argument.products.items():
        if len(factors) != 2 or not _is(scale, 1):
            continue
        for reset, linear in (factors, factors[::-1]):
            if not isinstance(linear, Function) or linear.name:
                continue
            own_product = linear.argument.matrices.get(hidden.atom.key)
            if own_product is None or len(linear.argument.matrices) != 1 or linear.argument.products:
                continue
            products = {key: value for key, value in argument.products.items() if key != keys}
            rest = Formula(argument.bias, argument.matrices, products)
            yield reset, rest, Gate(nothing, own_product[1], linear.argument.bias), True


def _gates(arguments: Sequence[Formula], hidden: State) -> tuple[Gate, ...] | None:
    """Each as a formula of the inputs and a product of the state; None where one is more than that."""
    import numpy as np

    found, own = [], hidden.atom
    for argument in arguments:
        _, matrix = argument.matrices.get(own.key, (own, np.zeros((own.size, own.size), np.float32)))
        others = {key: value for key, value in argument.matrices.items() if key != own.key}
        products = dict(argument.products)
        for keys, (factors, c) in argument.products.items():
            if len(factors) == 1 and isinstance(factors[0], Part) and factors[0].atom.key == own.key:
                matrix = matrix.copy()
                rows = factors[0].start + np.arange(factors[0].size)
                matrix[rows, np.arange(argument.size)] += c.astype(np.float32)
                del products[keys]
        rest = Formula(argument.bias, others, products)
        if not rest.is_known or matrix.shape != (own.size, own.size):
            return None
        found.append(Gate(rest, matrix))
    return tuple(found)


def _without(argument: Formula, seen: Formula) -> tuple[Formula, NDArray[Any]]:
    """A gate's argument without what it sees of a cell's state through a peephole, and the peephole."""
    import numpy as np

    (keys, (_, scale)) = next(iter(seen.products.items()))
    if keys not in argument.products:
        return argument, np.zeros(argument.size)
    peephole = argument.products[keys][1] * scale  # the scales of what is seen are 1 or -1
    return argument.plus(seen.scaled(-peephole)), peephole


def _before(state: State) -> Formula:
    """The formula that is the state before the trip."""
    return atom(state.atom)


# Their functions ------------------------------------------------------------------------------------------


def _opposite(one: Factor) -> Function | None:
    """1 - a gate, as a function of the same name: of -a, or for a hard sigmoid of 1 - a."""
    if not isinstance(one, Function):
        return None
    if one.name == "Sigmoid":
        return Function(one.name, one.argument.scaled(-1.0), one.numbers)
    if one.name != "HardSigmoid":
        return None
    turned = one.argument.scaled(-1.0)
    return Function(one.name, Formula(turned.bias + 1.0, turned.matrices, turned.products), one.numbers)


def _are_opposite(one: Factor, other: Factor) -> bool:
    """Whether one is 1 - the other; 1 - (1 - a) may differ from a by a rounding error."""
    pairs = (_opposite(one), other), (_opposite(other), one)
    return any(turned is not None and turned.key == given.key for turned, given in pairs)


def _are_activations(found: Sequence[Factor]) -> bool:
    return all(isinstance(one, Function) and one.name in ACTIVATIONS for one in found)


def _same_function(found: Sequence[Factor]) -> bool:
    return len({_named(one) for one in found}) == 1


def _named(one: Factor) -> tuple[str, tuple[float, ...]]:
    assert isinstance(one, Function)
    return one.name, one.numbers


def _keys(factors: Sequence[Factor]) -> list[str]:
    return [one.key for one in factors]


def _is(scale: NDArray[Any], value: int) -> bool:
    return bool((scale == value).all())
