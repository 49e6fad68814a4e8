"""One loader for everything that a user writes: find the file, follow ``extends``, check it.

Whatever is wrong becomes a ConfigError with file, line, the field, what was found and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from edgepack.config.document import Document, KeyPath, Origin, merge, read
from edgepack.config.models import SUFFIXES
from edgepack.config.validate import nearest, shortened, validate
from edgepack.errors import ConfigError
from edgepack.system.files import as_text, is_file

__all__ = [
    "Kind",
    "Resolved",
]

Model = TypeVar("Model", bound=BaseModel)
_LONGEST_CHAIN = 16


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
            return ConfigError(f"{where}there can be no {self.noun} {shortened(repr(text))}: {reason}")
        near = nearest(text[:80], [*self.names(), *self.aliases()])
        return ConfigError(
            f"{where}there is no {self.noun} {shortened(repr(text))}",
            hint=(f"Did you mean {near}? " if near else "")
            + f"`{self.command}` lists all of them; a path to your own .yaml file works too.",
        )


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
