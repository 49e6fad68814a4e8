"""A model whose kernels are hand-written C: a Plan, its params, its reference results, and a bundle made of
them with a compiler of the system. Nothing here needs TVM.

The model takes float32 ``data`` [100, 16] and int8 ``small.numbers`` [8]; it gives float32 ``data`` [100, 16]
and float16, bool and int64 [8]. Its steps have 100 tasks, 8, or one; they use constants, arena and scratch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgepack.plan.types import (
    Arena,
    ArenaBuffer,
    Argument,
    Constant,
    Kernel,
    ParamsMode,
    Plan,
    Step,
    TensorSpec,
)
from edgepack.render.model import Execution, Variant, render_model
from edgepack.render.params_file import write_params
from edgepack.render.project import render_project
from edgepack.render.sources import (
    LOADER_SOURCES,
    MODEL_SOURCE,
    PARAMS_DEFINE,
    kernels_object,
    params_define,
    runtime_files,
)
from edgepack.resources import TEMPLATES

__all__ = [
    "ARCH",
    "KERNELS_C",
    "VARIANTS",
    "WARNINGS",
    "MiniBundle",
    "add_gpu_sources",
    "make_sources",
    "mini_plan",
    "reference",
    "run",
]

KERNELS_C = Path(__file__).with_name("mini_kernels.c")
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

#: Compiler and flags of each way of building. tools/runtime_coverage.py adds some. What sanitizers check is
#: not optimised: that compiles in a third of the time, and they see what optimisation would take away.
VARIANTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gcc": (("gcc",), ("-O2", *shlex.split(os.environ.get("EDGEPACK_TEST_CFLAGS", "")))),
    "address": (
        ("clang",),
        ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
    ),
    "thread": (("clang",), ("-O0", "-g", "-fsanitize=thread")),
}

#: This machine's architecture, as a device's YAML spells it.
ARCH = {"AMD64": "x86_64", "arm64": "aarch64", "armv7l": "arm"}.get(platform.machine(), platform.machine())

Array = npt.NDArray[np.generic]


def weights(seed: int) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 2, 16).astype(np.float32)


def mini_plan(name: str = "mini", seed: int = 1) -> Plan:
    """The plan; models with another seed have other params."""
    row = 100 * 16 * 4
    a = [Argument("arena", 0, offset) for offset in (0, row, 2 * row)]
    x, small = Argument("input", 0), Argument("input", 1)
    w = weights(seed).tobytes()
    prefix = f"{name}_"
    steps = [
        Step("fail_if_negative", 8, (small,)),
        Step("scale", 100, (x, Argument("constant", 1), a[0])),
        Step("blur", 100, (a[0], a[1], Argument("scratch", 0, 64)), (), 128, 2 * row + 64),
        Step("total", 1, (a[1], a[2])),
        Step("total", 1, (a[1], a[2])),
        Step("add_total", 100, (a[1], a[2], Argument("output", 0))),
        Step("convert", 8, (small, Argument("output", 1), Argument("output", 2), Argument("output", 3))),
    ]
    pointers = {s.kernel: len(s.arguments) for s in steps}
    return Plan(
        name=name,
        inputs=(
            TensorSpec("data", "float32", (100, 16)),
            TensorSpec("small.numbers", "int8", (8,)),
        ),
        outputs=(
            TensorSpec("data", "float32", (100, 16)),
            TensorSpec("halves", "float16", (8,)),
            TensorSpec("int", "bool", (8,)),
            TensorSpec('µ*/"', "int64", (8,)),
        ),
        constants=(
            Constant("unused", "int8", (), 1, hashlib.sha256(b"u").hexdigest(), 0),
            Constant("weights", "float32", (16,), 64, hashlib.sha256(w).hexdigest(), 64),
        ),
        params_bytes=128,
        # Up to two threads have their scratch in the arena.
        arena=Arena(2 * row + 320, 2 * row + 320, 2, 2, 128, (ArenaBuffer("a", 0, row, 0, 3),)),
        steps=tuple(replace(s, kernel=prefix + s.kernel) for s in steps),
        kernels=tuple(Kernel(prefix + k, n) for k, n in pointers.items()),
    )


def blob(seed: int) -> bytes:
    """The data of the params."""
    return b"u" + bytes(63) + weights(seed).tobytes()


def reference(inputs: Sequence[Array], seed: int = 1) -> list[Array]:
    """What the model computes, in numpy."""
    data, small = inputs
    scaled = (data * weights(seed)).astype(np.float32)
    blurred = (scaled + np.roll(scaled, -1, axis=1)).astype(np.float32)
    total = np.float32(0)
    for value in blurred[:, 0]:
        total = np.float32(total + value)
    return [
        (blurred + total).astype(np.float32),
        small.astype(np.float16),
        (small % 2).astype(np.bool_),
        small.astype(np.int64),
    ]


def sample_inputs(seed: int = 7) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((100, 16)).astype(np.float32), rng.integers(0, 4, 8).astype(np.int8)]


def run(command: Sequence[str | Path], *, cwd: Path | None = None, ok: int | None = 0) -> str:
    """Output (both streams) of a command; fails the test if it does not exit with ``ok`` (None: any)."""
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=300,
    )
    output = done.stdout.decode("utf-8", "replace")
    assert ok is None or done.returncode == ok, f"{command} exited with {done.returncode}:\n{output}"
    return output


@dataclass(frozen=True)
class MiniBundle:
    """A folder that holds what a bundle holds, so far as C is concerned."""

    root: Path
    plan: Plan
    mode: ParamsMode

    @property
    def params(self) -> Path:
        return self.root / "params" / f"{self.plan.name}.params"

    @property
    def shared(self) -> Path:
        return self.root / "lib" / f"lib{self.plan.name}.so"

    @property
    def static(self) -> Path:
        return self.root / "lib" / f"lib{self.plan.name}.a"

    @property
    def program(self) -> Path:
        return self.root / "bin" / self.plan.name

    @property
    def includes(self) -> list[str]:
        return [f"-I{self.root / 'include'}", f"-I{self.root / 'src'}"]

    @property
    def defines(self) -> list[str]:
        return [f"-D{PARAMS_DEFINE}={params_define(self.params)}"] if self.mode == "embed" else []

    def build(
        self,
        *,
        cc: Sequence[str] = ("gcc",),
        flags: Sequence[str] = ("-O2",),
        shared: bool = True,
        program: bool = True,
    ) -> MiniBundle:
        """Compiles the library, static and ``shared``, and the loader ``program``."""
        flags = [*WARNINGS, "-fPIC", "-fvisibility=hidden", *flags]
        objects = self.root / "objects"
        for folder in (objects, self.root / "lib", self.root / "bin"):
            folder.mkdir(exist_ok=True)
        model = objects / f"{self.plan.name}.o"
        kernels = self.root / kernels_object(0, 1)
        prefix = f"-DPREFIX={self.plan.name}_"
        run([*cc, *flags, "-fvisibility=default", prefix, "-c", KERNELS_C, "-o", kernels])
        run([*cc, *flags, *self.includes, *self.defines, "-c", self.root / MODEL_SOURCE, "-o", model])
        # A sanitizer's runtime comes with the program, not with the library.
        closed = [] if any("-fsanitize" in flag for flag in flags) else ["-Wl,-z,defs"]
        if shared:
            run([*cc, *flags, "-shared", *closed, model, kernels, "-o", self.shared, "-lpthread", "-lm"])
        run(["ar", "rcs", self.static, model, kernels])
        if program:
            loader = [self.root / source for source in LOADER_SOURCES]
            run([*cc, *flags, *self.includes, *loader, self.static, "-o", self.program, "-lpthread", "-lm"])
        return self


def add_gpu_sources(bundle: MiniBundle) -> MiniBundle:
    """Adds the runtime's part for GPUs, which only bundles with kernels for one have; returns the bundle."""
    part = TEMPLATES / "runtime" / "gpu"
    shutil.copytree(part, bundle.root / "src" / "runtime" / "gpu", dirs_exist_ok=True)
    return bundle


def make_sources(
    root: Path,
    *,
    name: str = "mini",
    seed: int = 1,
    mode: ParamsMode = "file",
    arch: str = ARCH,
    requires: Sequence[str] = (),
    threads: int = 2,
    heterogeneous: bool = False,
    keep_denormals: bool = False,
    unused_arena: int = 0,
    places_in_params: bool = False,
) -> MiniBundle:
    """Writes everything but what a compiler makes: sources, project, params, recorded data."""
    plan = replace(mini_plan(name, seed), places_in_params=places_in_params)
    plan = replace(plan, arena=replace(plan.arena, nbytes=plan.arena.nbytes + unused_arena))
    for folder in ("params", "test"):
        (root / folder).mkdir(parents=True)
    raw = root / "params.bin"
    raw.write_bytes(blob(seed))
    bundle = MiniBundle(root, plan, mode)
    params_id = write_params(plan, raw, bundle.params)
    raw.unlink()
    texts = render_model(
        [Variant("device", plan, tuple(requires))],
        params_id=params_id,
        params_mode=mode,
        execution=Execution(arch, threads, heterogeneous, keep_denormals, direct=mode == "embed"),
    ) | render_project(
        plan,
        kernels=[kernels_object(0, 1)],
        params_mode=mode,
        shared=f"lib/lib{name}.so",
        static=f"lib/lib{name}.a",
        arch=arch,
    )
    for relative, text in texts.items():
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    for relative, source in runtime_files().items():
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
    record(root / "test", seed)
    return bundle


def record(folder: Path, seed: int) -> None:
    """Inputs, expected outputs and tolerances, as a pack records them."""
    inputs = sample_inputs()
    outputs = reference(inputs, seed)
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, array in enumerate(arrays):
            (folder / f"{kind}_{i}.bin").write_bytes(array.tobytes())
    (folder / "tolerances.txt").write_text("1e-5 1e-5\n1e-3 0\n0 0\n0 0\n", encoding="utf-8", newline="\n")
