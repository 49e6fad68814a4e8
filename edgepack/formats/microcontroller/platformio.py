"""A library for PlatformIO; its script links the code for the board's core.

Source: docs.platformio.org, "library.json" and "Advanced scripting".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportJob
from edgepack.formats.microcontroller.core import Contents, Ecosystem, export_format

__all__ = ["PLATFORMIO"]

_ECOSYSTEM = Ecosystem(
    "A library for PlatformIO",
    readme="platformio",
    rule="a PlatformIO library: at most 100 letters, digits, spaces, _ and -, a letter or digit first",
    pattern=r"[A-Za-z0-9](?:[A-Za-z0-9 _-]{0,98}[A-Za-z0-9_-])?",
    include="src",
    library="src",
)


def _write(contents: Contents, file: str) -> Sequence[str]:
    summary = str(contents.values["summary"])
    contents.entries.extend(
        [
            Entry("library.json", _manifest(contents.job, contents.title, summary)),
            Entry("link.py", contents.template("link.py.j2")),
            Entry("examples/run/main.c", contents.example),
        ]
    )
    write_tar_gz(contents.job.folder / file, contents.entries)
    return [file]


def _manifest(job: ExportJob, title: str, summary: str) -> bytes:
    package = job.package
    data: dict[str, object] = {"name": title, "version": job.version, "description": summary}
    if package.license:
        data["license"] = package.license
    if package.homepage:
        data["homepage"] = package.homepage
    if package.authors:
        data["authors"] = [_author(one) for one in package.authors]
    data |= {
        "headers": f"{job.name}.h",
        "frameworks": "*",
        "platforms": "*",
        "build": {"extraScript": "link.py"},
    }
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _author(text: str) -> dict[str, str]:
    name, _, mail = text.partition(" <")
    return {"name": name, **({"email": mail.removesuffix(">")} if mail else {})}


PLATFORMIO = export_format(
    _ECOSYSTEM, lambda title, version: f"{title.replace(' ', '_')}-{version}-platformio.tar.gz", _write
)
