"""``edgepack.cross_compiler``: a device's compiler for TVM's own ``export_library``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import lief
import pytest

import edgepack

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "export_library.py"


def test_tvms_executable_is_exported_for_another_cpu(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), "linux-aarch64", "model.so"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    binary: Any = lief.parse(str(tmp_path / "model.so"))
    assert str(binary.header.machine_type).endswith("AARCH64")
    names = {str(symbol.name) for symbol in binary.dynamic_symbols}
    assert {"__tvm_ffi_matmul", "__tvm_ffi_relu"} <= names
    assert any(name.startswith("TVMFFI") for name in names), names  # of TVM's runtime, which it needs


def test_it_has_what_tvm_asks_of_a_compiler() -> None:
    compiler = edgepack.cross_compiler("raspberrypi4", "zig")
    assert (compiler.output_format, compiler.object_format) == ("so", "o")
    assert compiler.get_target_triple() == "aarch64-unknown-linux-gnu"


def test_what_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(edgepack.ConfigError, match="raspberypi4"):
        edgepack.cross_compiler("raspberypi4")
    with pytest.raises(edgepack.ConfigError, match="cannot be built with toolchain gcc-arm-none-eabi"):
        edgepack.cross_compiler("raspberrypi4", "gcc-arm-none-eabi")


def test_a_linkers_mistake_is_a_toolchain_error(tmp_path: Path) -> None:
    (tmp_path / "broken.o").write_bytes(b"no object")
    with pytest.raises(edgepack.ToolchainError, match=r"linking out\.so with zig failed"):
        edgepack.cross_compiler("linux-aarch64")(tmp_path / "out.so", [tmp_path / "broken.o"])
