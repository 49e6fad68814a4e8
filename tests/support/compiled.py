"""Compile models of the tests to plans, run them here, and compare with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.reference import tolerances
from edgepack.compiler.graph.lower import lower
from edgepack.compiler.planner.build import Built, build_plan
from edgepack.errors import EdgepackError
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Plan
from tests.models.evaluate import random_inputs, run_onnxruntime
from tests.support.executor import Executor, host_target

__all__ = ["REGISTER_FILES", "VECTORS", "Compiled", "assert_close", "plan_of", "target_with"]

#: Vector width in bits and number of registers: no vectors, SSE, NEON, AVX2, AVX-512. All run on this machine
#: whatever its CPU, because LLVM splits vectors that are too wide.
REGISTER_FILES = {
    "scalar": (0, 16),
    "128x16": (128, 16),
    "128x32": (128, 32),
    "256x16": (256, 16),
    "512x32": (512, 32),
}

#: Those that have vectors.
VECTORS = tuple(name for name, (bits, _) in REGISTER_FILES.items() if bits)


def target_with(register_file: str, *, threads: int = 3, **options: Any) -> CpuTarget:
    """A CPU with these registers; ``options`` are fields of the target."""
    bits, registers = REGISTER_FILES[register_file]
    return CpuTarget(
        "x86_64-unknown-linux-gnu",
        "x86-64",
        vector_bits=bits,
        vector_registers=registers,
        threads=threads,
        **options,
    )


def plan_of(model: onnx.ModelProto, name: str = "m", target: CpuTarget | None = None) -> Built:
    """The plan of a model whose shapes are static."""
    imported = import_model(model)
    return build_plan(
        lower(imported.module),
        name=name,
        inputs=imported.inputs,
        outputs=imported.outputs,
        target=target or host_target(),
        symbol_prefix=f"{name}_",
        nodes=imported.nodes,
    )


class Compiled:
    """Models compiled into one library: one link instead of many. What cannot be compiled fails when used.

    Args:
        models: by name, of static shapes.
        folder: where the library is made.
        target: the CPU that the kernels are chosen for; None: this machine's.
        machine: the CPU that they are compiled for, if another.
    """

    def __init__(
        self,
        models: Mapping[str, onnx.ModelProto],
        folder: Path,
        target: CpuTarget | None = None,
        *,
        machine: CpuTarget | None = None,
    ) -> None:
        self.models = dict(models)
        self._errors: dict[str, EdgepackError] = {}
        built: dict[str, Built] = {}
        for number, (name, model) in enumerate(models.items()):
            try:
                built[name] = plan_of(model, f"m{number}", target)
            except EdgepackError as error:
                self._errors[name] = error
        self._executor = Executor(built, folder, machine or target)

    def built(self, name: str) -> Built:
        """The plan of a model and its kernels."""
        if name in self._errors:
            raise self._errors[name]
        return self._executor.built[name]

    def plan(self, name: str) -> Plan:
        """The plan of a model."""
        return self.built(name).plan

    def run(self, name: str, inputs: Mapping[str, np.ndarray], **how: int) -> dict[str, np.ndarray]:
        """Outputs by name; ``how`` is that of the executor."""
        plan = self.plan(name)
        arrays = [np.asarray(inputs[spec.name]) for spec in plan.inputs]
        results = self._executor.run(name, arrays, **how)
        return dict(zip((spec.name for spec in plan.outputs), results, strict=True))

    def expected(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, as ONNX Runtime computes them."""
        model = self.models[name]
        outputs = (output.name for output in model.graph.output)
        return dict(zip(outputs, run_onnxruntime(model, inputs), strict=True))

    def check(self, name: str, *, seed: int = 5, poison: int = 0xFF) -> None:
        """Fails if outputs for random inputs are not what ONNX Runtime gives."""
        inputs = random_inputs(self.models[name], seed)
        got = self.run(name, inputs, seed=seed, poison=poison)
        assert_close(self.models[name], got, self.expected(name, inputs))


def assert_close(
    model: onnx.ModelProto, got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
    """Compares outputs under the tolerance that a bundle of this model records."""
    allowed = tolerances(model)
    for name, reference in expected.items():
        value, limit = got[name], allowed[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype), name
        if isinstance(limit, int):
            assert np.abs(value.astype(np.int64) - reference.astype(np.int64)).max(initial=0) <= limit, name
            continue
        finite = np.isfinite(reference)
        scale = np.abs(reference[finite]).max(initial=0)
        np.testing.assert_allclose(
            value,
            reference,
            rtol=limit.relative_each,
            atol=max(limit.relative * scale, limit.floor),
            err_msg=name,
        )
