"""Is a built file what the device can load, and does it need nothing but what the device has?

Runs after linking, before a bundle is written. What was found goes into the manifest.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.base import format_for
from edgepack.objectfiles.report import AuditKind, AuditReport

__all__ = ["audit", "load_in_background"]


def load_in_background() -> None:
    """Import LIEF, which reads object files, in a thread: that takes half a second or more of one core, and
    none is read before the model is compiled, in another process. Who ends meanwhile waits for it: a thread
    that ends with the interpreter would leave a half-made module of C++."""
    threading.Thread(target=import_module, args=("lief",)).start()


def audit(
    path: Path, device: Device, *, kind: AuditKind, exported: Sequence[str] = (), integers: bool = False
) -> AuditReport:
    """Check a built file.

    Args:
        path: a shared library, static library, program or object.
        device: what it was built for.
        kind: which of these it is.
        exported: the symbols that a library must export, and the only ones.
        integers: whether firmware computes with integers alone, for a CPU without an FPU.

    Returns:
        what was found in it.

    Raises:
        CheckFailedError: it names the file, what was found and what is allowed; all findings are in it.
    """
    report, findings = format_for(device).auditor().audit(path, kind, tuple(exported), integers=integers)
    if findings:
        first, *others = [f"{path.name}: {finding}" for finding in findings]
        raise CheckFailedError(
            first,
            detail="\n".join(others),
            hint="Build with another --toolchain (zig's targets name a glibc version), or widen `audit:` in "
            f"a device file that extends {device.name} if the device really has this.",
        )
    return report
