"""CUDA C through NVRTC: machine code for every GPU of the devices, with no GPU, driver or toolkit here."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.compiler.backends import nvrtc
from edgepack.compiler.backends.cuda import cuda_source, write_cuda
from edgepack.compiler.backends.nvrtc import Nvrtc
from edgepack.config.device import device_names, load_device
from edgepack.errors import InternalError, ToolchainError
from edgepack.plan.gpu_target import GpuTarget
from tests.models.builder import Graph
from tests.models.gpu import attention
from tests.models.odd import ODD
from tests.models.operators import CASES
from tests.support.compiled import plan_of
from tests.support.executor import host_target

EM_CUDA = 190
CAPABILITIES = sorted({c for name in device_names() for c in load_device(name).gpu.capabilities})

pytestmark = pytest.mark.skipif(nvrtc.find_nvrtc() is None, reason="NVRTC is not installed: edgepack[cuda]")


def target() -> GpuTarget:
    return GpuTarget("cuda", host_target(), capabilities=(87,))


def kernels() -> dict[str, str]:
    """One of each rule at least."""
    g = Graph("each", seed=1)
    y = g.op("Conv", g.input("x", (1, 32, 28, 28)), g.weight(32, 1, 3, 3), pads=[1, 1, 1, 1], group=32)
    y = g.op("Softmax", g.op("Reshape", g.op("Tanh", y), g.const([32, 784])), axis=-1)
    g.op("ReduceMax", g.op("MatMul", y, g.weight(784, 40)), axes=[0], keepdims=0, name="y")
    g.output("y")
    half = replace(target(), precision="fp16")
    of_half = plan_of(attention(), "h", half).gpu_kernels
    matrices = [name for name in of_half if name.endswith("tensor_core")][-2:]
    # Machine code for a Maxwell has nothing in the place of TF32's instructions.
    of_tf32 = plan_of(attention(), "t", replace(half, precision="tf32", capabilities=(80,))).gpu_kernels
    tf32 = next(name for name in of_tf32 if name.endswith("tensor_core"))
    own = plan_of(g.model(), "m", target()).gpu_kernels
    return {**own, **{name: of_half[name] for name in matrices}, tf32: of_tf32[tf32]}


def sections(cubin: bytes) -> dict[str, int]:
    """Names of an ELF file's sections, with their ``sh_info``."""
    assert cubin[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", cubin, 18) == (EM_CUDA,)
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * size) for i in range(count)]
    text = headers[names][4]
    return {
        cubin[text + header[0] : cubin.index(b"\0", text + header[0])].decode(): header[7]
        for header in headers
    }


def test_every_capability_has_all_kernels(tmp_path: Path) -> None:
    texts = kernels()
    rules = ("contraction", "partial_sums", "reduction", "rows", "window", "element", "tensor_core")
    assert {name.split("_", 2)[2] for name in texts} == set(rules)
    made = write_cuda(texts, CAPABILITIES, tmp_path)
    assert [(b.kind, b.capability) for b in made] == [
        ("source", 0),
        *(("cubin", capability) for capability in CAPABILITIES),
        ("ptx", CAPABILITIES[-1]),
    ]
    for binary in made[1:-1]:
        found = sections((tmp_path / binary.file).read_bytes())
        assert {name.removeprefix(".text.") for name in found if name.startswith(".text.")} == texts.keys()
    text = (tmp_path / made[-1].file).read_bytes()
    assert text.endswith(b"\0")
    assert f".target sm_{CAPABILITIES[-1]}".encode() in text


def test_same_source_gives_the_same_bytes_and_no_kernel_spills() -> None:
    texts = kernels()
    source = cuda_source(texts)
    found = Nvrtc().resources(source, 87)
    assert found.keys() == texts.keys()
    assert all(8 <= one.registers <= 168 and one.spilled == 0 for one in found.values())
    assert any(one.shared >= 4096 for one in found.values())
    assert Nvrtc().compiled(source, 87, "cubin") == Nvrtc().compiled(source, 87, "cubin")


def test_a_capability_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(ToolchainError, match=r"does not compile for compute capability 3\.0") as caught:
        Nvrtc().compiled(cuda_source({}), 30, "cubin")
    assert "8.7" in caught.value.hint


def test_a_source_that_it_does_not_take_is_an_internal_error_with_its_log() -> None:
    with pytest.raises(InternalError) as caught:
        Nvrtc().compiled("this is no CUDA C", 87, "cubin")
    assert "error" in caught.value.detail


def test_without_nvrtc_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    with pytest.raises(ToolchainError) as caught:
        Nvrtc()
    assert "edgepack[cuda]" in caught.value.hint


@pytest.mark.slow
def test_the_kernels_of_all_small_models_compile() -> None:
    texts: dict[str, str] = {}
    for number, make in enumerate({**CASES, **ODD}.values()):
        texts |= plan_of(make(), f"m{number}", target()).gpu_kernels
    Nvrtc().compiled(cuda_source(texts), 75, "ptx")
