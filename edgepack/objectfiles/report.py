"""What an audit finds, and the symbols that no built file may need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from edgepack.config.device import Device

__all__ = ["AuditKind", "AuditReport", "Finding", "disallowed_symbols", "refused_symbol", "within"]

AuditKind = Literal["shared", "static", "program", "object"]

#: TVM's symbols, and anything that is C++: a bundle must need neither runtime.
_REFUSED = ("TVM", "tvm", "__TVM", "__tvm", "_Z", "?")


@dataclass(frozen=True)
class AuditReport:
    """What was found in a file that passed.

    Attributes:
        file: its name.
        kind: what it was checked as.
        format: ``ELF64``, ``ELF32``.
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
    """Something that is not allowed."""

    check: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.check}: found {self.found}; allowed: {self.allowed or 'nothing'}"


def refused_symbol(name: str) -> bool:
    """Whether a symbol belongs to TVM or to C++."""
    return name.startswith(_REFUSED)


def within(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of ``patterns``, in which ``*`` matches any text."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache(maxsize=1)
def _allow_list() -> tuple[frozenset[str], tuple[str, ...]]:
    text = Path(__file__).with_name("allowed-symbols.txt").read_text(encoding="utf-8")
    words = [w for line in text.splitlines() if not line.startswith("#") for w in line.split()]
    return frozenset(w for w in words if "*" not in w), tuple(w for w in words if "*" in w)


def disallowed_symbols(device: Device, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are on neither allow-list: the file beside this module, the device's own."""
    exact, patterns = _allow_list()
    patterns = (*patterns, *device.audit.symbols)
    return [n for n in names if refused_symbol(n) or not (n in exact or within(n, patterns))]
