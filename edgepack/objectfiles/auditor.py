"""The audit of a built file, as it is the same for all formats; a subclass per format reads the files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from edgepack.config.device import Device
from edgepack.objectfiles import ar
from edgepack.objectfiles.names import check_names, refused_symbol
from edgepack.objectfiles.report import AuditKind, AuditReport, Finding

__all__ = ["AuditRequest", "Auditor", "LinkedFile", "ObjectFile", "word"]


@dataclass(frozen=True)
class AuditRequest:
    """What is to be audited.

    Attributes:
        file: its name, for messages; of a static library's member ``libx.a(member.o)``.
        kind: what the whole file is to be.
        exported: symbols that a library must export, and the only ones.
        integers: whether firmware computes with integers alone, for a CPU without an FPU.
    """

    file: str
    kind: AuditKind
    exported: tuple[str, ...]
    integers: bool = False


@dataclass(frozen=True)
class LinkedFile:
    """A shared library or a program, as a format's audit reads it.

    Attributes:
        format: ``ELF64``, ``PE32+``, ...
        exported: symbols that others can use.
        undefined: symbols that it takes from the libraries that it loads.
        findings: what is wrong with it, in the order in which it is said.
        needed: libraries that it loads.
        glibc: newest glibc version that it asks for; "" if none.
        page_alignment: alignment of its segments in bytes.
        features: extensions of the instruction set that its code uses.
    """

    format: str
    exported: tuple[str, ...]
    undefined: tuple[str, ...]
    findings: Sequence[Finding]
    needed: tuple[str, ...] = ()
    glibc: str = ""
    page_alignment: int = 0
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObjectFile:
    """A relocatable object, as a format's audit reads it.

    Attributes:
        format: ``ELF64``, ``COFF``, ...
        defined: symbols that other objects of the same library can use.
        visible: those of them that whoever links the library sees too.
        wanted: symbols that it takes from elsewhere.
        findings: what is wrong with it, but for its symbols.
        features: extensions of the instruction set that its code uses.
    """

    format: str
    defined: Collection[str]
    visible: Collection[str]
    wanted: Collection[str]
    findings: Sequence[Finding] = ()
    features: Collection[str] = ()


class Auditor(ABC):
    """Audits the files that are built for one device."""

    #: Names of the checks, for reports.
    linked_checks: ClassVar[tuple[str, ...]]
    object_checks: ClassVar[tuple[str, ...]]

    def __init__(self, device: Device) -> None:
        self.device = device

    @abstractmethod
    def read_linked(self, data: bytes, request: AuditRequest) -> LinkedFile:
        """A shared library or a program; CheckFailedError for a file of another format."""

    @abstractmethod
    def read_object(self, data: bytes, request: AuditRequest) -> ObjectFile:
        """An object, alone or of a static library; CheckFailedError for a file of another format."""

    @abstractmethod
    def check_missing(self, names: Sequence[str]) -> Iterator[Finding]:
        """What is wrong with symbols that no object of a file defines."""

    def checks(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the checks for this device: of :attr:`linked_checks` or :attr:`object_checks`."""
        return names

    @property
    def float_abi(self) -> str:
        """``hard`` or ``soft`` where the architecture has both, else ""."""
        return ""

    def audit(
        self, path: Path, kind: AuditKind, exported: tuple[str, ...], *, integers: bool = False
    ) -> tuple[AuditReport, list[Finding]]:
        """What is in a built file, and what of it is not allowed; CheckFailedError if it cannot be read."""
        request = AuditRequest(path.name, kind, exported, integers)
        if kind in {"static", "object"}:
            return self._audit_objects(path, request)
        return self._audit_linked(path, request)

    def _audit_linked(self, path: Path, request: AuditRequest) -> tuple[AuditReport, list[Finding]]:
        linked = self.read_linked(path.read_bytes(), request)
        report = AuditReport(
            file=path.name,
            kind=request.kind,
            format=linked.format,
            machine=self.device.arch,
            float_abi=self.float_abi,
            needed=linked.needed,
            glibc=linked.glibc,
            exported=linked.exported,
            undefined=linked.undefined,
            page_alignment=linked.page_alignment,
            features=linked.features,
            checks=self.checks(self.linked_checks),
        )
        return report, list(linked.findings)

    def _audit_objects(self, path: Path, request: AuditRequest) -> tuple[AuditReport, list[Finding]]:
        static = request.kind == "static"
        files = ar.members(path) if static else [(path.name, path.read_bytes())]
        objects = [
            self.read_object(data, replace(request, file=f"{path.name}({name})") if static else request)
            for name, data in files
        ]
        defined = {name for one in objects for name in one.defined}
        visible = {name for one in objects for name in one.visible}
        missing = sorted({name for one in objects for name in one.wanted} - defined)
        findings = [
            Finding(f"{f.check} of {name}", f.found, f.allowed) if static else f
            for (name, _), one in zip(files, objects, strict=True)
            for f in one.findings
        ]
        findings += self.check_missing(missing)
        if static:
            findings += check_names("global symbols", visible, request.exported)
        if tvm := sorted(filter(refused_symbol, defined)):
            findings.append(Finding("global symbols", ", ".join(tvm), "no symbol of TVM or C++"))
        report = AuditReport(
            file=path.name,
            kind=request.kind,
            format=objects[-1].format if objects else "",
            machine=self.device.arch,
            float_abi=self.float_abi,
            exported=tuple(sorted(visible)),
            undefined=tuple(missing),
            members=tuple(name for name, _ in files) if static else (),
            features=tuple(sorted({feature for one in objects for feature in one.features})),
            checks=self.checks(self.object_checks),
        )
        return report, findings


def word(value: object) -> str:
    """The last word of one of lief's enumerations: ``BINDING.GLOBAL`` -> ``GLOBAL``."""
    return str(value).rsplit(".", 1)[-1]
