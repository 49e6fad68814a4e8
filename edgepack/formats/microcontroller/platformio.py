"""A library for PlatformIO; its script links the code for the board's core.

Source: docs.platformio.org, "library.json" and "Advanced scripting".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob
from edgepack.formats.languages import package_name
from edgepack.formats.microcontroller.core import library_entries, readme, refusal, template, values

__all__ = ["PLATFORMIO"]


def _write(job: ExportJob) -> Sequence[str]:
    rule = "a PlatformIO library: at most 100 letters, digits, spaces, _ and -, a letter or digit first"
    title = package_name(
        job.package.name, job.name, r"[A-Za-z0-9](?:[A-Za-z0-9 _-]{0,98}[A-Za-z0-9_-])?", rule
    )
    stem = f"{title.replace(' ', '_')}-{job.version}"
    given = {**values(job, title, job.version), "file": f"{stem}.tar.gz"}
    example = template("main.c.j2", given)
    entries = [
        *library_entries(job, "src", "src"),
        Entry("library.json", _manifest(job, title, str(given["summary"]))),
        Entry("link.py", template("link.py.j2", given)),
        Entry("examples/run/main.c", example),
        Entry("README.md", readme("platformio", given, example, "c")),
    ]
    write_tar_gz(job.folder / f"{stem}.tar.gz", entries)
    return [f"{stem}.tar.gz"]


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


PLATFORMIO = ExportFormat("A library for PlatformIO", refusal, _write, several=True)
