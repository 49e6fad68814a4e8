"""YAML text -> plain data, with the file and line of every value.

Scalars follow YAML 1.2's core schema: only ``true`` and ``false`` are booleans, so ``no`` stays a word,
``1:30`` stays text, and ``010`` is ten.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from edgepack.errors import ConfigError
from edgepack.system.files import read_regular

__all__ = ["Document", "KeyPath", "Origin", "merge", "parse", "read"]

try:
    from yaml import CSafeLoader as _Base
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as _Base  # type: ignore[assignment]

#: Where a value stands in a document: mapping keys and list indices from the top.
KeyPath = tuple[str | int, ...]

#: Control characters, and halves of characters.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"
#: Values in one file, aliases counted each time: more is a mistake or an attack ("billion laughs").
_MOST_VALUES = 2_000
#: Lists and mappings inside each other; what reads them afterwards goes down by calls.
_DEEPEST = 32
#: Bytes of a file, characters of one value.
_LARGEST = 256 << 10
_LONGEST = 10_000
_INT64 = 1 << 63


class _Loader(_Base):
    """Composes nodes; its implicit tags are those of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (PyYAML's own protocol)


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), _first)


@dataclass(frozen=True)
class Origin:
    """Where a value comes from. ``line`` counts from 1; 0 for what was not read from a line of a file."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True)
class Document:
    """A mapping, and where each of its values stands. ``origins[()]`` is the document itself."""

    data: dict[str, Any]
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """The origin of ``path``, or of the nearest thing around it that is there."""
        while path and path not in self.origins:
            path = path[:-1]
        return self.origins[path]


def read(path: Path) -> Document:
    """The document in a file. Raises ConfigError with file and line."""
    try:
        content = read_regular(path, _LARGEST)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text ({error.reason})") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> Document:
    """The document in ``text``; ``source`` names it in errors. Raises ConfigError with source and line."""
    try:
        _check_extent(text, source)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, source) from None
    if node is None:
        raise ConfigError(
            f"{source}: is empty", hint="Write `key: value` lines; a device may have `extends:`."
        )
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{source}:{node.start_mark.line + 1}: expected `key: value` lines at the top")
    reader = _Reader(source)
    data = reader.value(node, ())
    assert isinstance(data, dict)
    return Document(data, reader.origins)


def _check_extent(text: str, source: str) -> None:
    """Raise ConfigError for a text that is nested too deep, or has too much in it, to be composed."""
    loader = _Loader(text)
    depth = count = 0
    try:
        while loader.check_event():
            event = loader.get_event()
            assert event is not None
            assert event.start_mark is not None
            count += 1
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            where = f"{source}:{event.start_mark.line + 1}"
            if depth > _DEEPEST:
                raise ConfigError(f"{where}: more than {_DEEPEST} lists and mappings inside each other")
            if count > 3 * _MOST_VALUES:
                raise ConfigError(f"{where}: more than {_MOST_VALUES} values in one file")
    finally:
        loader.dispose()


def merge(base: Document, over: Document) -> Document:
    """``over`` laid on ``base``: mappings are merged key by key, anything else (lists too) is replaced."""
    taken: set[KeyPath] = set()
    data = _merge(base.data, over.data, (), taken)
    origins = {
        path: origin
        for path, origin in base.origins.items()
        if any(path[:length] in taken for length in range(1, len(path) + 1))
    }
    return Document(data, origins | over.origins)


def _merge(
    under: Mapping[str, Any], over: Mapping[str, Any], path: KeyPath, taken: set[KeyPath]
) -> dict[str, Any]:
    """The merged mapping at ``path``; what it takes from ``under`` is added to ``taken``."""
    result = dict(over)
    for key, value in under.items():
        if key not in over:
            result[key] = value
            taken.add((*path, key))
        elif isinstance(value, dict) and isinstance(over[key], dict):
            result[key] = _merge(value, over[key], (*path, key), taken)
    # The base's order first: what `edgepack devices NAME` prints reads the same for all devices of a family.
    return {key: result[key] for key in (*under, *(k for k in over if k not in under))}


class _Reader:
    """Turns composed nodes into plain data and notes where each value stands."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.origins: dict[KeyPath, Origin] = {}
        self.open: list[yaml.Node] = []

    def fail(self, node: yaml.Node, path: KeyPath, text: str, hint: str = "") -> ConfigError:
        where = ".".join(str(part) for part in path)
        return ConfigError(
            f"{self.source}:{node.start_mark.line + 1}: {where + ': ' if where else ''}{text}", hint=hint
        )

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if len(self.origins) > _MOST_VALUES:
            raise self.fail(node, path, f"more than {_MOST_VALUES} values in one file")
        if node in self.open:
            raise self.fail(node, path, "an alias (*) stands inside what it names")
        self.origins[path] = Origin(self.source, node.start_mark.line + 1)
        self.open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                if node.tag != _TAG + "seq":
                    raise self.fail(node, path, f"the tag {node.tag} is not allowed here")
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.ScalarNode)
            return self.scalar(node, path)
        finally:
            self.open.pop()

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        if node.tag != _TAG + "map":
            raise self.fail(node, path, f"the tag {node.tag} is not allowed here")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fail(key_node, path, "a key must be one word")
            key = key_node.value
            here = (*path, key)
            self.check_text(key_node, path, key)
            if key in result:
                raise self.fail(key_node, here, f"is given twice (first in line {self.origins[here].line})")
            result[key] = self.value(value_node, here)
            # A block value begins on the line below its key; the key is what a reader looks for.
            self.origins[here] = Origin(self.source, key_node.start_mark.line + 1)
        return result

    def check_text(self, node: yaml.Node, path: KeyPath, text: str) -> None:
        if len(text) > _LONGEST:
            raise self.fail(node, path, f"has more than {_LONGEST} characters")
        if bad := _NO_TEXT.search(text):
            raise self.fail(node, path, f"holds the character {bad[0]!r}, which no value has")

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text: str = node.value
        self.check_text(node, path, text)
        kind = node.tag.removeprefix(_TAG)
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                number = int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
                if -_INT64 <= number < _INT64:
                    return number
            elif kind == "float":
                real = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                if math.isfinite(real):
                    return real
        except (KeyError, ValueError):
            pass
        if kind in {"bool", "int", "float"}:
            raise self.fail(node, path, f"{text[:80]!r} is not a valid {kind}")
        raise self.fail(node, path, f"the tag {node.tag} is not allowed here")


def _syntax_error(error: yaml.YAMLError, text: str, source: str) -> ConfigError:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        context = f" {error.context}" if error.context else ""
        return ConfigError(
            f"{source}:{line}: is not valid YAML: {error.problem or 'syntax error'}{context}",
            hint="Indent with spaces, and write `key: value` with a space after the colon.",
        )
    reason = str(error).splitlines()[0]
    line = 1
    if isinstance(error, yaml.reader.ReaderError):
        line += text.encode("utf-8", "replace").count(b"\n", 0, error.position)
    return ConfigError(f"{source}:{line}: is not valid YAML: {reason}")
