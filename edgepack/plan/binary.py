"""What the back ends leave beside the Plan: files of machine code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Binary", "read_binaries", "write_binaries"]

_FILE = "binaries.json"


@dataclass(frozen=True)
class Binary:
    """One file that a back end made of a Plan's kernels.

    Attributes:
        file: its name in the job's folder.
        backend: what made it (``llvm``, ``opencl``, ``cuda``, ``metal``).
        kind: what it is: ``object``, a relocatable object file that is linked into the library; ``source``,
            the text of a GPU's kernels; ``cubin`` and ``ptx``, what is made of it for NVIDIA's,
            ``metallib`` for Apple's.
        capability: the compute capability that it is for, 10 * major + minor; 0 where there is none.
        version: of what made it, as far as it says one; "" where a package's own version does.
    """

    file: str
    backend: str
    kind: str
    capability: int = 0
    version: str = ""


def write_binaries(folder: Path, binaries: Sequence[Binary]) -> None:
    """Write the list of ``binaries``, which lie in ``folder``."""
    text = json.dumps([asdict(binary) for binary in binaries], indent=1)
    (folder / _FILE).write_text(text, encoding="utf-8", newline="\n")


def read_binaries(folder: Path) -> tuple[Binary, ...]:
    """What :func:`write_binaries` wrote there."""
    return tuple(Binary(**entry) for entry in json.loads((folder / _FILE).read_text(encoding="utf-8")))
