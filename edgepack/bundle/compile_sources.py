"""Compiles a bundle's C files; those that all bundles for a device have in common are kept in the cache."""

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


def compile_sources(recipe: Recipe) -> dict[str, Path]:
    """Source -> object: model.c, what a shared library is made from if that is another file, and, where there
    is a program, the loader; compiled side by side."""
    bare = recipe.device.bare_metal
    program = firmware.SOURCES if bare else sources.LOADER_SOURCES
    names = [sources.MODEL_SOURCE]
    if "shared" in recipe.device.artifacts:
        names.append(sources.shared_library(recipe.name, recipe.device.os)[0])
    if bare or "program" in recipe.device.artifacts:
        names += program
    names = list(dict.fromkeys(names))
    common = _common(recipe, [name for name in names if name in program])
    # The loader's objects never meet the model's in an archive, but some of their names are alike.
    folders = {name: recipe.build / "common" if name in common else recipe.build for name in names}
    objects = {name: folders[name] / _object_name(name) for name in names}
    defines: dict[str, str | None] = {}
    if recipe.params_mode == "embed":
        defines[sources.PARAMS_DEFINE] = sources.params_define(recipe.bundle / recipe.layout.params)

    def compile_one(name: str) -> None:
        of_model = {} if name in program else defines
        include = _include_directories(recipe)
        recipe.toolchain.compile_c(recipe.bundle / name, objects[name], include=include, defines=of_model)

    (recipe.build / "common").mkdir()
    key, cache = _key(recipe, common), recipe.cache
    found = cache is not None and key and cache.fetch(key, recipe.build / "common")
    wanted = [name for name in names if not (found and name in common)]
    side_by_side(compile_one, wanted)
    if cache is not None and key and not found:
        cache.store(key, recipe.build / "common")
    return objects


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


def _common(recipe: Recipe, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """The sources that include nothing but what every bundle has, each with what it is made from."""
    everywhere = sources.runtime_files(recipe.gpu_apis)
    include = [path.relative_to(recipe.bundle).as_posix() for path in _include_directories(recipe)]
    files = {name: included_files(name, recipe.bundle, include) for name in names}
    return {name: of_name for name, of_name in files.items() if of_name.keys() <= everywhere.keys()}


def _key(recipe: Recipe, common: Mapping[str, Mapping[str, str]]) -> str:
    """What names the objects of ``common`` in the cache; "" where they cannot be kept."""
    if not common or not recipe.toolchain.brings_headers:
        return ""
    return objects_key(recipe.toolchain_version, recipe.toolchain.compile_command(), common)
