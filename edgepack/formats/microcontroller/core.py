"""What the packages for microcontrollers have in common: static libraries by core, headers, an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_zip
from edgepack.formats.base import ExportJob, SourceBundle
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.render.names import unique_identifiers
from edgepack.render.templates import render

__all__ = ["Core", "cores", "library_entries", "readme", "refusal", "template", "values", "write_archive"]

_TEMPLATES = "formats/microcontroller"
_C_TYPES = {
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Core:
    """A processor core with its FPU, as each ecosystem calls it.

    Attributes:
        name: LLVM's, gcc's and PlatformIO's.
        fpu: gcc's ``-mfpu``.
        kconfig: Zephyr's option.
        dcore, dfpu: attributes of CMSIS-Pack.
    """

    name: str
    fpu: str
    kconfig: str
    dcore: str
    dfpu: str

    @property
    def folder(self) -> str:
        """Where Arduino looks for a precompiled library."""
        return f"{self.name}/{self.fpu}-hard"


_CORES = {
    core.name: core
    for core in (
        Core("cortex-m4", "fpv4-sp-d16", "CPU_CORTEX_M4", "Cortex-M4", "SP_FPU"),
        Core("cortex-m7", "fpv5-d16", "CPU_CORTEX_M7", "Cortex-M7", "DP_FPU"),
        Core("cortex-m33", "fpv5-sp-d16", "CPU_CORTEX_M33", "Cortex-M33", "SP_FPU"),
    )
}


def refusal(bundle: SourceBundle) -> str:
    """Why it cannot become a package for microcontrollers; "" if it can."""
    device = bundle.manifest.device
    if not device.bare_metal:
        return f"it is for {device.os}, and these packages are for microcontrollers."
    if device.cpu not in _CORES or not device.triple.endswith("eabihf"):
        known = ", ".join(_CORES)
        return f"its core is {device.cpu or 'not named'}, and the package knows {known}, each with an FPU."
    if bundle.artifact("static") is None:
        return "it has no static library."
    return ""


def cores(job: ExportJob) -> list[Core]:
    """The core of each bundle.

    Raises:
        ConfigError: two are for the same.
    """
    found = [_CORES[bundle.manifest.device.cpu] for bundle in job.bundles]
    for core in found:
        if found.count(core) > 1:
            raise ConfigError(
                f"Two bundles are for {core.name}; the package has one library for each core.",
                hint="Leave one of them out, or export them one by one.",
            )
    return found


def library_entries(job: ExportJob, include: str, library: str) -> list[Entry]:
    """Headers below ``include/``, the libraries by core below ``library/``, and the licences."""
    entries = job.headers(include)
    for core, bundle in zip(cores(job), job.bundles, strict=True):
        static: Path | None = bundle.artifact("static")
        assert static is not None, "refused before"
        entries.append(Entry(f"{library}/{core.folder}/lib{job.name}.a", static))
    return [*entries, *job.licenses()]


def values(job: ExportJob, title: str, version: str) -> dict[str, object]:
    """What the templates name."""
    manifest, package = job.bundle.manifest, job.package
    tensors = (*manifest.inputs, *manifest.outputs)
    taken = (
        "memory",
        "model",
        "session",
        "start",
        "status",
        "setup",
        "loop",
        "main",
        "options",
        "Serial",
        "delay",
    )
    names = unique_identifiers([tensor.name[:60] for tensor in tensors], taken=taken)
    return {
        "m": manifest,
        "title": title,
        "version": version,
        "macro": manifest.name.upper(),
        "option": f"EDGEPACK_{manifest.name.upper()}",
        "cores": cores(job),
        "summary": package.summary
        or f"{manifest.name}, compiled ahead of time by edgepack {manifest.edgepack}",
        "homepage": package.homepage,
        "tensors": [
            {
                "identifier": name,
                "element": _C_TYPES[tensor.dtype],
                "elements": max(tensor.nbytes // DTYPE_BYTES[tensor.dtype], 1),
            }
            for name, tensor in zip(names, tensors, strict=True)
        ],
    }


def template(name: str, given: Mapping[str, object]) -> bytes:
    """A template's text."""
    return render(f"{_TEMPLATES}/{name}", given).encode()


def readme(name: str, given: Mapping[str, object], example: bytes, language: str) -> bytes:
    """The README: how it is installed by ``NAME.md.j2``, and the example."""
    texts = {"install": template(f"{name}.md.j2", given).decode(), "example": example.decode()}
    return template("README.md.j2", {**given, **texts, "language": language})


def write_archive(job: ExportJob, name: str, folder: str, entries: Sequence[Entry]) -> list[str]:
    """A zip of the entries, below ``folder`` unless that is empty."""
    write_zip(job.folder / name, [entry.below(folder) if folder else entry for entry in entries])
    return [name]
