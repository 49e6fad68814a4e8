"""What of this process's environment the worker gets."""

from __future__ import annotations

import os
import re
import sys

from edgepack.resources import PACKAGE

__all__ = ["worker_environment"]

#: Variables of this process's that the child gets too: where Python, its packages and their libraries are,
#: how these use threads and memory, the language, edgepack's own. No others: a password may be among them.
#: On Windows, where programs need many, all but what is secret. ONNX Runtime's (ORT_INTRA_OP_NUM_THREADS and
#: others) must not decide about a bundle's bytes.
_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHLVL|LANG|LANGUAGE|TZ|TERM|VIRTUAL_ENV|COVERAGE_\w+|LC_\w+|PYTHON\w*|CONDA_PREFIX"
    r"|LD_\w+|DYLD_\w+|GLIBC_TUNABLES|MALLOC_\w+|(?:OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR)_\w+"
    r"|TVM_\w+|CUDA_\w+|QEMU_\w+|XDG_\w+|EDGEPACK_\w+|SOURCE_DATE_EPOCH|\w+SAN_OPTIONS"
)
_SECRET = re.compile(r"EDGEPACK_\w*(?:KEY|PASSWORD|SECRET)\w*|ORT_\w+")


def worker_environment() -> dict[str, str]:
    """The variables of a worker that this process starts."""
    everything = sys.platform == "win32"
    kept = {
        name: value
        for name, value in os.environ.items()
        if (everything or _VARIABLES.fullmatch(name)) and not _SECRET.fullmatch(name)
    }
    # ONNX Runtime sends figures of each session to its maker, and keeps an identifier of this machine, unless
    # told not to before it is imported (its Privacy.md).
    environment = {**kept, "ORT_DISABLE_TELEMETRY": "1", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    root = PACKAGE.parent
    if root.name not in {"site-packages", "dist-packages"}:  # run from a source tree that is not installed
        rest = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{rest}" if rest else str(root)
    return environment
