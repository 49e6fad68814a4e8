"""Microcontrollers with RISC-V cores: firmware for ESP32-C3, C6 and P4, packed, audited, run by qemu."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lief
import numpy as np
import onnx
import pytest

from edgepack.bundle.firmware.project import link_trial
from edgepack.commands.doctor import trial
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError, ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.elf.stack_depth import stack_bytes
from edgepack.runners import qemu_system
from edgepack.runners.recorded import device_of
from edgepack.runners.verify import verify
from edgepack.toolchains import resolve
from tests.support.firmware import MODELS, Pack, linked_calls, packing, say
from workbench.models.builder import Graph

GCC = "gcc-riscv-elf"
PACKAGES = "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"
needs_gcc = pytest.mark.skipif(
    shutil.which("riscv64-unknown-elf-gcc") is None,
    reason=f"apt-get install {PACKAGES} (1.5 GB) to test this compiler",
)
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-riscv32") is None, reason="apt-get install qemu-system-misc"
)
#: Of RISC-V's FPUs nothing but these is missing that a model may need (compiler/backends/llvm.py).
HALF_CONVERSIONS = ("__extendhfsf2", "__truncsfhf2")
#: zig compiles its library for a core first, which takes half a minute.
ZIG = pytest.param("zig", marks=pytest.mark.slow)
COMPILERS = [ZIG, pytest.param(GCC, marks=needs_gcc)]


def small() -> onnx.ModelProto:
    """A convolution, a matrix product, and a product of 8-bit integers, which every core can multiply."""
    g = Graph("small")
    x = g.conv_bn(g.input("image", [1, 3, 8, 8]), 3, 8, 3)
    x = g.op("GlobalAveragePool", x)
    g.op("Softmax", g.gemm(g.op("Flatten", x), 8, 10), axis=-1, name="classes")
    g.output("classes")
    weights = np.random.default_rng(3).integers(-128, 128, [64, 16], np.int8)
    g.op("MatMulInteger", g.input("x", [4, 64], "int8"), g.const(weights), name="y")
    g.output("y", "int32")
    return g.model()


def half() -> onnx.ModelProto:
    """Half precision: conversions that a library without them does not have."""
    g = Graph("half")
    g.op("Relu", g.op("MatMul", g.input("x", [2, 8], "float16"), g.const(np.eye(8), "float16")), name="y")
    g.output("y", "float16")
    return g.model()


ALL = {**MODELS, "half": half, "small": small}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a model for a device, once; not to be changed."""
    folder = tmp_path_factory.mktemp("espressif bündles")
    toolchain = GCC if shutil.which("riscv64-unknown-elf-gcc") else "zig"
    return packing(folder, ALL, "small", lambda _: toolchain)


@needs_qemu
@pytest.mark.parametrize(
    ("device", "model", "toolchain"),
    [
        *(pytest.param(device, "small", GCC, marks=needs_gcc) for device in ("esp32-c3", "esp32-p4")),
        *(
            pytest.param(device, model, toolchain, marks=[needs_gcc, pytest.mark.slow])
            for device in ("esp32-c3", "esp32-c6", "esp32-p4")
            for model in ("ds_cnn", "image_cnn", "libm", "half")
            for toolchain in ("zig", GCC)
        ),
    ],
)
def test_firmware_runs_and_agrees_with_onnxruntime(
    device: str, model: str, toolchain: str, packed: Pack
) -> None:
    """On a core that has the device's extensions and no others."""
    bundle = packed(device, model, toolchain)
    result = bundle.verify()
    assert result.ok, result
    assert "board virt" in result.where
    counted = bundle.bench().instructions
    assert counted is not None and counted.repeatable
    assert abs(counted.run - sum(counted.steps)) < 40 * len(counted.steps)
    code, said = say(bundle, "verify")
    (stack,) = [p.ram for p in bundle.manifest.footprint.parts if p.name == "stack"]
    assert code == 0
    assert 100 < said["stack_bytes"] <= stack
    # What the libraries do for odd numbers lies deeper than what the run comes across.
    assert stack <= said["stack_bytes"] + (1024 if model == "libm" else 320)


def test_the_bill_of_materials_names_what_made_the_code(packed: Pack) -> None:
    """The C compiler, TVM, and the LLVM in it, by its major version."""
    bundle = packed("esp32-c3")
    bill = json.loads((bundle.path / "sbom.cdx.json").read_text(encoding="utf-8"))
    made = {one["name"]: one["version"] for one in bill["metadata"]["tools"]["components"]}
    assert {"apache-tvm", "edgepack", "llvm", bundle.manifest.toolchain.name} <= made.keys()
    assert made["llvm"] == bundle.manifest.tools["llvm"]
    assert 15 <= int(made["llvm"]) < 100
    assert made[bundle.manifest.toolchain.name] == bundle.manifest.toolchain.version


@needs_qemu
def test_code_for_an_fpu_does_not_run_where_there_is_none(packed: Pack) -> None:
    """The image for the P4 on the core of a C3: the board says that it trapped."""
    bundle = packed("esp32-p4")
    record = bundle.manifest.device
    runner = record.runner.model_copy(update={"cpu": load_device("esp32-c3").runner.cpu})
    device = device_of(record.model_copy(update={"runner": runner}))
    done = qemu_system.run(device, [bundle.path / "bin" / "small.elf", "verify"], timeout=60, cwd=bundle.path)
    assert (done.returncode, done.stdout) == (99, "The processor reported a fault.\n")


@needs_qemu
def test_a_crash_is_reported(tmp_path: Path, packed: Pack) -> None:
    bundle = shutil.copytree(packed("esp32-c3").path, tmp_path / "bundle")
    toolchain = resolve(load_device("esp32-c3"), packed("esp32-c3").manifest.toolchain.name)
    (tmp_path / "main.c").write_text(
        'int main(void);\nint main(void) { __asm__ volatile("unimp"); return 0; }\n'
    )
    toolchain.compile_c(tmp_path / "main.c", tmp_path / "main.o")
    link_trial(toolchain, [tmp_path / "main.o"], bundle / "bin" / "small.elf", tmp_path)
    with pytest.raises(CheckFailedError, match="exit code 99"):
        verify(bundle, packed("esp32-c3").manifest)


@pytest.mark.parametrize("toolchain", COMPILERS)
@pytest.mark.parametrize("size", [8, 600, 5000, 70001])
def test_frames_of_all_sizes_are_read(size: int, toolchain: str, tmp_path: Path) -> None:
    """Each range of sizes has instructions of its own."""
    image = linked_calls(resolve(load_device("esp32-c3"), toolchain), tmp_path, size, "0")
    assert 2 * size <= stack_bytes(image) <= 2 * size + 288


@pytest.mark.parametrize("toolchain", COMPILERS)
def test_doctor_tries_a_whole_image(toolchain: str, tmp_path: Path) -> None:
    assert set(trial(resolve(load_device("esp32-p4"), toolchain), tmp_path)) == {"static", "program"}


def test_kernels_have_the_cores_extensions_and_float_abi(packed: Pack) -> None:
    """An FPU's kernels call no arithmetic; audited as another core's they are refused."""
    kernels = packed("esp32-p4").path / "src" / "kernels.o"
    binary = lief.ELF.parse(kernels.read_bytes())
    assert binary is not None
    wanted = {str(s.name) for s in binary.symtab_symbols if s.name and s.shndx == 0}
    assert not [name for name in wanted if name.startswith("__") and name not in HALF_CONVERSIONS]
    for device, what in (("esp32-c6", "float ABI"), ("esp32-c3", "CPU architecture: found a f")):
        with pytest.raises(CheckFailedError, match=what):
            audit(kernels, load_device(device), kind="object")


def test_integers_are_audited_for_calls_that_compute_with_floats(packed: Pack) -> None:
    device, kernels = load_device("esp32-c3"), packed("esp32-c3").path / "src" / "kernels.o"
    audit(kernels, device, kind="object")
    with pytest.raises(CheckFailedError, match=r"arithmetic on floats: found .*__addsf3.*__mulsf3"):
        audit(kernels, device, kind="object", integers=True)


@pytest.mark.parametrize("name", ["esp32", "esp32-s3", "ESP32S2", "esp8266"])
def test_a_chip_with_an_xtensa_core_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match="makes no code for Xtensa cores"):
        load_device(name)


def test_a_device_file_for_xtensa_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "lx7.yaml"
    file.write_text("extends: esp32-c3\narch: xtensa\nllvm: {triple: xtensa-esp-elf}\n")
    with pytest.raises(ConfigError, match="makes no code for Xtensa cores"):
        load_device(file)


def test_without_qemu_the_hint_names_its_package(packed: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = packed("esp32-c3")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError) as caught:
        bundle.verify()
    assert "apt-get install qemu-system-misc" in caught.value.hint


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize("toolchain", ["zig", pytest.param(GCC, marks=needs_gcc)])
def test_the_firmware_project_builds_and_runs(toolchain: str, packed: Pack, tmp_path: Path) -> None:
    """As its README says, with warnings as errors."""
    bundle = packed("esp32-p4")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Werror"
    for arguments in (
        ("-S", "firmware", "-B", tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}.cmake", flags),
        ("--build", tmp_path),
    ):
        done = subprocess.run(
            ["cmake", *map(str, arguments)],
            cwd=bundle.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    device = device_of(bundle.manifest.device)
    done = qemu_system.run(device, [tmp_path / "small_check.elf", "verify"], timeout=60, cwd=tmp_path)
    assert json.loads(done.stdout)["status"] == "ok"
    assert qemu_system.run(device, [tmp_path / "small_example.elf"], timeout=60, cwd=tmp_path).returncode == 0
