"""What the packages for microcontrollers have in common: static libraries by core, headers, an example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgepack.bundle.manifest import DeviceRecord
from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_zip
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name
from edgepack.plan.dtypes import C_TYPES, DTYPE_BYTES
from edgepack.render.names import unique_identifiers
from edgepack.render.templates import render

__all__ = [
    "CORTEX_M",
    "AnyCore",
    "Contents",
    "Core",
    "Ecosystem",
    "RiscvCore",
    "export_format",
    "template",
    "write_archive",
]

_TEMPLATES = "formats/microcontroller"
#: Names that the examples have already.
_TAKEN = (
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


@dataclass(frozen=True)
class Core:
    """A Cortex-M, with its FPU where it may have one, as each ecosystem calls it.

    Attributes:
        name: LLVM's, gcc's and PlatformIO's.
        fpu: gcc's ``-mfpu``; "" without one.
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
        """Where its library lies: where Arduino looks for a precompiled one."""
        return f"{self.name}/{self.fpu}-hard" if self.fpu else self.name

    @property
    def condition(self) -> str:
        """Zephyr's options of a board with it."""
        return f"{self.kconfig} && FPU && FP_HARDABI" if self.fpu else self.kconfig


@dataclass(frozen=True)
class RiscvCore:
    """A 32-bit RISC-V core by its extensions.

    Attributes:
        name: gcc's ``-march``, and the library's folder.
        targets: Espressif's names of chips whose cores have these extensions, and perhaps more, and the same
            float ABI.
    """

    name: str
    targets: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Where its library lies."""
        return self.name


AnyCore = Core | RiscvCore

#: By LLVM's name.
CORTEX_M: Mapping[str, AnyCore] = {
    core.name: core
    for core in (
        Core("cortex-m0plus", "", "CPU_CORTEX_M0PLUS", "Cortex-M0+", "NO_FPU"),
        Core("cortex-m4", "fpv4-sp-d16", "CPU_CORTEX_M4", "Cortex-M4", "SP_FPU"),
        Core("cortex-m7", "fpv5-d16", "CPU_CORTEX_M7", "Cortex-M7", "DP_FPU"),
        Core("cortex-m33", "fpv5-sp-d16", "CPU_CORTEX_M33", "Cortex-M33", "SP_FPU"),
        Core("cortex-m55", "auto", "CPU_CORTEX_M55", "Cortex-M55", "DP_FPU"),
        Core("cortex-m85", "auto", "CPU_CORTEX_M85", "Cortex-M85", "DP_FPU"),
    )
}


@dataclass(frozen=True)
class Ecosystem:
    """What an ecosystem's packages look like.

    Attributes:
        title: of the format.
        readme: ``NAME.md.j2`` says how such a package is installed.
        rule: how a package may be called, for the error; ``pattern`` is the same as a regular expression.
        include: folder of the headers.
        library: folder of the libraries, in folders for each core.
        folders: those of a core.
        cores: by name, those that it knows.
        which: the cores in words, for refusals.
        example: template of the program that the README prints, in ``language``.
        prefix: of the name, where the user gives none.
        more: what its templates name beside the common values, from these.
    """

    title: str
    readme: str
    rule: str
    pattern: str
    include: str
    library: str
    cores: Mapping[str, AnyCore] = field(default_factory=lambda: CORTEX_M)
    folders: Callable[[AnyCore], Sequence[str]] = lambda core: (core.folder,)
    which: str = "from the M4 on with an FPU"
    example: str = "main.c.j2"
    language: str = "c"
    prefix: str = ""
    more: Callable[[ExportJob, Mapping[str, object]], Mapping[str, object]] = lambda job, values: {}

    def refusal(self, bundle: SourceBundle) -> str:
        """Why it cannot become such a package; "" if it can."""
        device = bundle.manifest.device
        if not device.bare_metal:
            return f"it is for {device.os}, and these packages are for microcontrollers."
        if _core_name(device) not in self.cores:
            known = ", ".join(self.cores)
            named = _core_name(device) or "not named"
            return f"its core is {named}, and the package knows {known}, {self.which}."
        if bundle.artifact("static") is None:
            return "it has no static library."
        if bundle.params is not None:
            return (
                "its library has no params, and the package no place for them; pack it with `--params embed`."
            )
        return ""


def _core_name(device: DeviceRecord) -> str:
    """LLVM's name of a Cortex-M, "" without floats in the registers of its FPU; the extensions of a RISC-V
    core."""
    if device.arch == "riscv32":
        return "rv32i" + "".join(letter for letter in "mafdc" if f"+{letter}" in device.features)
    core = CORTEX_M.get(device.cpu)
    soft = isinstance(core, Core) and not core.fpu
    return device.cpu if soft or device.triple.endswith("eabihf") else ""


@dataclass(frozen=True)
class Contents:
    """A package in the making.

    Attributes:
        job: what is exported.
        title: the package's name.
        values: what the templates name.
        example: text of the program that the README prints.
        entries: headers, libraries, licences and the README; the format adds its own files.
    """

    job: ExportJob
    title: str
    values: dict[str, object]
    example: bytes
    entries: list[Entry]

    def template(self, name: str) -> bytes:
        """A template's text."""
        return template(name, self.values)


def export_format(
    ecosystem: Ecosystem, file: Callable[[str, str], str], write: Callable[[Contents, str], Sequence[str]]
) -> ExportFormat:
    """The format of an ecosystem.

    Args:
        file: name of the package's file, from its title and version.
        write: adds the format's own files, and writes that file.
    """

    def make(job: ExportJob) -> Sequence[str]:
        default = ecosystem.prefix + job.name
        title = package_name(job.package.name, default, ecosystem.pattern, ecosystem.rule)
        name = file(title, job.version)
        values = {**_values(job, ecosystem, title), "file": name}
        values |= {"targets": {}, **ecosystem.more(job, values)}
        example = template(ecosystem.example, values)
        entries = _library_entries(job, ecosystem)
        entries.append(Entry("README.md", _readme(ecosystem, values, example)))
        return write(Contents(job, title, values, example, entries), name)

    return ExportFormat(ecosystem.title, ecosystem.refusal, make, several=True)


def _cores(job: ExportJob, ecosystem: Ecosystem) -> list[AnyCore]:
    """The core of each bundle.

    Raises:
        ConfigError: two are for the same.
    """
    found = [ecosystem.cores[_core_name(bundle.manifest.device)] for bundle in job.bundles]
    for core in found:
        if found.count(core) > 1:
            raise ConfigError(
                f"Two bundles are for {core.name}; the package has one library for each core.",
                hint="Leave one of them out, or export them one by one.",
            )
    return found


def _library_entries(job: ExportJob, ecosystem: Ecosystem) -> list[Entry]:
    """The headers, the libraries by core, and the licences."""
    entries = job.headers(ecosystem.include)
    for core, bundle in zip(_cores(job, ecosystem), job.bundles, strict=True):
        static: Path | None = bundle.artifact("static")
        assert static is not None, "refused before"
        for folder in ecosystem.folders(core):
            entries.append(Entry(f"{ecosystem.library}/{folder}/lib{job.name}.a", static))
    return [*entries, *job.licenses()]


def _values(job: ExportJob, ecosystem: Ecosystem, title: str) -> dict[str, object]:
    """What the templates name."""
    manifest, package = job.bundle.manifest, job.package
    cores = _cores(job, ecosystem)
    tensors = (*manifest.inputs, *manifest.outputs)
    names = unique_identifiers([tensor.name[:60] for tensor in tensors], taken=_TAKEN)
    return {
        "m": manifest,
        "title": title,
        "version": job.version,
        "macro": manifest.name.upper(),
        "option": f"EDGEPACK_{manifest.name.upper()}",
        "cores": cores,
        "hard_float": all(isinstance(core, Core) and core.fpu for core in cores),
        "with_fpu": [core.name for core in cores if isinstance(core, Core) and core.fpu],
        "summary": package.summary
        or f"{manifest.name}, compiled ahead of time by edgepack {manifest.edgepack}",
        "homepage": package.homepage,
        "tensors": [
            {
                "identifier": name,
                "element": C_TYPES[tensor.dtype],
                "elements": max(tensor.nbytes // DTYPE_BYTES[tensor.dtype], 1),
            }
            for name, tensor in zip(names, tensors, strict=True)
        ],
    }


def template(name: str, given: Mapping[str, object]) -> bytes:
    """A template's text."""
    return render(f"{_TEMPLATES}/{name}", given).encode()


def _readme(ecosystem: Ecosystem, given: Mapping[str, object], example: bytes) -> bytes:
    """The README: how the package is installed, and the example."""
    install = template(f"{ecosystem.readme}.md.j2", given).decode()
    texts = {"install": install, "example": example.decode(), "language": ecosystem.language}
    return template("README.md.j2", {**given, **texts})


def write_archive(contents: Contents, name: str, folder: str) -> list[str]:
    """A zip of the entries, below ``folder`` unless that is empty."""
    entries = [entry.below(folder) if folder else entry for entry in contents.entries]
    write_zip(contents.job.folder / name, entries)
    return [name]
