"""A CMSIS-Pack: one software component with a library for each core.

Source: open-cmsis-pack.github.io, "Pack Description (\\*.pdsc) Format", schema 1.7.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from xml.sax.saxutils import escape

from edgepack.formats.archives import Entry, epoch
from edgepack.formats.base import ExportFormat, ExportJob
from edgepack.formats.languages import package_name
from edgepack.formats.microcontroller.core import (
    library_entries,
    readme,
    refusal,
    template,
    values,
    write_archive,
)

__all__ = ["CMSIS_PACK"]


def _write(job: ExportJob) -> Sequence[str]:
    rule = "a pack: vendor.name, each of letters, digits, _ and -"
    name = package_name(
        job.package.name, f"edgepack.{job.name}", r"[A-Za-z0-9][A-Za-z0-9_-]*\.[A-Za-z0-9_-]+", rule
    )
    vendor, _, pack = name.partition(".")
    file = f"{name}.{job.version}.pack"
    given = {**values(job, pack, job.version), "vendor": vendor, "pack": pack, "file": file}
    given |= {
        "xml_summary": escape(str(given["summary"])),
        "xml_homepage": escape(job.package.homepage),
        "date": time.strftime("%Y-%m-%d", time.gmtime(epoch())),
    }
    example = template("main.c.j2", given)
    entries = [
        *library_entries(job, "include", "lib"),
        Entry(f"{name}.pdsc", template("pack.pdsc.j2", given)),
        Entry("examples/main.c", example),
        Entry("README.md", readme("cmsis", given, example, "c")),
    ]
    return write_archive(job, file, "", entries)


CMSIS_PACK = ExportFormat("A CMSIS-Pack, for IDEs of Cortex-M", refusal, _write, several=True)
