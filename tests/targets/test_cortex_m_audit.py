"""What is asked of firmware for Cortex-M before it ships: no heap, no files, no calls that compute with
floats."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgepack
from edgepack.commands.doctor import trial
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.audit import audit
from edgepack.toolchains import resolve
from tests.support.firmware import COMPILERS
from workbench.models import build, save
from workbench.models.quantise import quantise


@pytest.mark.parametrize("toolchain", COMPILERS)
def test_doctor_tries_a_whole_image(toolchain: str, tmp_path: Path) -> None:
    built = trial(resolve(load_device("cortex-m4"), toolchain), tmp_path)
    assert set(built) == {"static", "program"}


@pytest.mark.parametrize("name", ["malloc", "fopen"])
def test_audit_refuses_a_heap_and_files(name: str, tmp_path: Path) -> None:
    toolchain = resolve(load_device("cortex-m4"))
    (tmp_path / "a.c").write_text(
        f"void *{name}(unsigned n);\nvoid *volatile kept;\nvoid edgepack_model_a(void);\n"
        f'__attribute__((visibility("default"))) void edgepack_model_a(void) {{ kept = {name}(4); }}\n'
    )
    (tmp_path / "b.c").write_text(
        f"void *{name}(unsigned n);\nvoid *{name}(unsigned n) {{ return (void *)n; }}\n"
    )
    objects = [tmp_path / "a.o", tmp_path / "b.o"]
    for path in objects:
        toolchain.compile_c(path.with_suffix(".c"), path)
    program, library = tmp_path / "a.elf", tmp_path / "a.a"
    toolchain.link_program(objects, program, flags=("-Wl,-e,edgepack_model_a",))
    with pytest.raises(CheckFailedError, match=f"heap and files: found {name}; allowed: none"):
        audit(program, toolchain.device, kind="program")
    exported = ["edgepack_model_a"]
    toolchain.archive(objects[:1], library, exported=exported)
    with pytest.raises(CheckFailedError, match=f"heap and files: found {name}; allowed: none"):
        audit(library, toolchain.device, kind="static", exported=exported)


def test_audit_refuses_what_nobody_defines(tmp_path: Path) -> None:
    toolchain = resolve(load_device("cortex-m4"))
    (tmp_path / "a.c").write_text(
        "__attribute__((weak)) void missing(void);\nvoid Reset_Handler(void) { if (missing) missing(); }\n"
    )
    toolchain.compile_c(tmp_path / "a.c", tmp_path / "a.o")
    toolchain.link_program([tmp_path / "a.o"], tmp_path / "a.elf", flags=("-Wl,-e,Reset_Handler",))
    with pytest.raises(CheckFailedError, match="undefined symbols: found missing; allowed: edgepack_now_ns"):
        audit(tmp_path / "a.elf", toolchain.device, kind="program")


def test_audit_refuses_soft_float(tmp_path: Path) -> None:
    """An object for the core without its FPU, as zig makes it by default."""
    device = load_device("cortex-m4")
    zig = device.compilers["zig"].model_copy(update={"target": "thumb-freestanding-eabi", "cpu": "cortex_m4"})
    soft = device.model_copy(update={"compilers": {"zig": zig}})
    (tmp_path / "a.c").write_text(
        "float edgepack_model_a(float x);\nfloat edgepack_model_a(float x) { return x * x; }\n"
    )
    resolve(soft).compile_c(tmp_path / "a.c", tmp_path / "a.o")
    with pytest.raises(CheckFailedError, match="float ABI"):
        audit(tmp_path / "a.o", device, kind="object")


@pytest.mark.parametrize("toolchain", COMPILERS)
def test_integers_are_audited_for_calls_that_compute_with_floats(toolchain: str, tmp_path: Path) -> None:
    """As kernels would be that need one for a model of integers; and for instructions of a larger core."""
    device = load_device("cortex-m0plus")
    (tmp_path / "a.c").write_text("int a(int x);\nint a(int x) { return (int)((float)x * 0.5f); }\n")
    resolve(device, toolchain).compile_c(tmp_path / "a.c", tmp_path / "a.o")
    audit(tmp_path / "a.o", device, kind="object")
    with pytest.raises(CheckFailedError) as caught:
        audit(tmp_path / "a.o", device, kind="object", integers=True)
    assert "arithmetic on floats: found __aeabi_f2iz, __aeabi_fmul, __aeabi_i2f" in caught.value.message
    resolve(load_device("cortex-m4"), toolchain).compile_c(tmp_path / "a.c", tmp_path / "b.o")
    with pytest.raises(CheckFailedError, match="CPU architecture: found ARMv7E-M"):
        audit(tmp_path / "b.o", device, kind="object")


def test_a_quantised_model_runs_without_an_fpu(tmp_path: Path) -> None:
    """Its image has an ARMv6-M's instructions; what it computes with floats is said."""
    model = save(quantise(build("ds_cnn"), "s8s8"), tmp_path, "ds_cnn.onnx")
    bundle = edgepack.pack(model, "cortex-m0plus", tmp_path / "out")
    assert [text for text in bundle.manifest.warnings if "has no FPU" in text]
    (image,) = (a for a in bundle.manifest.artifacts if a.kind == "program")
    assert {"CPU architecture", "float ABI"} <= set(image.audit["checks"])
    assert bundle.verify().ok
