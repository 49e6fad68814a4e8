"""A module for Zephyr. Source: docs.zephyrproject.org, "Modules (External projects)"."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.formats.archives import Entry
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

__all__ = ["ZEPHYR"]


def _write(job: ExportJob) -> Sequence[str]:
    rule = "a Zephyr module's folder: letters, digits, _, . and -, a letter or digit first"
    title = package_name(job.package.name, job.name, r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", rule)
    file = f"{title}-{job.version}-zephyr.zip"
    given = {**values(job, title, job.version), "file": file}
    example = template("main.c.j2", given)
    entries = [
        *library_entries(job, "include", "lib"),
        Entry("zephyr/module.yml", template("module.yml.j2", given)),
        Entry("zephyr/CMakeLists.txt", template("zephyr.cmake.j2", given)),
        Entry("zephyr/Kconfig", template("Kconfig.j2", given)),
        Entry("README.md", readme("zephyr", given, example, "c")),
    ]
    return write_archive(job, file, title, entries)


ZEPHYR = ExportFormat("A module for Zephyr", refusal, _write, several=True)
