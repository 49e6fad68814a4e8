"""A CMSIS-Pack: one software component with a library for each core.

Source: open-cmsis-pack.github.io, "Pack Description (\\*.pdsc) Format", schema 1.7.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from edgepack.formats.archives import Entry, epoch
from edgepack.formats.base import ExportJob
from edgepack.formats.microcontroller.core import Contents, Ecosystem, export_format, write_archive

__all__ = ["CMSIS_PACK"]


def _values(job: ExportJob, values: Mapping[str, object]) -> Mapping[str, object]:
    vendor, _, pack = str(values["title"]).partition(".")
    return {
        "vendor": vendor,
        "pack": pack,
        "title": pack,
        "xml_summary": escape(str(values["summary"])),
        "xml_homepage": escape(job.package.homepage),
        "date": time.strftime("%Y-%m-%d", time.gmtime(epoch())),
    }


_ECOSYSTEM = Ecosystem(
    "A CMSIS-Pack, for IDEs of Cortex-M",
    readme="cmsis",
    rule="a pack: vendor.name, each of letters, digits, _ and -",
    pattern=r"[A-Za-z0-9][A-Za-z0-9_-]*\.[A-Za-z0-9_-]+",
    include="include",
    library="lib",
    prefix="edgepack.",
    more=_values,
)


def _write(contents: Contents, file: str) -> Sequence[str]:
    contents.entries.extend(
        [
            Entry(f"{contents.title}.pdsc", contents.template("pack.pdsc.j2")),
            Entry("examples/main.c", contents.example),
        ]
    )
    return write_archive(contents, file, "")


CMSIS_PACK = export_format(_ECOSYSTEM, lambda title, version: f"{title}.{version}.pack", _write)
