"""A module for Zephyr. Source: docs.zephyrproject.org, "Modules (External projects)"."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.formats.archives import Entry
from edgepack.formats.microcontroller.core import Contents, Ecosystem, export_format, write_archive

__all__ = ["ZEPHYR"]

_ECOSYSTEM = Ecosystem(
    "A module for Zephyr",
    readme="zephyr",
    rule="a Zephyr module's folder: letters, digits, _, . and -, a letter or digit first",
    pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
    include="include",
    library="lib",
)


def _write(contents: Contents, file: str) -> Sequence[str]:
    contents.entries.extend(
        [
            Entry("zephyr/module.yml", contents.template("module.yml.j2")),
            Entry("zephyr/CMakeLists.txt", contents.template("zephyr.cmake.j2")),
            Entry("zephyr/Kconfig", contents.template("Kconfig.j2")),
        ]
    )
    return write_archive(contents, file, contents.title)


ZEPHYR = export_format(_ECOSYSTEM, lambda title, version: f"{title}-{version}-zephyr.zip", _write)
