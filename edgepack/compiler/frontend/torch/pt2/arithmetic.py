"""Symbolic sizes: arithmetic of small numbers, which PyTorch has SymPy evaluate as Python.

``sympy.sympify`` is Python's ``eval``, and computes what it reads at once. So a size is taken apart here, by
a grammar of its own, and written anew from its parts. How large its numbers and how long its sums can become
is bounded beforehand. Names of functions are PyTorch's (torch/utils/_sympy/functions.py) and SymPy's, as its
``srepr`` prints them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

__all__ = ["SYMBOL", "rewritten"]

#: A token. Symbols and floats in quotes are what ``srepr`` writes; nothing is an attribute.
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<quoted>'[\w.+-]{1,80}')|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<other>\*\*|//|[<>=!]=|[-+*/%(),=<>&|~]))",
    re.ASCII,
)
#: ``s77``; PyTorch counts up to the number of one that the data decide (``u3``).
SYMBOL = re.compile(r"(?:s|u|z|sf|uf|zf|zuf)\d{1,6}", re.ASCII)

_FLOAT = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?(?:e[+-]?\d{1,3})?", re.ASCII)

_LONGEST, _DEEPEST = 10_000, 40
#: Digits of a number, the largest exponent, bits of a result, summands of a product that is written out.
_DIGITS, _EXPONENT, _BITS, _TERMS = 19, 16, 2048, 2000
#: Of a symbol: a size or a number of the data.
_SYMBOL_BITS = 63
#: Piecewise functions in each other, for SymPy tries each piece of one with each of the others.
_PIECES = 100

#: Functions whose result is no larger than an operand.
_REDUCING = re.compile(
    "Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|CeilToInt|FloorToInt|TruncToInt|RoundToInt"
    "|ToFloat|IntTrueDiv|FloatTrueDiv|ModularIndexing|Where|Identity|RShift|Abs|ceiling|floor"
    "|Piecewise|ExprCondPair|And|Or|Not|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|StrictLessThan"
    "|StrictGreaterThan|LessThan|GreaterThan|Integer|Float|Rational"
)
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow"})
_ASSUMED = re.compile("positive|integer|nonnegative|real|nonzero|zero|finite|negative|extended_real")
_WORDS = frozenset({"True", "False", "true", "false", "oo", "int_oo"})

#: Binary operators, from those that bind least on; all of one row read from the left.
_ROWS = (("|",), ("&",), ("==", "!=", "<", ">", "<=", ">="), ("+", "-"), ("*", "/", "//", "%"))


class _NoArithmeticError(Exception):
    """A size is no arithmetic."""


@dataclass(frozen=True)
class _Part:
    """A part of a size as text, bounds of its result in bits and summands, its value if it is written, and
    how many pieces of functions are in it."""

    text: str
    bits: int = 1
    terms: int = 1
    literal: int | None = None
    pieces: int = 0


@lru_cache(maxsize=4096)
def rewritten(text: str) -> str | None:
    """A size, written anew; None if it is no arithmetic of small numbers."""
    if len(text) > _LONGEST:
        return None
    try:
        return _Reader(text).whole().text
    except _NoArithmeticError:
        return None


class _Reader:
    """Reads one size by recursive descent."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise _NoArithmeticError
            kind = str(found.lastgroup)
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.at = 0
        self.depth = 0

    def whole(self) -> _Part:
        """All of it."""
        part = self._row(0)
        if self.at < len(self.tokens):
            raise _NoArithmeticError
        return part

    def _next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("", "")

    def _take(self, *others: str) -> str:
        """The next token if it is one of these, else ""."""
        kind, text = self._next()
        if kind == "other" and text in others:
            self.at += 1
            return text
        return ""

    def _row(self, row: int) -> _Part:
        if row == len(_ROWS):
            return self._unary()
        left = self._row(row + 1)
        texts = [left.text]
        while operator := self._take(*_ROWS[row]):
            right = self._row(row + 1)
            left = _bounded(_combined(operator, left, right), "")
            texts += [operator, right.text]
        return left if len(texts) == 1 else replace(left, text=f"({' '.join(texts)})")

    def _unary(self) -> _Part:
        if operator := self._take("-", "+", "~"):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise _NoArithmeticError
            part = self._unary()
            self.depth -= 1
            literal = None if part.literal is None or operator == "~" else part.literal
            negated = -literal if literal is not None and operator == "-" else literal
            return replace(part, text=f"({operator}{part.text})", literal=negated)
        return self._power()

    def _power(self) -> _Part:
        base = self._operand()
        if not self._take("**"):
            return base
        exponent = self._unary()
        return _power(base, exponent, f"({base.text} ** {exponent.text})")

    def _operand(self) -> _Part:
        kind, text = self._next()
        self.at += 1
        if kind == "number":
            if len(text) > _DIGITS:
                raise _NoArithmeticError
            literal = int(text) if text.isdigit() else None
            return _Part(text if literal is None else str(literal), 64, 1, literal)
        if kind == "other" and text == "(":
            self._deeper()
            part = self._row(0)
            self._close()
            return part
        if kind != "name":
            raise _NoArithmeticError
        if self._next() == ("other", "("):
            self.at += 1
            self._deeper()
            part = self._call(text)
            self.depth -= 1
            return part
        if SYMBOL.fullmatch(text) or text in _WORDS:
            return _Part(text, _SYMBOL_BITS)
        raise _NoArithmeticError

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NoArithmeticError

    def _close(self) -> None:
        if not self._take(")"):
            raise _NoArithmeticError
        self.depth -= 1

    def _call(self, name: str) -> _Part:
        """The function's operands, behind its opening bracket."""
        if name == "Symbol":
            return self._symbol()
        if name == "Float" and self._next()[0] == "quoted":
            return self._float()
        operands: list[_Part] = []
        while not self._take(")"):
            if operands and not self._take(","):
                raise _NoArithmeticError
            operands.append(self._row(0))
        if not operands:
            raise _NoArithmeticError
        return _called(name, operands)

    def _symbol(self) -> _Part:
        """``'s77', positive=True, integer=True)``."""
        kind, text = self._next()
        self.at += 1
        if kind != "quoted" or not SYMBOL.fullmatch(text[1:-1]):
            raise _NoArithmeticError
        written = [text]
        while not self._take(")"):
            comma, (kind, assumed) = self._take(","), self._next()
            self.at += 1
            equals, (_, truth) = self._take("="), self._next()
            self.at += 1
            if not comma or not equals or not _ASSUMED.fullmatch(assumed) or truth not in ("True", "False"):
                raise _NoArithmeticError
            written.append(f"{assumed}={truth}")
        return _Part(f"Symbol({', '.join(written)})", _SYMBOL_BITS)

    def _float(self) -> _Part:
        """``'1.5', precision=53)``."""
        text = self._next()[1]
        self.at += 1
        rest = [self._next_text() for _ in range(5)]
        if not _FLOAT.fullmatch(text[1:-1]) or rest != [",", "precision", "=", "53", ")"]:
            raise _NoArithmeticError
        return _Part(f"Float({text}, precision=53)", 64)

    def _next_text(self) -> str:
        text = self._next()[1]
        self.at += 1
        return text


def _combined(operator: str, left: _Part, right: _Part) -> _Part:
    pieces = left.pieces + right.pieces
    if operator in ("+", "-"):
        return _Part("", max(left.bits, right.bits) + 1, left.terms + right.terms, None, pieces)
    if operator in ("*", "/"):
        return _Part("", left.bits + right.bits, left.terms * right.terms, None, pieces)
    return _Part("", max(left.bits, right.bits), 1, None, pieces)


def _called(name: str, operands: list[_Part]) -> _Part:
    text = f"{name}({', '.join(one.text for one in operands)})"
    widest, pieces = max(one.bits for one in operands), sum(one.pieces for one in operands)
    if name in ("Add", "Mul"):
        whole = operands[0]
        for one in operands[1:]:
            whole = _combined("+" if name == "Add" else "*", whole, one)
        return _bounded(whole, text)
    if name in _POWERS and len(operands) == 2:
        return _power(operands[0], operands[1], text)
    if name == "LShift" and len(operands) == 2 and operands[1].literal in range(64):
        return _bounded(_Part("", operands[0].bits + 64, operands[0].terms, None, pieces), text)
    if name == "RoundDecimal" and len(operands) == 2 and abs(operands[1].literal or 0) <= _DIGITS:
        return _Part(text, widest, 1, None, pieces)
    if _REDUCING.fullmatch(name):
        literal = operands[0].literal if name == "Integer" and len(operands) == 1 else None
        pieces += len(operands) if name == "Piecewise" else 0
        return _bounded(_Part("", widest, 1, literal, pieces), text)
    raise _NoArithmeticError


def _power(base: _Part, exponent: _Part, text: str) -> _Part:
    """A power: of an exponent that is written there, for a base that is a number is raised at once."""
    size = abs(exponent.literal) if exponent.literal is not None else 0
    half = exponent.text in ("Rational(1, 2)", "(1 / 2)", "0.5")
    if not (half or (exponent.literal is not None and size <= _EXPONENT)):
        raise _NoArithmeticError
    return _bounded(_Part("", base.bits * max(size, 1), base.terms ** max(size, 1), None, base.pieces), text)


def _bounded(part: _Part, text: str) -> _Part:
    if part.bits > _BITS or part.terms > _TERMS or part.pieces > _PIECES:
        raise _NoArithmeticError
    return replace(part, text=text)
