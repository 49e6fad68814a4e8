"""One convolution at a time, one core: direct, and Winograd's forms, fused and split.

``python benchmarks/convolution.py`` prints medians in ms and what the cost model chooses. Each run uses
another copy of the weights, so that they come from the last cache or from memory, as they do inside of a
network.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgepack.compiler.kernels.cpu.conv import winograd
from edgepack.compiler.planner.build import Built
from tests.models.single import conv
from tests.support.compiled import plan_of
from tests.support.executor import Executor

#: (height and width, input channels, output channels, kernel, stride): ResNet-18's first layer and stages.
LAYERS = [
    (224, 3, 64, 7, 2),
    (56, 64, 64, 3, 1),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
]

#: Name, output tile, whether fused, for each kernel.
FORMS = {
    3: [
        ("direct", 0, True),
        ("F2 fused", 2, True),
        ("F2 split", 2, False),
        ("F4 fused", 4, True),
        ("F4 split", 4, False),
    ],
    7: [("direct", 0, True), ("F3 fused", 3, True), ("F3 split", 3, False)],
}


@contextmanager
def _forced(m: int, fused: bool) -> Iterator[None]:
    chosen, fuses = winograd.winograd_tile, winograd.worth_fusing
    winograd.winograd_tile, winograd.worth_fusing = (lambda *_: m), (lambda *_: fused)  # type: ignore[assignment]
    try:
        yield
    finally:
        winograd.winograd_tile, winograd.worth_fusing = chosen, fuses


def _aligned(nbytes: int) -> np.ndarray:
    raw = np.zeros(nbytes + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:nbytes]


def median_ms(executor: Executor, name: str, built: Built, runs: int) -> float:
    """Of the convolution's steps; the change of layout around it is not counted."""
    plan = built.plan
    rng = np.random.default_rng(0)
    memory = {
        "input": [_aligned(spec.nbytes) for spec in plan.inputs],
        "output": [_aligned(spec.nbytes) for spec in plan.outputs],
        "arena": [_aligned(plan.arena.nbytes)],
    }
    memory["input"][0].view(np.float32)[:] = rng.standard_normal(plan.inputs[0].nbytes // 4)
    copies = max(2, min(8, (64 << 20) // plan.params_bytes))
    weights = []
    for _ in range(copies):
        weights.append([_aligned(array.nbytes) for array in built.constants])
        for to, array in zip(weights[-1], built.constants, strict=True):
            to[:] = np.frombuffer(array.tobytes(), np.uint8)
    times = []
    for run in range(runs + 5):
        total = 0.0
        for step in plan.steps:
            pointers = []
            for a in step.arguments:
                kind = "arena" if a.kind == "scratch" else a.kind
                block = weights[run % copies][a.index] if a.kind == "constant" else memory[kind][a.index]
                offset = a.offset + (step.scratch_offset if a.kind == "scratch" else 0)
                pointers.append(ctypes.c_void_p(block.ctypes.data + offset))
            function = getattr(executor.library, step.kernel)
            begin = time.perf_counter()
            function(*pointers, ctypes.c_int32(0), ctypes.c_int32(step.tasks))
            total += (time.perf_counter() - begin) if "conv2d" in step.kernel else 0.0
        times.append(total * 1e3)
    return statistics.median(times[5:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    names = list(dict.fromkeys(name for forms in FORMS.values() for name, _, _ in forms))
    print("| layer | " + " | ".join(names) + " | chosen |")
    print("|---" * (len(names) + 2) + "|")
    for size, channels, out, taps, stride in LAYERS:
        pads, strides = (taps // 2,) * 4, (stride, stride)
        model = conv((1, channels, size, size), out, (taps, taps), pads=pads, strides=strides)
        built = {}
        for index, (name, m, fused) in enumerate(FORMS[taps]):
            with _forced(m, fused):
                built[name] = plan_of(model, f"f{index}")
        with tempfile.TemporaryDirectory() as folder:
            executor = Executor(built, Path(folder))
            times = {name: median_ms(executor, name, built[name], options.runs) for name in built}
        kernels = plan_of(model).plan.kernels
        rule = next(k for k in kernels if "conv2d" in k.rule)
        chosen = f"{rule.rule.removeprefix('conv2d.')} {rule.parameters.get('form', '')}".strip()
        cells = [f"{times[name]:.2f}" if name in times else "" for name in names]
        what = f"{size}x{size}, {channels} to {out}, {taps}x{taps}" + (" stride 2" if stride == 2 else "")
        print(f"| {what} | " + " | ".join(cells) + f" | {chosen} |", flush=True)


if __name__ == "__main__":
    main()
