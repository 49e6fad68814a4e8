"""What kernels ask of a CPU, by the name of a capability."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget

X86, AVX2, AVX512 = "linux-x86_64", "linux-x86_64-v3", "linux-x86_64-v4"
ARM64 = ("raspberrypi4", "macos-arm64", "ios-arm64")
ARM32 = ("linux-armv6", "raspberrypi2")


def _cpu(device: str) -> CpuTarget:
    return load_device(device).cpu_target()


WASM = ("wasm32-wasi", "wasm32-wasi-relaxed")
THUMB = ("cortex-m7", "cortex-m55")


@pytest.mark.parametrize(
    ("capability", "devices"),
    [
        ("arithmetic_reads_memory", {X86, AVX2, AVX512}),
        ("fma_reads_memory", {AVX2, AVX512}),
        ("separate_multiply_add", {X86}),
        ("few_registers", {X86, "raspberrypi2", "cortex-m55"}),
        ("loads_have_displacement", {X86, AVX2, AVX512, *ARM64, *WASM, "cortex-m55"}),
        ("short_of_memory", {"cortex-m7", "cortex-m55"}),
        ("virtual_registers", {*WASM}),
        ("relaxed_multiply_add", {"wasm32-wasi-relaxed"}),
        ("in_order", {"raspberrypi3"}),
    ],
)
def test_devices_have_capabilities(capability: str, devices: set[str]) -> None:
    all_devices = {X86, AVX2, AVX512, *ARM64, *ARM32, "raspberrypi3", "linux-riscv64-v", *THUMB}
    asked = all_devices | {*WASM}
    have = {device for device in asked if getattr(_cpu(device), capability)}
    assert have - {"raspberrypi3"} == devices - {"raspberrypi3"}
    assert ("raspberrypi3" in have) == (capability in {"in_order", "loads_have_displacement"})


def test_apple_calls_aarch64_arm64() -> None:
    """It has the registers and the loads of AArch64, not those of 32-bit ARM."""
    for device in ARM64:
        assert _cpu(device).pointer_registers == 30
    for device in (*ARM32, "cortex-m7"):
        assert _cpu(device).pointer_registers == 14


def test_lanes_follow_from_the_dtype() -> None:
    target = replace(_cpu(AVX2), vector_bits=256)
    assert [target.lanes(t) for t in ("float32", "float16", "int8", "bool", "float64")] == [8, 16, 32, 32, 4]
    assert replace(target, vector_bits=0).lanes("float32") == 1


def test_only_thumb_has_many_scalar_accumulators() -> None:
    assert _cpu("cortex-m7").scalar_accumulators == 24
    assert {_cpu(d).scalar_accumulators for d in (*ARM32, "linux-riscv64", AVX512)} == {16}


@pytest.mark.parametrize(
    ("device", "matrices", "shared"),
    [("ios-arm64-metal", False, 16), ("ios-arm64-metal-a14", True, 32), ("macos-arm64-metal", True, 32)],
)
def test_newer_gpus_of_apple_multiply_matrices(device: str, matrices: bool, shared: int) -> None:
    """The one for all phones asks for what each of them has."""
    target = load_device(device).gpu_target(_cpu(device))
    assert target is not None
    assert (target.simdgroup_matrices, target.local_bytes) == (matrices, shared * 1024)
