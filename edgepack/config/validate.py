"""Checks what was read against its model: each mistake is told with file, line, the field, what was found and
what is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from edgepack.config.document import Document, KeyPath, Origin
from edgepack.errors import ConfigError

__all__ = ["nearest", "shortened", "validate"]

Model = TypeVar("Model", bound=BaseModel)
_LONGEST_SHOWN = 300
#: Pydantic's words, a pattern, and what they are in YAML.
_WORDS = {
    r"a valid tuple": "a list",
    r"a valid dictionary( or instance of \w+)?": "a mapping",
    r"a valid string": "a text",
    r"a valid integer": "a whole number",
    r"a valid boolean": "true or false",
}


def nearest(word: str, words: list[str], most: int = 3) -> str:
    """The words most like ``word``, quoted: ``'a' or 'b'``; "" if none is near."""
    lower = {w.lower(): w for w in words}
    sought = word.lower()
    near = get_close_matches(sought, list(lower), n=4 * most, cutoff=0.55)

    def rank(name: str) -> tuple[float, int, str]:  # of those that are as near, what begins alike
        likeness = SequenceMatcher(None, name, sought).ratio()
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, sought, strict=False)))
        return (-likeness, -alike, name)

    near = [lower[name] for name in sorted(near, key=rank)[:most]]
    return " or ".join(repr(w) for w in near)


def validate(model: type[Model], document: Document, *, extends: bool = False) -> Model:
    """The model of a document. ConfigError has file, line and field of the first mistake, then the others:
    what is missing comes last, for a key that is misspelt says why.

    Args:
        extends: whether such a file may extend another one.
    """
    try:
        return model.model_validate(_tuples(document.data))
    except ValidationError as error:
        mistakes = [_explain(model, document, e) for e in error.errors(include_url=False)]
    order = sorted(mistakes, key=lambda one: (one.origin.source, one.missing, one.origin.line))
    first = f"{order[0].origin}: {shortened(order[0].text)}"
    others = ["; ".join(filter(None, (f"{x.origin}: {shortened(x.text)}", x.near))) for x in order[1:]]
    hint = " ".join(part[:1].upper() + part[1:] for part in (order[0].near, order[0].hint) if part)
    if order[0].missing and extends:
        hint = hint.removesuffix(".") + ", or `extends:` a file that has it."
    raise ConfigError(first, hint=hint, detail="\n".join(others))


@dataclass(frozen=True)
class _Mistake:
    """What is wrong, in a sentence, and what to try; ``near``: names that may be meant, as a question."""

    origin: Origin
    text: str
    hint: str = ""
    near: str = ""
    missing: bool = False


def _explain(model: type[BaseModel], document: Document, error: Any) -> _Mistake:
    """One of pydantic's error records."""
    path: KeyPath = tuple(
        part for part in error["loc"] if part != "[key]"
    )  # a mapping's key is what is wrong
    name = ".".join(str(part) for part in path) or "the file"
    kind, found = error["type"], error["input"]
    if kind == "extra_forbidden":
        allowed = _fields(model, path[:-1])
        near = nearest(str(path[-1])[:80], allowed)
        return _Mistake(
            document.origin(path),
            f"{name}: unknown key",
            f"Allowed here: {', '.join(allowed)}.",
            f"did you mean {near}?" if near else "",
        )
    if kind == "missing":
        hint = f"Add `{path[-1]}:`."
        return _Mistake(document.origin(path[:-1]), f"{name}: is missing", hint, missing=True)
    if kind == "value_error":
        if not path:  # a check over several fields: its text names the one to look at
            name, _, text = str(error["ctx"]["error"]).partition(": ")
            where = tuple(int(part) if part.isdigit() else part for part in name.split("."))
            return _Mistake(document.origin(where), f"{name}: {text}")
        return _Mistake(document.origin(path), f"{name}: {error['ctx']['error']}")
    text = re.sub(r"^Input should be ", "must be ", error["msg"])
    for theirs, ours in _WORDS.items():
        text = re.sub(theirs, ours, text)
    hint = ""
    if kind == "string_type" and isinstance(found, (int, float)):
        hint = f'Put it in quotes: "{found}".'
    elif kind == "model_type":
        hint = f"Write `key: value` lines below it: {', '.join(_fields(model, path))}."
    elif kind == "dict_type":
        hint = "Write each entry as a line of its own below it: `name:`, or `name: value`."
    return _Mistake(document.origin(path), f"{name}: {text}, found {_show(found)}", hint)


def shortened(text: str) -> str:
    """A text of others as a message shows it: its beginning, if it is long."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _show(found: Any) -> str:
    """A found value as the user wrote it in YAML."""
    if isinstance(found, dict):
        return "a mapping"
    if isinstance(found, (list, tuple)):
        return "a list"
    if found is None:
        return "nothing"
    return str(found).lower() if isinstance(found, bool) else repr(found)


def _fields(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Keys that are allowed at ``path``, those first that must be there."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[str(part)].annotation
        else:  # dict[str, X] or tuple[X, ...]
            inner = [a for a in get_args(current) if isinstance(a, type) and issubclass(a, BaseModel)]
            current = inner[0]
    return sorted(current.model_fields, key=lambda key: not current.model_fields[key].is_required())


def _tuples(value: Any) -> Any:
    """Lists as tuples: what frozen models hold, and what strict validation wants."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value
