"""Which names of symbols and libraries a built file may have: the checks that all formats share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from edgepack.config.device import Device
from edgepack.objectfiles.report import Finding

__all__ = ["check_names", "check_needed", "check_undefined", "disallowed_symbols", "refused_symbol", "within"]

#: TVM's symbols, and anything that is C++: a bundle must need neither runtime.
_REFUSED = ("TVM", "tvm", "__TVM", "__tvm", "_Z", "?")


def refused_symbol(name: str) -> bool:
    """Whether a symbol belongs to TVM or to C++."""
    return name.startswith(_REFUSED)


def within(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of ``patterns``, in which ``*`` matches any text."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def disallowed_symbols(device: Device, names: Sequence[str]) -> list[str]:
    """The ``names`` that are on neither allow-list: ``allowed-symbols.txt``, the device's own."""
    exact, patterns = _allow_list()
    patterns = (*patterns, *device.audit.symbols)
    return [n for n in names if refused_symbol(n) or not (n in exact or within(n, patterns))]


def check_undefined(names: Sequence[str], device: Device, allowed: str) -> Iterator[Finding]:
    """Symbols that a file takes from elsewhere; ``allowed`` says in words what it may take."""
    if bad := disallowed_symbols(device, names):
        yield Finding("undefined symbols", ", ".join(bad), allowed)


def check_names(check: str, found: Collection[str], exported: Sequence[str]) -> Iterator[Finding]:
    """Exactly the names ``exported`` must be among what was found: no more, no less."""
    if more := sorted(set(found) - set(exported)):
        yield Finding(check, ", ".join(more), ", ".join(exported))
    if less := sorted(set(exported) - set(found)):
        yield Finding(check, f"no {', '.join(less)}", ", ".join(exported))


def check_needed(needed: Sequence[str], device: Device, *, fold: bool = False) -> Iterator[Finding]:
    """Libraries that a file loads must be among those that the device allows; ``fold``: whatever the case of
    their names."""
    allowed = [name.lower() if fold else name for name in device.audit.needed]
    if bad := [name for name in needed if not within(name.lower() if fold else name, allowed)]:
        yield Finding("needed libraries", ", ".join(bad), ", ".join(device.audit.needed))


@lru_cache(maxsize=1)
def _allow_list() -> tuple[frozenset[str], tuple[str, ...]]:
    """The file's plain names, and its patterns."""
    text = Path(__file__).with_name("allowed-symbols.txt").read_text(encoding="utf-8")
    words = [w for line in text.splitlines() if not line.startswith("#") for w in line.split()]
    return frozenset(w for w in words if "*" not in w), tuple(w for w in words if "*" in w)
