"""What an audit says of a built file: what is in it, and what of that is not allowed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["AuditKind", "AuditReport", "Finding"]

#: What a file is audited as; a static library holds objects.
AuditKind = Literal["shared", "static", "program", "object"]


@dataclass(frozen=True)
class AuditReport:
    """What was found in a file.

    Attributes:
        file: its name.
        kind: what it was checked as.
        format: ``ELF64``, ``ELF32``, ``PE32+``, ``COFF``, ``Mach-O 64``, ``WASM``.
        machine: of all of its code (``x86_64``).
        float_abi: ``hard`` or ``soft`` where the architecture has both, else "".
        needed: libraries that it loads.
        glibc: newest glibc version that it asks for (``2.27``); "" if none.
        exported: symbols that others can use.
        undefined: symbols that it takes from the libraries.
        page_alignment: alignment of its segments in bytes; 0 for what is not linked.
        members: object files in it (static libraries).
        features: extensions of the instruction set that its code uses (WebAssembly).
        checks: names of the checks that it passed.
    """

    file: str
    kind: AuditKind
    format: str
    machine: str
    float_abi: str = ""
    needed: tuple[str, ...] = ()
    glibc: str = ""
    exported: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    page_alignment: int = 0
    members: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for the manifest; what is empty is left out."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items() if v}


@dataclass(frozen=True)
class Finding:
    """Something that is not allowed.

    Attributes:
        check: name of the check (``undefined symbols``).
        found: what the file has.
        allowed: what it may have; "" for nothing.
    """

    check: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.check}: found {self.found}; allowed: {self.allowed or 'nothing'}"
