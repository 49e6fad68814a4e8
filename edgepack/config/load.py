"""One loader for everything that a user writes: find the file, follow ``extends``, check it.

Whatever is wrong becomes a ConfigError with file, line, the field, what was found and what is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from edgepack.config.document import Document, KeyPath, Origin, merge, read
from edgepack.config.models import SUFFIXES
from edgepack.errors import ConfigError
from edgepack.system.files import as_text, is_file

__all__ = ["Kind", "Resolved", "nearest", "validate"]

Model = TypeVar("Model", bound=BaseModel)
_LONGEST_CHAIN = 16
_LONGEST_SHOWN = 300
#: Pydantic's words, a pattern, and what they are in YAML.
_WORDS = {
    r"a valid tuple": "a list",
    r"a valid dictionary( or instance of \w+)?": "a mapping",
    r"a valid string": "a text",
    r"a valid integer": "a whole number",
    r"a valid boolean": "true or false",
}


@dataclass(frozen=True)
class Resolved(Generic[Model]):
    """A loaded file: its model, where each value came from, and the files it is made of (itself first)."""

    model: Model
    document: Document
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Kind(Generic[Model]):
    """A sort of configuration file.

    Attributes:
        noun: what a user calls it (``device``).
        model: what it must fit.
        directory: the folder of the built-in ones.
        path_env: environment variable with folders of the user's own ones; these come first.
        command: prints the known names; for hints.
        detect: by what a file says of ``detect`` (true, or a word): the values that this machine gives, found
            at load time.
        impossible: why there can be none of a name, as a sentence's end; "" for any other.
        aliases: by a further name: what a file of that name would say. A file of that name comes first.
    """

    noun: str
    model: type[Model]
    directory: Path
    path_env: str
    command: str
    detect: Mapping[bool | str, Callable[[], dict[str, Any]]] = field(default_factory=dict)
    impossible: Callable[[str], str] = lambda _: ""
    aliases: Callable[[], Mapping[str, Document]] = dict

    def folders(self) -> list[Path]:
        """Where names are looked for, in order: the folders of ``path_env``, then the built-in one."""
        own = [_expanded(p) for p in os.environ.get(self.path_env, "").split(os.pathsep) if p]
        return [*own, self.directory]

    def names(self) -> list[str]:
        """All names that can be loaded, sorted."""
        found = {
            path.stem for folder in self.folders() for path in _entries(folder) if path.suffix in SUFFIXES
        }
        return sorted(found)

    def known(self, name: str) -> Model | None:
        """The model of a name, never of a path, whoever gives it; None if there is none of this name."""
        if _is_path(name):
            return None
        return self.load(name).model if name in self.names() or self._alias(name) else None

    def load(self, name_or_path: str | os.PathLike[str]) -> Resolved[Model]:
        """The model of a name, or of a path (anything that ends in .yaml or .yml, or holds a separator)."""
        text = os.fspath(name_or_path)
        files: list[Path] = []
        if (path := self._find(text, Path(), without=None)) is not None:
            document = self._document(path, files)
            document.data.setdefault("name", as_text(path.stem))
        elif (alias := self._alias(text)) is not None:
            document = self._document(_source(alias), files, alias)
            document.data["name"] = text
        else:
            raise self._unknown(text, where="")
        _anchor(document, document.data, ())
        return Resolved(validate(self.model, document, extends=True), document, tuple(files))

    def inline(self, name: str, document: Document, at: KeyPath) -> Model:
        """The model of a mapping at ``at`` in another file: what differs from the one that it extends, or
        from the one of its name. ConfigError has file and line."""
        given = document.data
        for part in at:
            given = given[str(part)] or {}
        length = len(at)
        origins = {path[length:]: line for path, line in document.origins.items() if path[:length] == at}
        own = Document(dict(given), origins)
        for key in ("name", "detect"):
            if key in own.data:
                raise ConfigError(f"{own.origin((key,))}: {'.'.join(map(str, at))}.{key}: not allowed here")
        base = own.data.pop("extends", name)
        if base == name and name not in self.names() and self._alias(name) is None:
            raise self._unknown(name, where=f"{origins[()]}: {'.'.join(map(str, at))}: ")
        if not given:
            return self.load(name).model
        merged = merge(self._base(own, base, Path(origins[()].source), []), own)
        merged.data["name"] = name
        _anchor(merged, merged.data, ())
        return validate(self.model, merged, extends=True)

    def _alias(self, name: str) -> Document | None:
        """What a file of an alias's name would say; None where it is none. The caller may change it."""
        found = None if _is_path(name) else self.aliases().get(name)
        return None if found is None else Document(dict(found.data), dict(found.origins))

    def _document(self, path: Path, chain: list[Path], said: Document | None = None) -> Document:
        """A file with all that it extends, added to ``chain``; ``said``: what of the file counts."""
        chain.append(path.resolve())
        if len(chain) > _LONGEST_CHAIN:
            raise ConfigError(
                f"{path}: more than {_LONGEST_CHAIN} files that extend each other, from {chain[0]} on",
                hint="Extend one that is nearer to the end.",
            )
        document = read(path) if said is None else said
        base = document.data.pop("extends", None)
        detect = document.data.pop("detect", False)
        if detect is not False:
            where = document.origin(("detect",))
            if not self.detect:
                raise ConfigError(f"{where}: detect: only a device can be detected, not a {self.noun}")
            if detect is not True and (not isinstance(detect, str) or detect not in self.detect):
                words = ", ".join(word for word in self.detect if isinstance(word, str))
                raise ConfigError(f"{where}: detect: must be true, {words} or be left out, found {detect!r}")
            if base is not None:
                raise ConfigError(
                    f"{where}: detect: what a file extends is found out too; drop one of the two"
                )
            document = merge(self._detected(self.detect[detect], chain), document)
        elif base is not None:
            document = merge(self._base(document, base, path, chain), document)
        return document

    def _detected(self, detect: Callable[[], dict[str, Any]], chain: list[Path]) -> Document:
        found = _located(detect(), Origin("this machine"))
        base = self.directory / (found.data.pop("extends") + ".yaml")
        if not base.is_file():
            raise ConfigError(
                f"this machine is of the kind {base.stem}, for which edgepack has no {self.noun} yet",
                hint=f"Name another {self.noun}; `{self.command}` lists them.",
            )
        return merge(self._inherited(base, chain), found)

    def _base(self, document: Document, base: Any, path: Path, chain: list[Path]) -> Document:
        where = document.origin(("extends",))
        if not isinstance(base, str):
            raise ConfigError(f"{where}: extends: expected the name of one {self.noun}, found {base!r}")
        # A user's file may refine the built-in one of its own name.
        found = self._find(base, path.parent, without=path if base == path.stem else None, where=where)
        if found is None and base == path.stem:
            found = path
        alias = self._alias(base) if found is None else None
        if alias is not None:
            found = _source(alias)
        if found is None:
            raise self._unknown(base, where=f"{where}: extends: ")
        if found.resolve() in chain:
            round_trip = " -> ".join([*(p.stem for p in chain), found.stem])
            raise ConfigError(
                f"{where}: extends: {base!r} leads back to itself ({round_trip})",
                hint="One of these files must not extend the next.",
            )
        return self._inherited(found, chain, alias)

    def _inherited(self, path: Path, chain: list[Path], said: Document | None = None) -> Document:
        under = self._document(path, chain, said)
        for key in ("name", "description"):  # these say what a file is, so they are not inherited
            under.data.pop(key, None)
        return under

    def _find(
        self, text: str, relative_to: Path, without: Path | None, where: Origin | None = None
    ) -> Path | None:
        if _is_path(text):
            path = _expanded(text)
            path = path if path.is_absolute() else relative_to / path
            if not is_file(path):
                raise ConfigError(
                    (f"{where}: extends: " if where else "") + f"there is no {self.noun} file {path}",
                    hint=f"`{self.command}` lists the {self.noun}s that need no file.",
                )
            return path
        for folder in self.folders():
            for suffix in SUFFIXES:
                path = folder / (text + suffix)
                if is_file(path) and not (without and path.samefile(without)):
                    return path
        return None

    def _unknown(self, text: str, *, where: str) -> ConfigError:
        if reason := self.impossible(text):
            return ConfigError(f"{where}there can be no {self.noun} {_shortened(repr(text))}: {reason}")
        near = nearest(text[:80], [*self.names(), *self.aliases()])
        return ConfigError(
            f"{where}there is no {self.noun} {_shortened(repr(text))}",
            hint=(f"Did you mean {near}? " if near else "")
            + f"`{self.command}` lists all of them; a path to your own .yaml file works too.",
        )


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
    first = f"{order[0].origin}: {_shortened(order[0].text)}"
    others = ["; ".join(filter(None, (f"{x.origin}: {_shortened(x.text)}", x.near))) for x in order[1:]]
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
            return _Mistake(document.origin(tuple(name.split("."))), f"{name}: {text}")
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


def _shortened(text: str) -> str:
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


def _located(data: dict[str, Any], origin: Origin) -> Document:
    """Plain data as a document, all of it from one place."""
    origins: dict[KeyPath, Origin] = {}

    def walk(value: Any, path: KeyPath) -> None:
        origins[path] = origin
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, (*path, key))

    walk(data, ())
    return Document(data, origins)


def _anchor(document: Document, data: dict[str, Any], path: KeyPath) -> None:
    """Make relative paths absolute: they are meant from the file that they stand in."""
    for key, value in data.items():
        here = (*path, key)
        if isinstance(value, dict):
            _anchor(document, value, here)
        elif isinstance(value, str) and (
            (key in {"sysroot", "sdk"} and value) or (key == "toolchain" and _is_path(value))
        ):
            origin = document.origin(here)
            if origin.line and not value.startswith("{"):
                data[key] = str(Path(origin.source).absolute().parent / _expanded(value))


def _source(document: Document) -> Path:
    return Path(document.origin(()).source)


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder; nothing if it is none, or cannot be read."""
    try:
        return list(folder.iterdir())
    except (OSError, ValueError):
        return []


def _expanded(text: str) -> Path:
    """``~`` is the user's home; with a name behind it that nobody has, it is a character like others."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _is_path(text: str) -> bool:
    return text.endswith(SUFFIXES) or "/" in text or os.sep in text
