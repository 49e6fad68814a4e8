"""What the tests of microcontrollers share: small models, images without a model, what a board says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest

import edgepack
from edgepack.runners import qemu_system
from edgepack.runners.recorded import device_of
from edgepack.toolchains.base import Toolchain
from workbench.models import build, save
from workbench.models.builder import Graph

__all__ = ["MODELS", "Pack", "linked_calls", "packing", "say"]

#: Packs a model for a device, by the model's name and with a toolchain, or with the default ones.
Pack = Callable[..., edgepack.Bundle]


def image_cnn() -> onnx.ModelProto:
    """A small image classifier: 32x32 pixels, 10 classes."""
    g = Graph("image_cnn")
    x = g.conv_bn(g.input("image", [1, 3, 32, 32]), 3, 16, 3, stride=2)
    x = g.conv_bn(x, 16, 32, 3)
    x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.conv_bn(x, 32, 32, 3)
    x = g.op("GlobalAveragePool", x)
    g.op("Softmax", g.gemm(g.op("Flatten", x), 32, 10), axis=-1, name="classes")
    g.output("classes")
    return g.model()


def libm() -> onnx.ModelProto:
    """What calls the C library's functions: with strict math, each elementary function is a call."""
    g = Graph("libm")
    x = g.input("x", [1, 64])
    for operator in ("Sigmoid", "Tanh", "Erf", "Exp", "Sinh", "Cosh", "Asinh", "Atan", "Sin", "Cos"):
        x = g.op(operator, x)
    for operator in ("Asin", "Atanh"):
        x = g.op(operator, g.op("Mul", x, g.const(0.7)))
    y = g.op("Round", g.op("Mul", g.input("y", [1, 64]), g.const(3.0)))
    g.op("Pow", g.op("Abs", x), g.op("Abs", y), name="z")
    g.output("z")
    return g.model()


GCC = "gcc-arm-none-eabi"
needs_gcc = pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None,
    reason="apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi (800 MB) to test this compiler",
)
COMPILERS = ["zig", pytest.param(GCC, marks=needs_gcc)]

#: By name.
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "ds_cnn": lambda: build("ds_cnn"),
    "image_cnn": image_cnn,
    "libm": libm,
}


def say(bundle: edgepack.Bundle, *words: str) -> tuple[int, dict[str, object]]:
    """What the image of a bundle prints for a command."""
    artifact = bundle.manifest.artifact("program")
    assert artifact is not None
    argv: list[str | Path] = [bundle.path / artifact.path, *words]
    done = qemu_system.run(device_of(bundle.manifest.device), argv, timeout=60, cwd=bundle.path)
    return done.returncode, json.loads(done.stdout)


_CALLS = """
int use(volatile unsigned char *room, unsigned n);
int kernel(int x);
int edgepack_run_net(int x);
__attribute__((noinline)) int use(volatile unsigned char *room, unsigned n) {
    room[n - 1] = 1;
    return room[n / 2];
}
__attribute__((noinline)) int kernel(int x) {
    volatile unsigned char room[SIZE] __attribute__((aligned(64)));
    return use(room, SIZE) + x;
}
__attribute__((noinline)) int edgepack_run_net(int x) {
    volatile unsigned char room[SIZE];
    return kernel(x) + use(room, SIZE) + AGAIN;
}
void Reset_Handler(void);
void Reset_Handler(void) { edgepack_run_net(1); }
"""

_SCRIPT = "SECTIONS { . = 0x10000; .text : { *(.text*) } .data : { *(.data* .sdata*) } .bss : { *(.bss*) } }"


def linked_calls(toolchain: Toolchain, folder: Path, size: int, again: str) -> Path:
    """An image whose two functions on the way to a step have frames of ``size`` bytes each; ``again`` is what
    the first one adds to its result."""
    (folder / "calls.c").write_text(_CALLS)
    defines = {"SIZE": str(size), "AGAIN": again}
    toolchain.compile_c(folder / "calls.c", folder / "calls.o", defines=defines)
    (folder / "calls.ld").write_text(_SCRIPT)
    flags = ("-T", str(folder / "calls.ld"), "-Wl,-e,Reset_Handler")
    toolchain.link_program([folder / "calls.o"], folder / "calls.elf", flags=flags)
    return folder / "calls.elf"


def packing(
    folder: Path,
    models: Mapping[str, Callable[[], onnx.ModelProto]],
    default: str,
    usual: Callable[[str], str],
) -> Pack:
    """A function that packs each model for each device once, into ``folder``; no bundle is to be changed.

    Args:
        models: by name.
        default: a name of them.
        usual: a device's name to the toolchain, where none is asked for.
    """
    made: dict[tuple[str, str, str], edgepack.Bundle] = {}

    def pack(device: str, model: str = default, toolchain: str = "") -> edgepack.Bundle:
        key = device, model, toolchain or usual(device)
        if key not in made:
            path = save(models[model](), folder, f"{model}.onnx")
            strict = model == "libm"
            made[key] = edgepack.pack(
                path, device, folder / " ".join(key), toolchain=key[2], strict_math=strict
            )
        return made[key]

    return pack
