"""A recipe for Conan 2 with the built library in it, and a test package that uses it."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name
from edgepack.formats.prefix import c_example, library_values, own_prefix, refuse_without_library
from edgepack.render.templates import render
from edgepack.text.printable import printable

__all__ = ["CONAN"]

_NAME = r"[a-z0-9_][a-z0-9_+.-]{1,99}"
_SYSTEMS = {"linux": "Linux", "macos": "Macos", "windows": "Windows", "android": "Android", "ios": "iOS"}
_TEST = ("conanfile.py", "CMakeLists.txt")


def _architecture(bundle: SourceBundle) -> str:
    """Conan's name of the architecture, by its default settings.yml."""
    device = bundle.manifest.device
    if device.arch == "arm":
        number = "armv6" if device.triple.startswith("armv6") else "armv7"
        return "armv7hf" if number == "armv7" and device.triple.endswith("hf") else number
    return {"aarch64": "armv8"}.get(device.arch, device.arch)


def _refusal(bundle: SourceBundle) -> str:
    if bundle.manifest.device.os not in _SYSTEMS:
        return f"Conan has no name for the system of {bundle.manifest.device.name}."
    return refuse_without_library(bundle)


def _write(job: ExportJob) -> Sequence[str]:
    given = (job.package.name or job.name).lower()
    base = package_name(given, "", _NAME, "a Conan package: at least two of a-z, 0-9, _, +, . and -")
    bundle, prefix = job.bundle, own_prefix(job)
    stem = f"{base}-{bundle.manifest.device.name}-{job.version}-conan"
    summary = job.package.summary or f"{job.name}, a model compiled ahead of time"
    paths = library_values(job, prefix)
    values = {
        **paths,
        **c_example(job),
        "base": base,
        "summary": summary,
        "device": printable(bundle.manifest.device.name),
        "edgepack": bundle.manifest.edgepack,
        "system": _SYSTEMS[bundle.manifest.device.os],
        "arch": _architecture(bundle),
        # As literals of Python.
        "description_literal": ascii(summary),
        "license_literal": ascii(job.package.license or "not given"),
        "homepage_literal": ascii(job.package.homepage) if job.package.homepage else "",
        "author_literal": ascii(", ".join(job.package.authors)) if job.package.authors else "",
    }
    entries = [entry.below("package") for entry in (*prefix.runtime(job), *prefix.development(job))]
    entries += [entry.below("package/licenses") for entry in job.licenses()]
    texts = {
        name: render(f"formats/conan/{name}.j2", values)
        for name in ("conanfile.py", *(f"test_package/{one}" for one in _TEST))
    }
    texts["test_package/app.c"] = str(values["example"])
    texts["README.md"] = render("formats/conan/readme.md.j2", values)
    entries += [Entry(name, text.encode()) for name, text in texts.items()]
    write_tar_gz(job.folder / f"{stem}.tar.gz", [entry.below(stem) for entry in entries])
    return [f"{stem}.tar.gz"]


CONAN = ExportFormat("A recipe for Conan 2 with the library in it", _refusal, _write)
