"""What the audits of all object formats have in common: relocatable objects, alone or in a static library,
and the checks that compare names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.config.device import Device
from edgepack.objectfiles import ar
from edgepack.objectfiles.report import AuditKind, AuditReport, Finding, refused_symbol, within

__all__ = ["ObjectFile", "check_names", "check_needed", "check_objects", "word"]


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


def check_objects(
    path: Path,
    device: Device,
    kind: AuditKind,
    exported: tuple[str, ...],
    read: Callable[[bytes, str], ObjectFile],
    *,
    undefined: Callable[[Sequence[str]], Iterator[Finding]],
    checks: tuple[str, ...],
    float_abi: str = "",
) -> tuple[AuditReport, list[Finding]]:
    """What is in an object or a static library, and what of it is not allowed.

    Args:
        read: an object from its bytes, and the name that messages give it.
        undefined: what is wrong with symbols that no object of the file defines.
        checks: names of the checks.
        float_abi: for the report.
    """
    files = ar.members(path) if kind == "static" else [(path.name, path.read_bytes())]
    objects = [read(data, name if kind == "object" else f"{path.name}({name})") for name, data in files]
    defined = {name for one in objects for name in one.defined}
    visible = {name for one in objects for name in one.visible}
    missing = sorted({name for one in objects for name in one.wanted} - defined)
    findings = [
        Finding(f"{f.check} of {name}", f.found, f.allowed) if kind == "static" else f
        for (name, _), one in zip(files, objects, strict=True)
        for f in one.findings
    ]
    findings += undefined(missing)
    if kind == "static":
        findings += check_names("global symbols", visible, exported)
    if tvm := sorted(filter(refused_symbol, defined)):
        findings.append(Finding("global symbols", ", ".join(tvm), "no symbol of TVM or C++"))
    report = AuditReport(
        file=path.name,
        kind=kind,
        format=objects[-1].format if objects else "",
        machine=device.arch,
        float_abi=float_abi,
        exported=tuple(sorted(visible)),
        undefined=tuple(missing),
        members=tuple(name for name, _ in files) if kind == "static" else (),
        features=tuple(sorted({feature for one in objects for feature in one.features})),
        checks=checks,
    )
    return report, findings


def check_names(check: str, found: Collection[str], exported: Sequence[str]) -> Iterator[Finding]:
    """Exactly the names that are to be there."""
    if more := sorted(set(found) - set(exported)):
        yield Finding(check, ", ".join(more), ", ".join(exported))
    if less := sorted(set(exported) - set(found)):
        yield Finding(check, f"no {', '.join(less)}", ", ".join(exported))


def check_needed(needed: Sequence[str], device: Device, *, fold: bool = False) -> Iterator[Finding]:
    """Libraries that the device allows; ``fold``: where the case of their names does not count."""
    allowed = [name.lower() if fold else name for name in device.audit.needed]
    if bad := [name for name in needed if not within(name.lower() if fold else name, allowed)]:
        yield Finding("needed libraries", ", ".join(bad), ", ".join(device.audit.needed))


def word(value: object) -> str:
    """The last word of one of lief's enumerations: ``BINDING.GLOBAL`` -> ``GLOBAL``."""
    return str(value).rsplit(".", 1)[-1]
