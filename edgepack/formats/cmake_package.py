"""An install prefix in an archive: for ``find_package`` and pkg-config, wherever it is unpacked."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.bundle.layout import SBOM
from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob
from edgepack.formats.languages import package_name
from edgepack.formats.prefix import c_example, library_values, own_prefix, refuse_without_library
from edgepack.render.templates import render
from edgepack.text.printable import printable

__all__ = ["CMAKE"]


def _write(job: ExportJob) -> Sequence[str]:
    what = "an archive: ASCII letters, digits, +, -, . and _"
    base = package_name(job.package.name, job.name, r"[A-Za-z0-9][A-Za-z0-9+._-]*", what)
    stem = f"{base}-{job.bundle.manifest.device.name}-{job.version}-cmake"
    prefix, documents = own_prefix(job), f"share/doc/{base}"
    readme = render(
        "formats/cmake/readme.md.j2",
        {
            **library_values(job, prefix),
            **c_example(job),
            "base": base,
            "stem": stem,
            "summary": job.package.summary or f"{job.name}, a model compiled ahead of time",
            "license": job.package.license,
            "device": printable(job.bundle.manifest.device.name),
            "edgepack": job.bundle.manifest.edgepack,
        },
    )
    entries = [*prefix.runtime(job), *prefix.development(job)]
    entries += [entry.below(documents) for entry in job.licenses()]
    entries.append(Entry(f"{documents}/README.md", readme.encode()))
    if (sbom := job.bundle.file(SBOM)) is not None:
        entries.append(Entry(f"{documents}/{SBOM}", sbom))
    write_tar_gz(job.folder / f"{stem}.tar.gz", [entry.below(stem) for entry in entries])
    return [f"{stem}.tar.gz"]


CMAKE = ExportFormat("An install prefix for CMake and pkg-config", refuse_without_library, _write)
