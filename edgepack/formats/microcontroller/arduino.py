"""A library for Arduino, with precompiled code.

Source: arduino.github.io/arduino-cli, "Library specification" (``precompiled=full``: what is in
``src/MCU/FPU-ABI``, or in ``src/MCU`` of a board without these two, is linked, and nothing is compiled). The
chips of Arduino's core for the ESP32 are its ``build.mcu`` in ``boards.txt``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgepack.formats.archives import Entry
from edgepack.formats.microcontroller.core import (
    CORTEX_M,
    AnyCore,
    Contents,
    Ecosystem,
    RiscvCore,
    export_format,
    write_archive,
)

__all__ = ["ARDUINO"]

_RISCV = (
    RiscvCore("rv32imc", ("esp32c3",)),
    RiscvCore("rv32imac", ("esp32c5", "esp32c6", "esp32h2")),
    RiscvCore("rv32imafc", ("esp32p4",)),
)
_CORES: Mapping[str, AnyCore] = {**CORTEX_M, **{core.name: core for core in _RISCV}}


def _folders(core: AnyCore) -> Sequence[str]:
    return core.targets if isinstance(core, RiscvCore) else (core.folder,)


_ECOSYSTEM = Ecosystem(
    "A library for the Arduino IDE",
    readme="arduino",
    rule="an Arduino library: at most 63 letters, digits, spaces, _, . and -, a letter or digit first",
    pattern=r"[A-Za-z0-9](?:[A-Za-z0-9 _.-]{0,61}[A-Za-z0-9_-])?",
    include="src",
    library="src",
    cores=_CORES,
    which="a Cortex-M from the M4 on with its FPU, or an Espressif chip",
    folders=_folders,
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


ARDUINO = export_format(_ECOSYSTEM, lambda title, version: f"{_folder(title)}-{version}-arduino.zip", _write)
