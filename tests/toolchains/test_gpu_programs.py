"""nvcc and ROCm's linker: found where they may be, said how to get, and called by TVM as it calls its own."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax

from edgepack.errors import ConfigError, ToolchainError
from edgepack.toolchains import rocm_linker
from edgepack.toolchains.nvcc import Nvcc
from edgepack.toolchains.rocm_linker import RocmLinker
from edgepack.toolchains.zig_program import zig_program

#: A stand-in for nvcc, which writes what it was called with.
_NVCC = """#!{python}
import sys
words = sys.argv[1:]
if words == ["--version"]:
    print("Cuda compilation tools, release 12.4, V12.4.131")
elif words == ["--list-gpu-arch"]:
    print("compute_50\\ncompute_75\\ncompute_87")
elif b"broken" in open("kernels.cu", "rb").read():
    sys.exit("kernels.cu(1): error: broken")
else:
    open(words[words.index("-o") + 1], "w").write(" ".join(words))
"""
#: A fat binary begins with that (fatbinary_section.h), little-endian.
_FATBIN = bytes.fromhex("50ed55ba")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither program is installed; a folder for stand-ins."""
    for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    for kind in (Nvcc, RocmLinker):
        monkeypatch.setattr(kind, "usual", str(tmp_path / "none"))
    return tmp_path


def stand_in(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text.replace("{python}", sys.executable), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def module(target: Any) -> Any:
    """What TVM compiles a matrix product to, for a GPU."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 64), "float32"))
    w = relax.Var("w", relax.TensorType((64, 10), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.matmul(x, w)))
        builder.emit_func_output(y)
    return relax.build(builder.get(), tvm.target.Target({**target, "host": "llvm"})).mod.imports[0].imports[0]


def test_a_toolkit_is_where_the_environment_says(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(nowhere / "cuda" / "bin" / "nvcc", _NVCC)
    monkeypatch.setenv("CUDA_PATH", str(nowhere / "cuda"))
    nvcc = Nvcc([87, 75])
    assert nvcc.executable == [str(nowhere / "cuda" / "bin" / "nvcc")]
    assert nvcc.version() == "nvcc 12.4.131"
    words = nvcc("extern").decode().split()
    assert [word for word in words if word.startswith("arch=")] == [
        "arch=compute_75,code=sm_75",
        "arch=compute_87,code=sm_87",
        "arch=compute_87,code=compute_87",
    ]
    assert "--fatbin" in words
    with pytest.raises(ToolchainError, match=r"compiling CUDA C\+\+ with nvcc failed") as caught:
        nvcc("broken")
    assert "kernels.cu(1): error: broken" in caught.value.detail


def test_what_an_nvcc_cannot_do_is_said_before_it_tries(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(nowhere / "bin" / "nvcc", _NVCC)
    monkeypatch.setenv("CUDA_HOME", str(nowhere))
    with pytest.raises(ToolchainError, match=r"nvcc 12.4.131 does not compile for .* 9\.0") as caught:
        Nvcc([87, 90])("extern")
    assert "5.0, 7.5, 8.7" in caught.value.hint
    with pytest.raises(ConfigError, match="no compute capabilities"):
        Nvcc()("extern")


def test_programs_that_are_missing_say_where_they_were_looked_for(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocm_linker, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(nowhere / "cuda"))
    with pytest.raises(ToolchainError, match="nvcc, NVIDIA's compiler of CUDA C\\+\\+, is not") as caught:
        Nvcc([87]).version()
    assert f"{nowhere / 'cuda' / 'bin' / 'nvcc'}, nvcc, " in caught.value.detail
    assert "nvidia-cuda-toolkit" in caught.value.hint
    with pytest.raises(ToolchainError, match=r"ld\.lld, .* is not installed") as caught:
        RocmLinker()(b"")
    assert "llvm/bin/ld.lld" in caught.value.detail and "ziglang" in caught.value.hint


def test_rocms_own_linker_comes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RocmLinker().executable == [*zig_program(), "ld.lld"]
    stand_in(nowhere / "rocm" / "llvm" / "bin" / "ld.lld", "#!{python}\nprint('LLD 18.0.0 (ROCm)')\n")
    monkeypatch.setenv("ROCM_PATH", str(nowhere / "rocm"))
    assert RocmLinker().version() == "LLD 18.0.0"


def test_tvms_code_for_amd_is_linked() -> None:
    made: list[bytes] = []
    linker = RocmLinker()
    old = {name: tvm_ffi.get_global_func(name) for name in ("tvm_callback_rocm_link",)}
    # ROCm's library of mathematics is not here, and the product needs none of it.
    old["tvm_callback_rocm_bitcode_path"] = tvm_ffi.get_global_func("tvm_callback_rocm_bitcode_path")

    def link(code: Any) -> bytes:
        made.append(linker(code))
        return made[-1]

    try:
        tvm_ffi.register_global_func("tvm_callback_rocm_link", link, override=True)
        tvm_ffi.register_global_func("tvm_callback_rocm_bitcode_path", lambda: [], override=True)
        module({"kind": "rocm", "mcpu": "gfx906"})
    finally:
        for name, function in old.items():
            tvm_ffi.register_global_func(name, function, override=True)
    (code,) = made
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[16:18], "little") == 3  # ET_DYN
    assert int.from_bytes(code[18:20], "little") == 224  # EM_AMDGPU
    with pytest.raises(ToolchainError, match=r"linking code for AMD's GPUs with ld\.lld failed"):
        linker(b"no object")


def test_tvms_code_for_nvidia_is_compiled_where_there_is_a_toolkit() -> None:
    nvcc = Nvcc([80, 90])
    try:
        _ = nvcc.executable
    except ToolchainError:
        pytest.skip("there is no CUDA toolkit here")
    assert nvcc(module({"kind": "cuda", "arch": "sm_80"}).inspect_source()).startswith(_FATBIN)
