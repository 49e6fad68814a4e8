"""Compiles a bundle's C files. Those that all bundles for a device have in common, and those of a model for
its next pack, are kept in the cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgepack.bundle.firmware import project as firmware
from edgepack.bundle.recipe import Recipe
from edgepack.pipeline.cache import objects_key
from edgepack.render import sources
from edgepack.system.files import sha256_file
from edgepack.system.process import side_by_side

__all__ = ["compile_sources", "included_files"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


def compile_sources(recipe: Recipe, only: Sequence[str] = ()) -> dict[str, Path]:
    """Source -> object: those of ``only``, or else model.c, what a shared library is made from if that is
    another file, and, where there is a program, the loader; compiled side by side."""
    bare = recipe.device.bare_metal
    program = firmware.sources(recipe.params_mode) if bare else sources.LOADER_SOURCES
    names = list(only) or _wanted(recipe, program)
    common = _common(recipe, [name for name in names if name in program])
    own = _of_model(recipe, [name for name in names if name not in common])
    # The loader's objects never meet the model's in an archive, but some of their names are alike.
    kept = {recipe.build / "common": common, recipe.build / "own": own}
    folders = {name: folder for folder, files in kept.items() for name in files}
    objects = {name: folders.get(name, recipe.build) / _object_name(name) for name in names}
    defines: dict[str, str | None] = {}
    if recipe.params_mode == "embed":
        defines[sources.PARAMS_DEFINE] = sources.params_define(recipe.bundle / recipe.layout.params)

    def compile_one(name: str) -> None:
        of_model = {} if name in program else defines
        include = _include_directories(recipe)
        recipe.toolchain.compile_c(recipe.bundle / name, objects[name], include=include, defines=of_model)

    keys, cache = {folder: _key(recipe, files) for folder, files in kept.items()}, recipe.cache
    for folder in kept:
        folder.mkdir()
    found = {folder for folder, key in keys.items() if cache is not None and key and cache.fetch(key, folder)}
    side_by_side(compile_one, [name for name in names if folders.get(name) not in found])
    for folder, key in keys.items():
        if cache is not None and key and folder not in found:
            cache.store(key, folder)
    return objects


def _wanted(recipe: Recipe, program: Sequence[str]) -> list[str]:
    names = [sources.MODEL_SOURCE]
    if "shared" in recipe.device.artifacts:
        names.append(sources.shared_library(recipe.name, recipe.device.os)[0])
    if recipe.device.bare_metal or "program" in recipe.device.artifacts:
        names += program
    return list(dict.fromkeys(names))


def _object_name(source: str) -> str:
    return f"{source.removeprefix('src/').replace('/', '_')}.o"


def _include_directories(recipe: Recipe) -> list[Path]:
    folders = [recipe.bundle / folder for folder in sources.INCLUDE_DIRECTORIES]
    return [*folders, recipe.bundle] if recipe.device.bare_metal else folders  # there: of test/


def included_files(source: str, root: Path, include: Sequence[str]) -> dict[str, str]:
    """A C file and those that it may include, which lie below ``root``: path relative to it -> SHA-256.

    Conditions are not looked at, so these are at least those that a compiler reads, but for its own.

    Args:
        source: relative to ``root``.
        include: folders that are searched, relative to ``root``.
    """
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = root / name
        found[name] = sha256_file(path)
        for text in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            for folder in (Path(name).parent.as_posix(), *include):
                other = Path(os.path.normpath(Path(folder, text)))
                if (root / other).is_file():
                    waiting.append(other.as_posix())
    return found


def _files(recipe: Recipe, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Each of the sources with what it is made from."""
    include = [path.relative_to(recipe.bundle).as_posix() for path in _include_directories(recipe)]
    return {name: included_files(name, recipe.bundle, include) for name in names}


def _of_model(recipe: Recipe, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """The sources of this model that are made from C files alone, not also from params or recorded data."""
    alone = recipe.params_mode != "embed" and not recipe.device.bare_metal
    return _files(recipe, names) if alone else {}


def _common(recipe: Recipe, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """The sources that include nothing but what every bundle has."""
    everywhere = sources.runtime_files(recipe.gpu_apis)
    files = _files(recipe, names)
    return {name: of_name for name, of_name in files.items() if of_name.keys() <= everywhere.keys()}


def _key(recipe: Recipe, files: Mapping[str, Mapping[str, str]]) -> str:
    """What names the objects of ``files`` in the cache; "" where they cannot be kept."""
    if not files or not recipe.toolchain.brings_headers:
        return ""
    return objects_key(recipe.toolchain_version, recipe.toolchain.compile_command(), files)
