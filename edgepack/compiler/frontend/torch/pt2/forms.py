"""Forms of JSON values: what a value may be, and a copy of it that consists of what was looked at.

A form is called with a value and with how many levels of nesting are left, and returns the copy. Schemas
(:mod:`.program`, :mod:`.payloads`) are tables of forms. What is not of its form raises :class:`RefusedError`,
which gets the keys on the way to it while it leaves the containers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = [
    "LEVELS",
    "Choice",
    "Constant",
    "Flag",
    "Form",
    "Integer",
    "Later",
    "ListOf",
    "Maybe",
    "Never",
    "NothingIn",
    "Real",
    "Record",
    "RefusedError",
    "TableOf",
    "Text",
    "Variant",
    "read",
    "said",
    "shown",
]

#: Of nesting that a file may have. A graph in a graph takes eight.
LEVELS = 150

#: Elements of a list, and entries of a table, that none is said of.
_MOST = 2_000_000


class RefusedError(Exception):
    """A value is not what it must be.

    Attributes:
        what: the end of a sentence that begins with its place.
        hint: what the user can do; "" for nothing in particular.
        instead: a sentence about the whole file in place of that one, with ``{model}`` in it.
    """

    def __init__(self, what: str, hint: str = "", instead: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.instead = instead
        self._keys: list[str | int] = []

    def inside(self, key: str | int) -> RefusedError:
        """The same of what contains it."""
        self._keys.append(key)
        return self

    def place(self) -> str:
        """The keys from the outermost one on: ``graph_module.graph.nodes[3].target``."""
        keys = self._keys[::-1]
        if len(keys) > 16:
            keys = [*keys[:4], "...", *keys[-8:]]
        return "".join(_step(key) for key in keys).removeprefix(".").replace(": .", ": ")


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if key.endswith(": "):  # an entry of the archive
        return key
    return f".{key}" if re.fullmatch(r"[\w.]{1,80}", key) else f"[{key!r:.80}]"


class Form(Protocol):
    """What a value may be."""

    def __call__(self, value: Any, levels: int) -> Any:
        """A copy of a value; RefusedError if it is another."""


def read(form: Form, value: Any) -> Any:
    """A copy of a value that is of a form. Raises RefusedError if it is not."""
    return form(value, LEVELS)


def shown(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    return f"{value!r:.80}"


def said(text: Any, longest: int = 100) -> str:
    """A text of the file as a part of a sentence, without quotes where it is a plain one."""
    short = str(text)[:longest]
    return short if short.isprintable() else repr(short)


def _one_of(names: Collection[Any]) -> str:
    listed = ", ".join(str(name) for name in list(names)[:12])
    return listed + (", ..." if len(names) > 12 else "")


@dataclass(frozen=True)
class Integer:
    """An integer in a range."""

    least: int = -(1 << 63)
    most: int = (1 << 64) - 1

    def __call__(self, value: Any, levels: int) -> int:
        del levels
        if type(value) is not int:
            raise RefusedError(f"is {shown(value)}, and an integer is meant")
        if not self.least <= value <= self.most:
            said = f"{value}" if abs(value) < 1 << 80 else f"of {value.bit_length()} bits"
            raise RefusedError(f"is {said}, which is not from {self.least} to {self.most}")
        return value


@dataclass(frozen=True)
class Real:
    """A number; what JSON has none of is a word."""

    def __call__(self, value: Any, levels: int) -> float | int | str:
        del levels
        if value in ("Infinity", "-Infinity", "NaN"):
            return str(value)
        if type(value) not in (int, float) or (type(value) is int and abs(value) >= 1 << 64):
            raise RefusedError(f"is {shown(value)}, and a number is meant")
        if isinstance(value, float) and not math.isfinite(value):
            raise RefusedError("is no number of JSON")
        found: float | int = value
        return found


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def __call__(self, value: Any, levels: int) -> bool:
        del levels
        if type(value) is not bool:
            raise RefusedError(f"is {shown(value)}, and true or false is meant")
        return value


@dataclass(frozen=True)
class Text:
    """A text that a function makes a copy of; None where it is another.

    Attributes:
        checked: what is left of the text.
        what: is meant, for messages: ``a name``.
        longest: characters.
    """

    checked: Callable[[str], str | None]
    what: str
    longest: int = 1000

    def __call__(self, value: Any, levels: int) -> str:
        del levels
        if not isinstance(value, str):
            raise RefusedError(f"is {shown(value)}, and {self.what} is meant")
        if len(value) > self.longest:
            raise RefusedError(
                f"is {value[:40]!r}..., of {len(value)} characters; {self.longest} are allowed"
            )
        copy = self.checked(value)
        if copy is None:
            raise RefusedError(f"is {shown(value)}, which is not {self.what}")
        return copy


@dataclass(frozen=True)
class Choice:
    """One of some texts or integers."""

    values: Collection[Any]

    def __call__(self, value: Any, levels: int) -> Any:
        del levels
        for one in self.values:
            if type(one) is type(value) and one == value:
                return one
        raise RefusedError(f"is {shown(value)}, and one of {_one_of(self.values)} is meant")


@dataclass(frozen=True)
class Constant:
    """Whatever it is: in its place stands a constant, for nothing needs it."""

    value: Callable[[], Any]

    def __call__(self, value: Any, levels: int) -> Any:
        del value, levels
        return self.value()


@dataclass(frozen=True)
class Never:
    """What is not read: why, as the end of a sentence."""

    why: str

    def __call__(self, value: Any, levels: int) -> Any:
        raise RefusedError(self.why)


@dataclass(frozen=True)
class NothingIn:
    """A table that must be empty."""

    why: str

    def __call__(self, value: Any, levels: int) -> dict[str, Any]:
        del levels
        if value != {}:
            raise RefusedError(self.why)
        return {}


@dataclass(frozen=True)
class Maybe:
    """null, or of a form."""

    form: Form

    def __call__(self, value: Any, levels: int) -> Any:
        return None if value is None else self.form(value, levels)


@dataclass(frozen=True)
class Later:
    """A form that is defined further down: graphs hold graphs."""

    form: Callable[[], Form]

    def __call__(self, value: Any, levels: int) -> Any:
        return self.form()(value, levels)


@dataclass(frozen=True)
class ListOf:
    """Values of one form."""

    form: Form
    most: int = _MOST

    def __call__(self, value: Any, levels: int) -> list[Any]:
        if not isinstance(value, list):
            raise RefusedError(f"is {shown(value)}, and a list is meant")
        if len(value) > self.most:
            raise RefusedError(f"is a list of {len(value)}; {self.most} are allowed")
        _deeper(levels)
        found = []
        for number, one in enumerate(value):
            try:
                found.append(self.form(one, levels - 1))
            except RefusedError as refused:
                refused.inside(number)
                raise
        return found


@dataclass(frozen=True)
class TableOf:
    """Values of one form, by keys of one form."""

    key: Form
    form: Form
    most: int = _MOST

    def __call__(self, value: Any, levels: int) -> dict[str, Any]:
        entries = _table(value, levels)
        if len(entries) > self.most:
            raise RefusedError(f"is a table of {len(entries)}; {self.most} are allowed")
        found = {}
        for name, one in entries.items():
            try:
                copy = self.key(name, levels - 1)
            except RefusedError as refused:
                raise RefusedError(f"has a key that {refused.what}", refused.hint, refused.instead) from None
            found[copy] = _inside(name, self.form, one, levels)
        return found


@dataclass(frozen=True)
class Record:
    """A table with known keys.

    Attributes:
        needed: forms of keys that it must have.
        optional: of others.
    """

    needed: Mapping[str, Form]
    optional: Mapping[str, Form] = field(default_factory=dict)

    def __call__(self, value: Any, levels: int) -> dict[str, Any]:
        entries = _table(value, levels)
        for name in entries:
            if name not in self.needed and name not in self.optional:
                raise RefusedError(f"has the key {shown(name)}, which is not known here")
        for name in self.needed:
            if name not in entries:
                raise RefusedError(f"has no {name!r}")
        forms = {**self.needed, **self.optional}
        return {name: _inside(name, forms[name], one, levels) for name, one in entries.items()}


@dataclass(frozen=True)
class Variant:
    """A table of one key, which says of what form the value is."""

    forms: Mapping[str, Form]

    def __call__(self, value: Any, levels: int) -> dict[str, Any]:
        entries = _table(value, levels)
        if len(entries) != 1:
            raise RefusedError(f"has {len(entries)} keys, and one of {_one_of(self.forms)} is meant")
        (name, one), *_ = entries.items()
        if name not in self.forms:
            raise RefusedError(f"has the key {shown(name)}, and one of {_one_of(self.forms)} is meant")
        return {name: _inside(name, self.forms[name], one, levels)}


def _table(value: Any, levels: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(f"is {shown(value)}, and a table is meant")
    _deeper(levels)
    return value


def _deeper(levels: int) -> None:
    if levels <= 0:
        raise RefusedError(f"is nested deeper than {LEVELS} levels")


def _inside(name: str, form: Form, value: Any, levels: int) -> Any:
    try:
        return form(value, levels - 1)
    except RefusedError as refused:
        refused.inside(name)
        raise
