"""Linux on other CPUs: packed, audited, and compared with ONNX Runtime under emulators of these CPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgepack
from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.objectfiles.elf.cpu import CPU_CHECK
from edgepack.options import RunOptions
from edgepack.runners.verify import Verification, verify
from edgepack.toolchains import resolve
from workbench.models import build, save
from workbench.models.odd import ODD
from workbench.models.operators import CASES

#: One device of each kind; ARMv7 and AArch64 have more in tests/test_end_to_end.py.
KINDS = ("linux-armv7", "linux-riscv64-v", "raspberrypi0")
#: Those that other compilers build for below, built with zig.
BUILT_BY_OTHERS = ("linux-riscv64", "raspberrypi5")

#: An ARMv6 CPU itself: its programs are static, so the emulator needs no libc, and Debian's is ARMv7. zig
#: builds musl from its sources for it, a minute of CPU time. In `make test` the audit still finds
#: instructions that an ARMv6 has not, and gcc links programs with musl.
ARMV6 = pytest.param("linux-armv6-musl", marks=pytest.mark.slow)
#: What other compilers build. Debian 12's link programs with its own glibc, or musl.
OTHERS = (
    ("linux-riscv64", "clang"),
    ("linux-x86_64-musl", "gcc"),
    ("raspberrypi5", "gcc"),
    *(pytest.param(device, "gcc", marks=pytest.mark.slow) for device in ("linux-armv7", "linux-riscv64-v")),
)

Pack = Callable[..., edgepack.Bundle]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a network for a device, once; not to be changed."""
    folder = tmp_path_factory.mktemp("linux bündles")

    made: dict[tuple[str, str, str], edgepack.Bundle] = {}

    def pack(name: str, network: str = "ds_cnn", toolchain: str = "zig") -> edgepack.Bundle:
        key = (name, network, toolchain)
        if key not in made:
            device = load_device(name)
            if toolchain != "zig" and device.libc == "glibc":
                device = _with_newer_glibc(device)
            one = ODD.get(network) or CASES.get(network)
            model = save(one() if one else build(network), folder, f"{network}.onnx")
            made[key] = edgepack.pack(model, device, folder / " ".join(key), toolchain=toolchain)
        return made[key]

    return pack


def _with_newer_glibc(device: Device) -> Device:
    allowed = device.audit.model_copy(update={"glibc": "2.36"})
    return device.model_copy(update={"audit": allowed})


def _verify_as(bundle: edgepack.Bundle, cpu: str) -> Verification:
    """Under an emulator of another CPU than the device's."""
    device = bundle.manifest.device
    device = device.model_copy(update={"runner": device.runner.model_copy(update={"cpu": cpu})})
    manifest = bundle.manifest.model_copy(update={"device": device})
    return verify(bundle.path, manifest, RunOptions(runner="qemu"))


#: Convolutions everywhere; products of matrices where tests/test_end_to_end.py has none of that kind of CPU.
NETWORKS = (
    *((device, "ds_cnn") for device in KINDS),
    *(pytest.param(device, "ds_cnn", marks=pytest.mark.slow) for device in BUILT_BY_OTHERS),
    ("linux-riscv64-v", "mlp"),
    pytest.param("linux-riscv64", "mlp", marks=pytest.mark.slow),
    *(pytest.param("linux-armv6-musl", name, marks=pytest.mark.slow) for name in ("ds_cnn", "mlp")),
)


@pytest.mark.parametrize(("device", "network"), NETWORKS)
def test_network_agrees_with_onnxruntime(device: str, network: str, packed: Pack) -> None:
    bundle = packed(device, network)
    result = bundle.verify()
    assert result.ok, result
    assert not bundle.manifest.warnings


@pytest.mark.parametrize("device", [pytest.param("linux-riscv64", marks=pytest.mark.slow), "linux-riscv64-v"])
def test_float16_is_converted_where_no_instruction_does_it(device: str, packed: Pack) -> None:
    """By integers: LLVM's calls pass a half in another register than TVM's conversions take it from, and it
    cannot compile vectors of float16 for V alone."""
    bundle = packed(device, "float16_layernorm")
    result = bundle.verify()
    assert result.ok, result
    assert not bundle.manifest.warnings


def test_floats_become_bytes_where_qemu_cannot_truncate(packed: Pack) -> None:
    """qemu 7.2 ends with a failed assertion at RISC-V's conversions to integers that truncate."""
    result = packed("linux-riscv64-v", "qdq_conv").verify()
    assert result.ok, result


@pytest.mark.parametrize(("device", "toolchain"), OTHERS)
def test_other_compilers_build_the_same(device: str, toolchain: str, packed: Pack) -> None:
    bundle = packed(device, toolchain=toolchain)
    assert bundle.manifest.toolchain.family == toolchain
    result = bundle.verify()
    assert result.ok, result


@pytest.mark.parametrize("device", ["linux-armv7", "linux-riscv64-v", "raspberrypi0"])
def test_every_file_was_checked_for_its_cpu_and_float_abi(device: str, packed: Pack) -> None:
    artifacts = packed(device).manifest.artifacts
    assert {artifact.kind for artifact in artifacts} == {"shared", "static", "program"}
    for artifact in artifacts:
        assert {CPU_CHECK, "float ABI"} <= set(artifact.audit["checks"])
        assert artifact.audit["float_abi"] == "hard"


@pytest.mark.parametrize("device", [ARMV6, "linux-x86_64-musl"])
def test_a_program_with_musl_needs_nothing_of_the_system(device: str, packed: Pack) -> None:
    manifest = packed(device, toolchain="gcc" if "x86" in device else "zig").manifest
    program, shared = manifest.artifact("program"), manifest.artifact("shared")
    assert program is not None and shared is not None
    assert "needed" not in program.audit
    assert "undefined" not in program.audit
    assert shared.audit["needed"] == ["libc.so"]


@pytest.mark.parametrize(
    ("device", "cpu", "missing"),
    [
        ("linux-riscv64-v", "rv64", "v"),
        ("raspberrypi5", "cortex-a53", "fullfp16,dotprod"),
    ],
)
def test_a_cpu_without_what_the_kernels_use_is_refused(
    device: str, cpu: str, missing: str, packed: Pack
) -> None:
    with pytest.raises(CheckFailedError, match=r"refused to run \(EP_E_CPU\)") as caught:
        _verify_as(packed(device), cpu)
    assert f"(missing: {missing})" in caught.value.message


def test_vector_kernels_run_on_longer_registers(packed: Pack) -> None:
    assert _verify_as(packed("linux-riscv64-v"), "rv64,v=true,vlen=512").ok


def test_a_compiler_for_another_libc_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        resolve(load_device("linux-aarch64-musl"), "gcc").executable()
    assert "aarch64-linux-musl-gcc" in caught.value.detail
    assert "Debian and Ubuntu have none" in caught.value.hint
    only_gcc = tmp_path / "only.yaml"
    only_gcc.write_text("extends: gcc\nexecutables: {cc: [gcc]}\n", encoding="utf-8")
    with pytest.raises(ToolchainError) as caught:
        resolve(load_device("linux-x86_64-musl"), str(only_gcc)).executable()
    assert "whose libc is another than musl" in caught.value.detail
    with pytest.raises(ToolchainError) as caught:
        resolve(load_device("linux-x86_64-musl"), "clang").executable()
    assert "needs `sysroot:`" in caught.value.detail
