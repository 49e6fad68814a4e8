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
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

from tests.models.builder import Graph

__all__ = ["MODELS", "findings", "oclgrind", "reports"]

DRIVER = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
BARRIER = re.compile(r"\bBARRIER;")
NO_SUCH_BARRIER = 9


def convolution() -> onnx.ModelProto:
    """Tiles that stick out on all sides, padding, and a tail that reads another tensor."""
    g = Graph("convolution", seed=1)
    x, other = g.input("x", (1, 9, 11, 13)), g.input("other", (1, 36, 6, 7))
    y = g.op("Conv", x, g.weight(36, 9, 3, 3), g.weight(36), strides=[2, 2], pads=[1, 1, 1, 1])
    g.op("Relu", g.op("Add", y, other), name="y")
    g.output("y")
    return g.model()


def products() -> onnx.ModelProto:
    """A batch of products of activations, and one by a vector."""
    g = Graph("products", seed=2)
    a, b = g.input("a", (2, 35, 41)), g.input("b", (2, 41, 34))
    y = g.op("Tanh", g.op("MatMul", a, b), name="y")
    g.op("MatMul", g.op("ReduceMean", y, axes=[1], keepdims=0), g.weight(34, 70), name="vector")
    g.output("y")
    g.output("vector")
    return g.model()


def rows() -> onnx.ModelProto:
    """Reductions along memory and across it, longer than a work group and no power of two."""
    g = Graph("rows", seed=3, opset=17)
    x = g.input("x", (3, 700))
    s = g.op("Softmax", x, axis=-1, name="soft")
    g.op("LayerNormalization", s, g.weight(700), g.weight(700), axis=-1, name="norm")
    g.op("ReduceMax", g.op("Reshape", x, g.const([70, 30])), axes=[0], keepdims=0, name="across")
    for name in ("soft", "norm", "across"):
        g.output(name)
    return g.model()


MODELS = {make.__name__: make for make in (convolution, products, rows)}


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
    from tests.models.evaluate import random_inputs
    from tests.support import opencl
    from tests.support.compiled import plan_of
    from tests.support.executor import host_target

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
