"""A component for ESP-IDF, Espressif's framework, with a library for each RISC-V core.

Sources: docs.espressif.com, "Build System" (``idf_component_register``, ``add_prebuilt_library``) and IDF
Component Manager, "idf_component.yml Manifest File". The archive has its files at its root, as ``compote
component pack`` makes it; its name says the format, for PlatformIO's is a ``.tar.gz`` too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportJob
from edgepack.formats.microcontroller.core import AnyCore, Contents, Ecosystem, RiscvCore, export_format

__all__ = ["ESP_IDF"]

#: A target takes the library of the first core in whose list it is.
_CORES: Mapping[str, AnyCore] = {
    core.name: core
    for core in (
        RiscvCore("rv32imafc", ("esp32p4",)),
        RiscvCore("rv32imac", ("esp32c5", "esp32c6", "esp32c61", "esp32h2")),
        RiscvCore("rv32imc", ("esp32c2", "esp32c3", "esp32c5", "esp32c6", "esp32c61", "esp32h2")),
    )
}


def _targets(values: Mapping[str, object]) -> Mapping[str, AnyCore]:
    """Target of ESP-IDF -> the core whose library it takes, of those that the package has."""
    there = values["cores"]
    assert isinstance(there, list)
    found: dict[str, AnyCore] = {}
    for core in _CORES.values():
        assert isinstance(core, RiscvCore)
        if core in there:
            found |= {target: core for target in core.targets if target not in found}
    return dict(sorted(found.items()))


_ECOSYSTEM = Ecosystem(
    "A component for ESP-IDF",
    readme="esp_idf",
    rule="a component: at most 64 letters, digits, _ and -, a letter first, no __ in it",
    pattern=r"[A-Za-z](?:_?[A-Za-z0-9-]){0,31}",
    include="include",
    library="lib",
    cores=_CORES,
    which="cores of Espressif's chips",
    example="esp_idf_main.c.j2",
    more=lambda job, values: {"targets": _targets(values)},
)


def _manifest(job: ExportJob, values: Mapping[str, object]) -> bytes:
    """``idf_component.yml``; each value is JSON, which YAML reads as its own."""
    package, targets = job.package, values["targets"]
    assert isinstance(targets, Mapping)
    data: dict[str, object] = {"version": job.version, "description": values["summary"]}
    if package.homepage:
        data["url"] = package.homepage
    if package.license:
        data["license"] = package.license
    if package.authors:
        data["maintainers"] = list(package.authors)
    data |= {"targets": list(targets), "dependencies": {"idf": {"version": ">=5.0"}}}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in data.items()).encode()


def _write(contents: Contents, file: str) -> Sequence[str]:
    contents.entries.extend(
        [
            Entry("CMakeLists.txt", contents.template("esp_idf.cmake.j2")),
            Entry("idf_component.yml", _manifest(contents.job, contents.values)),
            Entry("examples/run/CMakeLists.txt", contents.template("esp_idf_project.cmake.j2")),
            Entry("examples/run/main/CMakeLists.txt", contents.template("esp_idf_main.cmake.j2")),
            Entry("examples/run/main/idf_component.yml", contents.template("esp_idf_example.yml.j2")),
            Entry("examples/run/main/main.c", contents.example),
        ]
    )
    write_tar_gz(contents.job.folder / file, contents.entries)
    return [file]


ESP_IDF = export_format(_ECOSYSTEM, lambda title, version: f"{title}-{version}-esp-idf.tar.gz", _write)
