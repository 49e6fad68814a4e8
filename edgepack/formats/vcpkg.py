"""An overlay port for vcpkg that installs the built library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name
from edgepack.formats.prefix import Prefix, c_example, library_values, refuse_without_library
from edgepack.render.templates import render
from edgepack.text.printable import printable

__all__ = ["VCPKG"]

#: Of a port: hyphens stand between other characters only, and it is none of the words that are reserved.
_NAME = r"(?!(?:prn|aux|nul|con|lpt[0-9]|com[0-9]|core|default)$)[a-z0-9]+(-[a-z0-9]+)*"
_SYSTEMS = {"linux": "linux", "macos": "osx", "windows": "mingw", "android": "android", "ios": "ios"}
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64", "arm": "arm32", "riscv64": "riscv64"}


def _refusal(bundle: SourceBundle) -> str:
    device = bundle.manifest.device
    if device.os not in _SYSTEMS or device.arch not in _ARCHITECTURES:
        return f"vcpkg has no name for the platform of {device.name}."
    return refuse_without_library(bundle)


def _supports(bundle: SourceBundle) -> str:
    device = bundle.manifest.device
    return f"{_SYSTEMS[device.os]} & {_ARCHITECTURES[device.arch]}"


def _write(job: ExportJob) -> Sequence[str]:
    given = (job.package.name or job.name).lower().replace("_", "-")
    base = package_name(
        given, "", _NAME, "a port of vcpkg: a-z and 0-9, with single hyphens between them, no reserved word"
    )
    bundle = job.bundle
    stem = f"{base}-{bundle.manifest.device.name}-{job.version}-vcpkg"
    prefix = Prefix("lib", f"include/{job.name}", f"share/{job.name}", cmake=f"share/{job.name}")
    manifest: dict[str, Any] = {
        "name": base,
        "version-semver": job.version,
        "description": job.package.summary or f"{job.name}, a model compiled ahead of time",
        "license": job.package.license or None,
        "supports": _supports(bundle),
    }
    if job.package.homepage:
        manifest["homepage"] = job.package.homepage
    if job.package.authors:
        manifest["maintainers"] = list(job.package.authors)
    values = {
        **library_values(job, prefix),
        **c_example(job),
        "base": base,
        "stem": stem,
        "summary": manifest["description"],
        "supports": manifest["supports"],
        "device": printable(bundle.manifest.device.name),
        "edgepack": bundle.manifest.edgepack,
        "licenses": [entry.name for entry in job.licenses()],
    }
    port = f"ports/{base}"
    entries = [entry.below(f"{port}/package") for entry in (*prefix.runtime(job), *prefix.development(job))]
    entries += [entry.below(port) for entry in job.licenses()]
    texts = {
        f"{port}/vcpkg.json": json.dumps(manifest, indent=2, ensure_ascii=False) + "\n",
        f"{port}/portfile.cmake": render("formats/vcpkg/portfile.cmake.j2", values),
        "README.md": render("formats/vcpkg/readme.md.j2", values),
    }
    entries += [Entry(name, text.encode()) for name, text in texts.items()]
    write_tar_gz(job.folder / f"{stem}.tar.gz", [entry.below(stem) for entry in entries])
    return [f"{stem}.tar.gz"]


VCPKG = ExportFormat("An overlay port for vcpkg with the library in it", _refusal, _write)
