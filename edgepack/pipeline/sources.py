"""Which of edgepack's own sources take part in a task: those that it may import, found by reading them.

Nothing is imported for that, and no list is kept: the statements ``import`` and ``from ... import`` are
followed, wherever they stand in a file. ``tests/pipeline/test_sources.py`` compares this with what a worker
has imported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from edgepack.registry import FRONTENDS
from edgepack.resources import PACKAGE, TEMPLATES, TOOLCHAINS

__all__ = ["imported_names", "source_digest", "task_sources", "whole_digest"]

_FRONTENDS = "compiler/frontend"

#: A statement that imports, in brackets or on one line; in a docstring one that looks so is one too many.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n]+))|import[ \t]+([^\n]+))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"#[^\n]*")
#: What only a type checker imports.
_TYPES_ONLY = re.compile(r"^if TYPE_CHECKING:\n(?:(?:[ \t][^\n]*)?\n)*", re.MULTILINE)


@cache
def source_digest(task: str, frontend: str = "") -> str:
    """SHA-256, in hex, over edgepack's own sources that decide on the results of a task: a change there must
    not be answered from the cache.

    Args:
        task: ``import``, ``quantise``, ``compile``, or ``objects``, which the parent does.
        frontend: name of what reads the model; another format's sources do not decide.
    """
    digest = hashlib.sha256()
    for file in task_sources(task, frontend):
        digest.update(f"{file.relative_to(PACKAGE).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@cache
def whole_digest() -> str:
    """SHA-256, in hex, over all of edgepack: its sources, and the data that bundles are made from."""
    digest = hashlib.sha256()
    for root, pattern in ((PACKAGE, "*.py"), (TEMPLATES, "*"), (TOOLCHAINS, "*")):
        for file in sorted(root.rglob(pattern)):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{root.name}/{file.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@cache
def task_sources(task: str, frontend: str = "") -> tuple[Path, ...]:
    """The files of :func:`source_digest`, sorted."""
    if task == "objects":
        return tuple(sorted(_closure({*_python("toolchains"), *_python("objectfiles")})))
    roots = {*_of_frontend(frontend), *(PACKAGE / _FRONTENDS).glob("*.py")}
    worker = PACKAGE / "compiler" / "worker.py"
    if task in ("import", "quantise"):
        # What the worker's other tasks import stands in their functions.
        roots |= {file for name in _imports(worker, top_level=True) for file in _files_of(name)}
        return tuple(sorted({*_closure(roots), worker}))
    # All of it: rules are found by walking their package.
    compiler = {file for file in _python("compiler") if not _is_within(file, _FRONTENDS)}
    return tuple(sorted(_closure({*roots, *compiler})))


def imported_names(file: Path) -> frozenset[str]:
    """All that a file imports, with dots: modules, and what is taken of them."""
    return frozenset(_imports(file))


def _of_frontend(name: str) -> set[Path]:
    """The files of a format that edgepack itself reads; other packages' versions are in the key."""
    place = FRONTENDS.own().get(name, "")
    return _python(place.partition(":")[0].replace(".", "/").removeprefix("edgepack/")) if place else set()


def _python(place: str) -> set[Path]:
    path = PACKAGE / place
    return set(path.rglob("*.py")) if path.is_dir() else {path.with_suffix(".py")}


def _is_within(file: Path, place: str) -> bool:
    return (PACKAGE / place) in file.parents


def _closure(files: Iterable[Path]) -> set[Path]:
    """The files, those that they import, and so on; none of a frontend but those that are given."""
    found: set[Path] = set()
    todo = list(files)
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += [one for name in _imports(file) for one in _files_of(name)]
    return found


@cache
def _files_of(name: str) -> tuple[Path, ...]:
    """The files that are run where ``name`` is imported: packages from the top, then the module."""
    parts = name.split(".")
    if parts[0] != PACKAGE.name:
        return ()
    modules = _modules()
    above = (".".join(parts[:number]) for number in range(1, len(parts) + 1))
    return tuple(modules[module] for module in above if module in modules)


@cache
def _modules() -> dict[str, Path]:
    """All of edgepack's modules and packages, by their names."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def _imports(file: Path, *, top_level: bool = False) -> tuple[str, ...]:
    text = _TYPES_ONLY.sub("", file.read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(_statements(text, top_level=top_level)))


def _statements(text: str, *, top_level: bool) -> Iterator[str]:
    for found in _IMPORT.finditer(text):
        if top_level and found[0][0] in " \t":
            continue
        module, bracketed, listed, modules = found.groups()
        parts = _COMMENT.sub("", bracketed or listed or modules).split(",")
        names = [part.split()[0] for part in parts if part.split()]
        yield from ([module, *(f"{module}.{name}" for name in names)] if module else names)
