"""A library for Arduino, with precompiled code.

Source: arduino.github.io/arduino-cli, "Library specification" (``precompiled=full``: what is in
``src/CORE/FPU-ABI`` is linked, and nothing is compiled).
"""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.formats.archives import Entry
from edgepack.formats.microcontroller.core import Contents, Ecosystem, export_format, write_archive

__all__ = ["ARDUINO"]

_ECOSYSTEM = Ecosystem(
    "A library for the Arduino IDE",
    readme="arduino",
    rule="an Arduino library: at most 63 letters, digits, spaces, _, . and -, a letter or digit first",
    pattern=r"[A-Za-z0-9](?:[A-Za-z0-9 _.-]{0,61}[A-Za-z0-9_-])?",
    include="src",
    library="src",
    example="run.ino.j2",
    language="cpp",
    more=lambda job, values: {"authors": ", ".join(job.package.authors) or "edgepack"},
)


def _folder(title: str) -> str:
    return title.replace(" ", "_")


def _write(contents: Contents, file: str) -> Sequence[str]:
    contents.entries.extend(
        [
            Entry("library.properties", contents.template("library.properties.j2")),
            Entry("examples/Run/Run.ino", contents.example),
        ]
    )
    return write_archive(contents, file, _folder(contents.title))


ARDUINO = export_format(_ECOSYSTEM, lambda title, version: f"{_folder(title)}-{version}.zip", _write)
