"""Micro-kernels: how they are found, and that a product type of its own needs nothing else.

The one of these tests multiplies bytes as they are: u8 by s8, summed in int32, and padding that is no zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.graph.fused_group import Anchor, FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.epilogue import Epilogue
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for, micro_kernels
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget, with_precision
from edgepack.toolchains import resolve
from workbench.compiled import target_with

BYTES = ProductTypes("uint8", "int8", "int32", "int32")
#: What a window reads outside of the image.
OUTSIDE = 7


@dataclass(frozen=True)
class Bytes(MicroKernel):
    """Bytes that are widened when they are multiplied."""

    order = 1

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> Bytes | None:
        return cls(types, target) if types == BYTES else None

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        return sums + left * right

    def left_vector(self, e: Emitter, unit: Any, lanes: int) -> Any:
        return e.splat(tirx.Cast("int32", unit), lanes)

    def right_vector(self, e: Emitter, buffer: Any, at: Index, lanes: int) -> Any:
        vector = e.vload(buffer, at, lanes)
        return e.let(tirx.Cast("int32" if lanes == 1 else f"int32x{lanes}", vector))


def _group(conv: Conv2d) -> AnchoredGroup:
    """A convolution without an epilogue."""
    image = (conv.batch, conv.height, conv.width, conv.in_channels)
    window = (*conv.kernel, conv.group_in, conv.out_channels)
    out = (conv.batch, conv.out_height, conv.out_width, conv.out_channels)
    params = tuple(
        tirx.decl_buffer(shape, dtype)
        for shape, dtype in ((image, conv.types.left), (window, conv.types.right))
    )
    epilogue = Epilogue([], tirx.decl_buffer(out, conv.types.sums), params)
    anchor = Anchor("conv2d", {"groups": conv.groups}, (0, 1))
    return AnchoredGroup(anchor, params, out, epilogue, (conv.types,), conv.out_channels)


def _function(made: Implementation, target: CpuTarget, folder: Path) -> Callable[..., int]:
    (stage,) = made.stages
    compile_object({"kernel": stage.function}, target, folder / "kernel.o")
    toolchain = resolve(load_device("host"))
    toolchain.link_shared([folder / "kernel.o"], folder / "k.so", exported=["kernel"], soname="k.so")
    found: Callable[..., int] = ctypes.CDLL(str(folder / "k.so")).kernel
    return found


@pytest.mark.parametrize("registers", ["scalar", "128x16", "256x16"])
def test_a_product_type_needs_no_more_than_its_micro_kernel(registers: str, tmp_path: Path) -> None:
    target = target_with(registers)
    one = (1, 1)
    conv = Conv2d(1, 6, 5, 12, 6, 5, 19, (3, 3), one, one, 1, 1, 1, 1, 1, BYTES, outside=OUTSIDE)
    micro = Bytes(BYTES, target)
    made = ImplicitGemm("bytes", "conv2d:1", conv, _group(conv), micro).build()
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (6, 5, 12)).astype(np.uint8)
    weights = rng.integers(-128, 128, (3, 3, 12, 19)).astype(np.int8)
    packed = [packing.transform(weights) for packing in made.packed]
    assert [array.dtype for array in packed] == [np.int8, np.uint8]
    out = np.full((6, 5, 19), -1, np.int32)
    arrays = {"param": [image, weights], "packed": packed, "output": [out]}
    scratch = [np.full(nbytes, 0xFF, np.uint8) for nbytes in made.scratch]
    pointers = [
        ctypes.c_void_p({**arrays, "scratch": scratch}[o.kind][o.index].ctypes.data)
        for o in made.stages[0].operands
    ]
    assert _function(made, target, tmp_path)(*pointers, 0, made.stages[0].tasks) == 0
    padded = np.pad(image.astype(np.int32), ((1, 1), (1, 1), (0, 0)), constant_values=OUTSIDE)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    np.testing.assert_array_equal(out, np.einsum("yxcij,ijco->yxo", windows, weights.astype(np.int32)))


def test_a_product_of_several_types_is_asked_of_micro_kernels() -> None:
    """What is narrower than its sums may be of any types; which are multiplied, no rule decides."""
    group = FusedGroup("bytes", _bytes_product(), 1, ("matmul",), Anchor("matmul", {}, (0, 1)))
    found = anchored(group, ["matmul"])
    assert found.products == (BYTES,)
    target = target_with("128x16")
    with pytest.raises(RuleError, match="it does not take uint8 x int8 -> int32"):
        micro_kernel_for(found.products, (12, 19), target, constant=True)


def _bytes_product() -> tirx.PrimFunc:
    """sum over k of a[m, k] * b[k, n], each widened before."""
    a, b = te.placeholder((7, 12), "uint8"), te.placeholder((12, 19), "int8")
    k = te.reduce_axis((0, 12))

    def product(m: Any, n: Any) -> Any:
        return te.sum(a[m, k].astype("int32") * b[k, n].astype("int32"), axis=k)

    return te.create_prim_func([a, b, te.compute((7, 19), product)])


def test_micro_kernels_are_found_in_their_package_in_order() -> None:
    orders = [kind.order for kind in micro_kernels()]
    assert orders == sorted(set(orders))
    assert {"Dot2Int16", "Float16Blocks", "MultiplyAdd"} <= {kind.__name__ for kind in micro_kernels()}


def test_the_preferred_product_that_suits_is_taken() -> None:
    own, half = ProductTypes.of("float32"), ProductTypes("float16", "float16", "float32", "float32")
    fast = with_precision(load_device("raspberrypi5").cpu_target(), "fp16")
    deep, shallow = (64, 128), (8, 128)
    chosen = [micro_kernel_for((half, own), sizes, fast, constant=True).types for sizes in (deep, shallow)]
    assert chosen == [half, own]
    assert micro_kernel_for((half, own), deep, fast, constant=False).types == own
    with pytest.raises(RuleError, match="it does not take uint8 x int8 -> int32"):
        micro_kernel_for((BYTES,), deep, fast, constant=True)
