"""A bundle's library as it lies below an install prefix: headers, libraries, pkg-config and CMake files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgepack.formats.archives import Entry
from edgepack.formats.base import ExportJob, SourceBundle
from edgepack.formats.languages import argument_lists
from edgepack.formats.metadata import without_prerelease
from edgepack.plan.dtypes import C_TYPES
from edgepack.render.templates import render

__all__ = ["Prefix", "c_example", "library_values", "own_prefix", "refuse_without_library"]


@dataclass(frozen=True)
class Prefix:
    """Where things lie, relative to the prefix.

    Attributes:
        lib: folder of the libraries, of ``pkgconfig/`` and ``cmake/``.
        include: of the headers; a folder of this model's own, for all bring ``edgepack/runtime.h``.
        params: folder of the params file.
        absolute: the prefix in the pkg-config file; "" is found from where that file lies.
        cmake: folder of the CMake files; by default ``cmake/<name>`` in that of the libraries.
    """

    lib: str
    include: str
    params: str
    absolute: str = ""
    cmake: str = ""

    def runtime(self, job: ExportJob) -> list[Entry]:
        """What a program needs when it runs: shared library and params."""
        values = library_values(job, self)
        files = {values["shared"]: job.bundle.artifact("shared"), values["params"]: job.bundle.params}
        return [Entry(str(name), path, name == values["shared"]) for name, path in files.items() if path]

    def development(self, job: ExportJob) -> list[Entry]:
        """What a program is compiled with: headers, static and import library, pkg-config and CMake files."""
        values, root, name = library_values(job, self), job.bundle.root, job.name
        cmake = self.cmake or f"{self.lib}/cmake/{name}"
        static = job.bundle.artifact("static")
        entries = [Entry(str(values["static"]), static)] if static else []
        there = set(job.bundle.files())
        copied = {
            f"include/{name}.h": f"{self.include}/{name}.h",
            "include/edgepack/runtime.h": f"{self.include}/edgepack/runtime.h",
            f"lib/lib{name}.dll.a": f"{self.lib}/lib{name}.dll.a",
            f"cmake/{name}-processor.cmake": f"{cmake}/{name}-processor.cmake",
        }
        entries += [Entry(to, root / path) for path, to in copied.items() if path in there]
        rendered = {
            "library.pc": f"{self.lib}/pkgconfig/{name}.pc",
            "config.cmake": f"{cmake}/{name}-config.cmake",
            "config-version.cmake": f"{cmake}/{name}-config-version.cmake",
        }
        for template, to in rendered.items():
            text = render(f"formats/prefix/{template}.j2", values)
            entries.append(Entry(to, text.encode()))
        return entries


def library_values(job: ExportJob, prefix: Prefix) -> dict[str, object]:
    """What the templates of a prefix name; paths are relative to it, "" where there is no such file."""
    bundle, name = job.bundle, job.name
    windows = bundle.manifest.device.os == "windows"
    bare = bundle.manifest.device.bare_metal
    shared = ""
    if bundle.artifact("shared"):
        folder = "bin" if windows else prefix.lib
        shared = f"{folder}/{PurePosixPath(bundle.layout.shared).name}"
    deep = len(PurePosixPath(prefix.lib).parts)
    cmake_deep = len(PurePosixPath(prefix.cmake).parts) or deep + 2
    # pkg-config reads $ as a variable, # as a comment and \ at an end as the next line's begin.
    summary = job.package.summary or f"The model {name}, compiled by edgepack"
    return {
        "name": name,
        "macro": name.upper(),
        "version": job.version,
        "number": without_prerelease(job.version),
        "prefix": prefix.absolute or "/".join(["${pcfiledir}", *[".."] * (deep + 1)]),
        "up": "/".join([".."] * cmake_deep),
        "lib": prefix.lib,
        "include": prefix.include,
        "shared": shared,
        "static": f"{prefix.lib}/lib{name}.a" if bundle.artifact("static") else "",
        "params": f"{prefix.params}/{name}.params" if bundle.params else "",
        "windows": windows,
        "bare": bare,
        "libraries": ["m"] if bare else _libraries(bundle),
        "description": summary.replace("\\", "/").replace("$", "$$").replace("#", "\\#"),
    }


def own_prefix(job: ExportJob) -> Prefix:
    """A package's places in a prefix that many packages share."""
    return Prefix("lib", f"include/{job.name}", f"share/{job.name}")


def _libraries(bundle: SourceBundle) -> list[str]:
    """The system's libraries that a program with the static library needs too, from the bundle's own file."""
    path = bundle.file(f"pkgconfig/{bundle.manifest.name}.pc")
    text = path.read_text(encoding="utf-8") if path is not None else ""
    found = re.findall(r"(?<=[ :])-l([A-Za-z0-9_+.-]+)", text)
    return [one for one in dict.fromkeys(found) if one != bundle.manifest.name]


def c_example(job: ExportJob, include: str = "") -> Mapping[str, object]:
    """Values for templates: ``example``, a whole program in C, and ``tensors``, a table in Markdown.

    Args:
        include: the program's first line; by default it finds the header on the include path.
    """
    inputs, outputs = argument_lists(job.bundle.manifest, C_TYPES, ())
    values = {
        "name": job.name,
        "include": include,
        "macro": job.name.upper(),
        "inputs": inputs,
        "outputs": outputs,
        "embedded": job.bundle.params is None,
        "bare": job.bundle.manifest.device.bare_metal,
        "placed": bool(job.bundle.manifest.memory.sections),
    }
    return {
        "example": render("formats/c/example.c.j2", values),
        "tensors": render("formats/c/tensors.md.j2", values),
    }


def refuse_without_library(bundle: SourceBundle) -> str:
    """Why a bundle has nothing to link with, or ""."""
    device = bundle.manifest.device
    if device.os in {"wasi", "emscripten"}:
        return f"nothing is linked with a library below a prefix on {device.name}."
    if bundle.artifact("shared") or bundle.artifact("static"):
        return ""
    return "it has no library; pack for a device whose artifacts include `shared` or `static`."
