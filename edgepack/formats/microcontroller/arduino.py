"""A library for Arduino, with precompiled code.

Source: arduino.github.io/arduino-cli, "Library specification" (``precompiled=full``: what is in
``src/CORE/FPU-ABI`` is linked, and nothing is compiled).
"""

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

__all__ = ["ARDUINO"]


def _write(job: ExportJob) -> Sequence[str]:
    rule = "an Arduino library: at most 63 letters, digits, spaces, _, . and -, a letter or digit first"
    title = package_name(
        job.package.name, job.name, r"[A-Za-z0-9](?:[A-Za-z0-9 _.-]{0,61}[A-Za-z0-9_-])?", rule
    )
    folder = title.replace(" ", "_")
    file = f"{folder}-{job.version}.zip"
    authors = ", ".join(job.package.authors) or "edgepack"
    given = {**values(job, title, job.version), "authors": authors, "file": file}
    sketch = template("run.ino.j2", given)
    entries = [
        *library_entries(job, "src", "src"),
        Entry("library.properties", template("library.properties.j2", given)),
        Entry("examples/Run/Run.ino", sketch),
        Entry("README.md", readme("arduino", given, sketch, "cpp")),
    ]
    return write_archive(job, file, folder, entries)


ARDUINO = ExportFormat("A library for the Arduino IDE", refusal, _write, several=True)
