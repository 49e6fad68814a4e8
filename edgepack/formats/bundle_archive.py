"""The whole bundle in an archive, ``<name>-<device>-<version>.tar.gz`` or ``.zip``, for whom a folder is
enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from edgepack.formats.archives import Entry, bundle_entries, write_tar_gz, write_zip
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name

__all__ = ["TAR_GZ", "ZIP"]


def _no_refusal(bundle: SourceBundle) -> str:
    del bundle
    return ""


def _writer(
    suffix: str, write_archive: Callable[[Path, Iterable[Entry]], None]
) -> Callable[[ExportJob], Sequence[str]]:
    def write(job: ExportJob) -> Sequence[str]:
        what = "an archive: ASCII letters, digits, +, -, . and _"
        name = package_name(job.package.name, job.name, r"[A-Za-z0-9][A-Za-z0-9+._-]*", what)
        stem = f"{name}-{job.bundle.manifest.device.name}-{job.version}"
        entries = bundle_entries(job.bundle.root, job.bundle.whole(), stem)
        write_archive(job.folder / f"{stem}{suffix}", entries)
        return [f"{stem}{suffix}"]

    return write


TAR_GZ = ExportFormat("The whole bundle, gzipped", _no_refusal, _writer(".tar.gz", write_tar_gz), whole=True)
ZIP = ExportFormat("The whole bundle as a zip", _no_refusal, _writer(".zip", write_zip), whole=True)
