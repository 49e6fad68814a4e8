"""Kernels of GPUs in Oclgrind, a simulator of OpenCL devices that reports races between the work items of a
group, accesses outside buffers, and calls that the specification forbids.

It is a driver (Debian: oclgrind), which a process of its own loads, for its LLVM is another than PoCL's. As a
program: ``python -m tests.support.oclgrind FOLDER BARRIER MODEL...`` runs some of MODELS once. A number for
BARRIER leaves that barrier out of the source, -1 none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from workbench.models.gpu import convolution, masked_attention, products, rows

__all__ = ["MODELS", "findings", "oclgrind", "reports"]

DRIVER = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
BARRIER = re.compile(r"\bBARRIER;")
NO_SUCH_BARRIER = 9


#: By name; each is small, for Oclgrind interprets every work item.
MODELS = {
    "convolution": partial(convolution, 1, 9, 11, 13, 36),
    "products": partial(products, 2, 35, 41, 34, 70),
    "rows": partial(rows, 3),
    "attention": partial(masked_attention, (1, 20, 70), (20, 12), 1),
}


def oclgrind(folder: Path) -> tuple[dict[str, str], Path]:
    """Environment of a process whose OpenCL driver is Oclgrind, and the file of its findings.

    Skips the test where there is no Oclgrind; ``EDGEPACK_OCLGRIND`` names the file of the driver if it is not
    installed.
    """
    library = Path(os.environ.get("EDGEPACK_OCLGRIND", DRIVER))
    if not library.exists():
        pytest.skip("there is no Oclgrind (Debian: oclgrind)")
    log, vendor = folder / "oclgrind.txt", folder / "oclgrind.icd"
    vendor.write_text(f"{library}\n", encoding="utf-8")
    environment = {
        "OCL_ICD_VENDORS": str(vendor),
        "OCLGRIND_LOG": str(log),
        "OCLGRIND_CHECK_API": "1",
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_MAX_ERRORS": "10",
    }
    return {**os.environ, **environment}, log


def findings(log: Path) -> list[str]:
    """The first line of each."""
    return [line for line in log.read_text(encoding="utf-8").splitlines() if line[:1].isalpha()]


def reports(models: Sequence[str], folder: Path, barrier: int = -1) -> list[str] | None:
    """What Oclgrind has to say of a run of these models; None if their source has fewer barriers."""
    environment, log = oclgrind(folder)
    done = subprocess.run(
        [sys.executable, "-m", __name__, folder, str(barrier), *models],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode == NO_SUCH_BARRIER:
        return None
    assert done.returncode == 0, done.stderr
    assert "Oclgrind" in done.stdout
    return findings(log)


def _main(folder: Path, barrier: int, names: Sequence[str]) -> int:
    from edgepack.compiler.backends.opencl import opencl_source
    from edgepack.plan.gpu_target import GpuTarget
    from tests.support import opencl
    from workbench.compiled import plan_of
    from workbench.executor import host_target
    from workbench.models.evaluate import random_inputs

    target = GpuTarget("opencl", host_target(), least_groups=4)
    models = {name: MODELS[name]() for name in names}
    built = {name: plan_of(model, f"m{i}", target) for i, (name, model) in enumerate(models.items())}
    texts = {symbol: text for one in built.values() for symbol, text in one.gpu_kernels.items()}
    whole = opencl_source(texts)
    places = [match.span() for match in BARRIER.finditer(whole)]
    if barrier >= len(places):
        return NO_SUCH_BARRIER
    if barrier >= 0:
        whole = whole[: places[barrier][0]] + whole[places[barrier][1] :]
    driver = opencl.Driver()
    print(driver.name())
    with mock.patch.object(opencl, "opencl_source", return_value=whole):
        executor = opencl.OpenClExecutor(built, folder / "kernels", driver)
    for name, model in models.items():
        inputs = random_inputs(model, 3)
        executor.run(name, [np.asarray(inputs[spec.name]) for spec in built[name].plan.inputs])
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
