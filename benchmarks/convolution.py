"""One convolution at a time, one core: direct, and Winograd's forms, fused and split.

``python benchmarks/convolution.py`` prints medians in ms and what the cost model chooses; ``... signals``,
``... windows`` and ``... groups`` the same of convolutions in one dimension, of windows that are not 3x3, and
in groups. ``... bytes`` has groups of quantised networks, as an implicit matrix product and as the cost model
chooses, ``... integers`` 3x3 convolutions of bytes in Winograd's forms, for this machine or ``--device``.
Each run uses another copy of the weights, so that they come from the last cache or from memory, as they do
inside of a network. ``... errors`` prints the errors of the filters in one dimension.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, anchored
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_1d import all_1d
from edgepack.compiler.kernels.cpu.conv.winograd_filters import FILTERS
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.schedule import Given
from edgepack.compiler.planner.build import Built
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from workbench.compiled import groups_of, plan_of, target_with
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph
from workbench.models.single import conv

#: Rows and columns of a Winograd tile's outputs.
Outputs = tuple[int, int]

#: (height and width, input channels, output channels, kernel, stride): ResNet-18's first layer and stages.
IMAGES = [
    (224, 3, 64, 7, 2),
    (56, 64, 64, 3, 1),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
]

#: (length, input channels, output channels, kernel, dilation): layers of vocoders, of a TCN, and of WaveNet.
SIGNALS = [
    (8192, 16, 16, 3, 1),
    (8192, 16, 16, 7, 3),
    (8192, 16, 16, 11, 5),
    (4096, 32, 32, 3, 1),
    (4096, 32, 32, 7, 3),
    (2048, 64, 64, 3, 3),
    (2048, 64, 64, 11, 5),
    (1024, 128, 128, 3, 1),
    (1024, 128, 128, 5, 1),
    (1024, 128, 128, 7, 3),
    (512, 256, 256, 3, 1),
    (512, 256, 256, 11, 5),
    (256, 64, 64, 3, 32),
    (1000, 64, 128, 2, 16),
    (200, 512, 512, 5, 1),
]

#: (height and width, channels of a group, kernel, groups): stages of RegNets and ResNeXts, and wav2vec2's
#: positional convolution, a signal.
GROUPS = [
    (56, 16, (3, 3), 4),
    (28, 16, (3, 3), 8),
    (14, 16, (3, 3), 20),
    (28, 24, (3, 3), 5),
    (14, 48, (3, 3), 5),
    (14, 64, (3, 3), 7),
    (28, 8, (3, 3), 32),
    (14, 16, (3, 3), 32),
    (7, 32, (3, 3), 32),
    (56, 4, (3, 3), 32),
    (49, 48, (1, 128), 16),
]

#: (height and width, channels of a group, of its output, groups, stride): quantised RegNets and ResNeXts.
BYTES = [
    (56, 4, 4, 32, 1),
    (28, 8, 8, 13, 1),
    (14, 8, 8, 26, 1),
    (7, 8, 8, 55, 1),
    (56, 8, 8, 13, 2),
    (28, 8, 16, 16, 1),
    (28, 12, 12, 8, 1),
    (28, 16, 16, 8, 1),
    (7, 16, 16, 32, 1),
    (14, 24, 24, 14, 1),
    (7, 32, 32, 32, 1),
    (14, 64, 64, 4, 1),
]

#: (height and width, input channels, output channels): 3x3 of stride 1, of quantised networks.
INTEGERS = [
    (128, 16, 16),
    (128, 32, 32),
    (112, 8, 24),
    (56, 64, 64),
    (28, 128, 128),
    (14, 256, 256),
    (14, 512, 512),
    (7, 160, 160),
    (7, 512, 512),
]

#: (height and width, input channels, output channels, kernel, strides, dilation): what is not 3x3.
WINDOWS = [
    (35, 48, 64, (5, 5), (1, 1), 1),
    (27, 64, 192, (5, 5), (1, 1), 1),
    (14, 32, 128, (5, 5), (1, 1), 1),
    (28, 6, 16, (5, 5), (1, 1), 1),
    (112, 3, 32, (9, 9), (1, 1), 1),
    (112, 32, 32, (7, 7), (1, 1), 1),
    (17, 128, 128, (1, 7), (1, 1), 1),
    (17, 128, 128, (7, 1), (1, 1), 1),
    (64, 64, 64, (3, 1), (1, 1), 2),
    (64, 64, 64, (1, 3), (1, 1), 2),
    (33, 256, 256, (3, 3), (1, 1), 6),
    (56, 24, 24, (3, 3), (1, 1), 2),
    (56, 64, 64, (3, 3), (2, 1), 1),
    (28, 64, 64, (2, 2), (1, 1), 1),
    (8, 256, 256, (1, 3), (1, 1), 1),
]

#: m of the square tiles of outputs that there are, by kernel.
SQUARES = {3: (2, 4), 7: (3,)}


def image(size: int, channels: int, out: int, taps: int, stride: int) -> tuple[str, ModelProto]:
    """Label and model of a layer of :data:`IMAGES`."""
    label = f"{size}x{size}, {channels} to {out}, {taps}x{taps}" + (" stride 2" if stride == 2 else "")
    pads, strides = (taps // 2,) * 4, (stride, stride)
    return label, conv((1, channels, size, size), out, (taps, taps), pads=pads, strides=strides)


def signal(length: int, channels: int, out: int, taps: int, dilation: int) -> tuple[str, ModelProto]:
    """Label and model of a layer of :data:`SIGNALS`."""
    label = f"{length}, {channels} to {out}, {taps}" + (f" dilated {dilation}" if dilation > 1 else "")
    reach = (taps - 1) * dilation
    pads = (reach // 2, reach - reach // 2)
    return label, conv((1, channels, length), out, (taps,), pads=pads, dilations=(dilation,))


def window(
    size: int, channels: int, out: int, kernel: tuple[int, int], strides: tuple[int, int], dilation: int
) -> tuple[str, ModelProto]:
    """Label and model of a layer of :data:`WINDOWS`."""
    label = f"{size}x{size}, {channels} to {out}, {kernel[0]}x{kernel[1]}"
    label += f" strides {strides[0]}, {strides[1]}" * (strides != (1, 1))
    label += f" dilated {dilation}" * (dilation > 1)
    reach = [(taps - 1) * dilation for taps in kernel]
    pads = (*(n // 2 for n in reach), *(n - n // 2 for n in reach))
    shape, dilations = (1, channels, size, size), (dilation, dilation)
    return label, conv(shape, out, kernel, pads=pads, strides=strides, dilations=dilations)


def grouped(size: int, channels: int, kernel: tuple[int, int], groups: int) -> tuple[str, ModelProto]:
    """Label and model of a layer of :data:`GROUPS`."""
    height = size if kernel[0] > 1 else 1
    pads = (*((n - 1) // 2 for n in kernel), *(n // 2 for n in kernel))
    label = f"{height}x{size}, {groups} groups of {channels}, {kernel[0]}x{kernel[1]}"
    every = groups * channels
    return label, conv((1, every, height, size), every, kernel, pads=pads, group=groups)


def quantised(
    size: int, channels: int, out: int, groups: int, stride: int, largest: int
) -> tuple[str, ModelProto]:
    """Label and model of a layer of :data:`BYTES`: uint8 whose zero point is 0, as behind a Relu, and weights
    of int8 up to ``largest``."""
    label = f"{size}x{size}, {groups} groups of {channels}" + f" to {out}" * (out != channels)
    if groups == 1:
        label = f"{size}x{size}, {channels} to {out}, 3x3"
    g = Graph(label)
    # As trained weights are, the largest of which is four standard deviations: bounds of sums depend on it.
    drawn = np.rint(g.rng.normal(0, largest / 4, (groups * out, channels, 3, 3)))
    weights = np.clip(drawn, -largest, largest).astype(np.int8)
    scale = lambda x: g.const(np.float32(x))  # noqa: E731
    x = g.input("x", (1, groups * channels, size, size), "uint8"), scale(0.05), g.const(np.uint8(0))
    w = g.const(weights), scale(0.002), g.const(np.int8(0))
    y = scale(0.001 * largest * (9 * channels) ** 0.5), g.const(np.uint8(100))
    made = g.op("QLinearConv", *x, *w, *y, name="y", group=groups, pads=[1] * 4, strides=[stride] * 2)
    g.output(made, "uint8")
    return label + " stride 2" * (stride == 2), g.model()


def lines(model: ModelProto, target: CpuTarget) -> Iterator[tuple[str, Outputs]]:
    """Name and outputs of the tiles of each filter along each side of a layer."""
    groups = [fused for fused, _ in groups_of(model, target)]
    (found,) = [one for one in groups if one.anchor is not None and one.anchor.kind in CONVOLUTIONS]
    for one in all_1d(Conv2d.of(anchored(found, CONVOLUTIONS))):
        yield f"F({one.m}, {one.filter.r}) {('down', 'along')[one.axis]}", one.outputs


def squares(taps: int) -> list[tuple[str, Outputs]]:
    """Name and outputs of each square tile of a window of so many taps."""
    return [(f"F{m}", (m, m)) for m in SQUARES.get(taps, ())]


def forms(tiles: Iterable[tuple[str, Outputs]]) -> dict[str, Given]:
    """The schedules of all forms of a layer, by name."""
    found: dict[str, Given] = {"direct": {"conv2d.winograd": None}}
    for name, outputs in tiles:
        fused, split = (WinogradSchedule(outputs=outputs, form=form) for form in ("fused", "split"))
        found |= {f"{name} fused": {"conv2d.winograd": fused}, f"{name} split": {"conv2d.winograd": split}}
    return found


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
    if plan.inputs[0].dtype == "float32":
        memory["input"][0].view(np.float32)[:] = rng.standard_normal(plan.inputs[0].nbytes // 4)
    else:
        memory["input"][0][:] = rng.integers(0, 256, plan.inputs[0].nbytes)
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


def row(label: str, model: ModelProto, choice: dict[str, Given], target: CpuTarget, runs: int) -> None:
    """Prints the medians of a layer's forms, and what the cost model chooses."""
    built = {}
    for index, (name, given) in enumerate(choice.items()):
        built[name] = plan_of(model, f"f{index}", target, given=given)
    with tempfile.TemporaryDirectory() as folder:
        executor = Executor(built, Path(folder), target, optimised=True)
        times = {name: median_ms(executor, name, built[name], runs) for name in built}
    kernels = plan_of(model, "chosen", target).plan.kernels
    rule = next(k for k in kernels if k.rule.startswith("conv2d"))
    chosen = f"{rule.rule} {rule.parameters.get('form', '')}".strip()
    cells = ", ".join(f"{name} {ms:.3g}" for name, ms in times.items() if name != "direct")
    best = min(ms for name, ms in times.items() if name != "direct")
    print(
        f"| {label} | {times['direct']:.3g} | {cells} | {times['direct'] / best:.2f} | {chosen} |", flush=True
    )


def bytes_row(label: str, model: ModelProto, target: CpuTarget, runs: int) -> None:
    """Prints microseconds and GOPS of a layer of bytes as an implicit matrix product and as it is chosen."""
    built = {
        name: plan_of(model, name, target, given=given)
        for name, given in {"gemm": {"conv2d.grouped": None}, "chosen": {}}.items()
    }
    kernels = [next(k for k in b.plan.kernels if k.rule.startswith("conv2d")) for b in built.values()]
    with tempfile.TemporaryDirectory() as folder:
        executor = Executor(built, Path(folder), target, optimised=True)
        times = [median_ms(executor, name, one, runs) for name, one in built.items()]
    cells = [f"{ms * 1e3:.3g} | {k.flops / ms / 1e6:.0f}" for ms, k in zip(times, kernels, strict=True)]
    print(f"| {label} | {' | '.join(cells)} | {times[0] / times[1]:.2f} | {kernels[1].rule} |", flush=True)


class _Numbers:
    """:class:`Transform` of arrays."""

    def add(self, x: Any, y: Any) -> Any:
        return y if x is None else x if y is None else x + y

    def sub(self, x: Any, y: Any) -> Any:
        return x - y

    def mad(self, factor: float, x: Any, y: Any) -> Any:
        return self.add(np.float32(factor) * x, y)


def filter_errors(channels: int = 64, tiles: int = 400) -> None:
    """Prints each filter's error and the direct sum's in float32: root mean squares by that of the output."""
    t: Any = _Numbers()
    print("| filter | error | direct |\n|---|---|---|")
    for f in (one for some in FILTERS.values() for one in some):
        rng = np.random.default_rng(0)
        w = rng.standard_normal((channels, f.r)).astype(np.float32)
        d = rng.standard_normal((f.a, channels, tiles)).astype(np.float32)
        u = (w.astype(np.float64) @ f.weights.T).astype(np.float32)
        v = np.stack(f.transform_inputs(t, list(d)))
        sums = np.zeros((f.a, tiles), np.float32)
        direct = np.zeros((f.m, tiles), np.float32)
        for c in range(channels):
            sums += u[c][:, None] * v[:, c]
            for k in range(f.r):
                direct += w[c, k] * d[k : k + f.m, c]
        exact = np.array([np.einsum("cr,rcn->n", w, d[i : i + f.r], dtype=np.float64) for i in range(f.m)])
        scale = np.sqrt(np.mean(exact**2))
        found = np.stack(f.transform_outputs(t, list(sums)))
        errors = [np.sqrt(np.mean((x - exact) ** 2)) / scale for x in (found, direct)]
        print(f"| F({f.m}, {f.r}) | {errors[0]:.2g} | {errors[1]:.2g} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--registers", default="", help='vectors, as in "256x16": bits and number')
    parser.add_argument(
        "--device", default="host", help="of bytes and integers: the device that they are compiled for"
    )
    parser.add_argument("--largest", type=int, default=127, help="of these: the largest weight")
    kinds = ["images", "signals", "windows", "groups", "bytes", "integers", "errors"]
    parser.add_argument("kind", choices=kinds, nargs="?", default=kinds[0])
    options = parser.parse_args()
    if options.kind == "errors":
        filter_errors()
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    target = target_with(options.registers, threads=1) if options.registers else host_target()
    if options.kind in ("bytes", "integers"):
        target = replace(load_device(options.device).cpu_target(), threads=1)
    if options.kind == "bytes":
        print(
            "| layer | product us | GOPS | chosen us | GOPS | product / chosen | rule |\n" + "|---" * 7 + "|"
        )
        for layer in BYTES:
            bytes_row(*quantised(*layer, options.largest), target, options.runs)
        return
    print("| layer | direct | Winograd's forms | direct / best of them | chosen |\n" + "|---" * 5 + "|")
    if options.kind == "integers":
        some = [quantised(size, ic, oc, 1, 1, options.largest) for size, ic, oc in INTEGERS]
        layers = [(*one, squares(3)) for one in some]
    elif options.kind == "images":
        layers = [(*image(*layer), squares(layer[3])) for layer in IMAGES]
    elif options.kind == "groups":
        layers = [(*grouped(*layer), squares(layer[2][0])) for layer in GROUPS]
    elif options.kind == "windows":
        layers = [(*window(*layer), []) for layer in WINDOWS]
    else:
        layers = [(*signal(*layer), []) for layer in SIGNALS]
    for label, model, tiles in layers:
        others = [] if options.kind in ("images", "integers") else lines(model, target)
        row(label, model, forms([*tiles, *others]), target, options.runs)


if __name__ == "__main__":
    main()
