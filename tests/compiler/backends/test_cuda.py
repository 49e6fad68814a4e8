"""CUDA C through NVRTC: machine code for every GPU of the devices, with no GPU, driver or toolkit here."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgepack.compiler.backends import nvrtc
from edgepack.compiler.backends.cuda import cuda_source, without_spills, write_cuda
from edgepack.compiler.backends.nvrtc import Nvrtc, Resources
from edgepack.compiler.backends.ptx import isa_of, lowered
from edgepack.config.device import device_names, load_device
from edgepack.errors import InternalError, ToolchainError
from edgepack.plan.cuda_driver import nvrtc_for, takes_cubins
from edgepack.plan.gpu_target import GpuTarget, Precision
from workbench.compiled import plan_of
from workbench.executor import host_target
from workbench.models.builder import Graph
from workbench.models.gpu import attention
from workbench.models.odd import ODD
from workbench.models.operators import CASES

EM_CUDA = 190
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};"
DEVICES = [load_device(name).gpu for name in device_names()]
#: Those that cubins are made for; the devices with an older driver have PTX alone.
CAPABILITIES = sorted({c for gpu in DEVICES if not gpu.cuda for c in gpu.capabilities})

pytestmark = pytest.mark.skipif(nvrtc.find_nvrtc() is None, reason="NVRTC is not installed: edgepack[cuda]")


def target() -> GpuTarget:
    return GpuTarget("cuda", host_target(), capabilities=(87,))


@cache
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


@pytest.mark.parametrize(
    "capabilities",
    [(CAPABILITIES[0], CAPABILITIES[-1]), pytest.param(tuple(CAPABILITIES), marks=pytest.mark.slow)],
)
def test_every_capability_has_all_kernels(capabilities: tuple[int, ...], tmp_path: Path) -> None:
    texts = kernels()
    rules = ("contraction", "partial_sums", "reduction", "rows", "window", "element", "tensor_core")
    assert {name.split("_", 2)[2] for name in texts} == set(rules)
    made = write_cuda(texts, capabilities, tmp_path)
    assert [(b.kind, b.capability) for b in made] == [
        ("source", 0),
        *(("cubin", capability) for capability in capabilities),
        ("ptx", capabilities[-1]),
    ]
    for binary in made[1:-1]:
        found = sections((tmp_path / binary.file).read_bytes())
        assert {name.removeprefix(".text.") for name in found if name.startswith(".text.")} == texts.keys()
    text = (tmp_path / made[-1].file).read_bytes()
    assert text.endswith(b"\0")
    assert f".target sm_{capabilities[-1]}".encode() in text


def test_same_source_gives_the_same_bytes_and_no_kernel_spills() -> None:
    texts = kernels()
    source = cuda_source(texts)
    found = Nvrtc().resources(source, 87)
    assert found.keys() == texts.keys()
    assert all(8 <= one.registers <= 168 and one.spilled == 0 for one in found.values())
    assert any(one.shared >= 4096 for one in found.values())
    assert Nvrtc().compiled(source, 87, "cubin") == Nvrtc().compiled(source, 87, "cubin")


#: A kernel of which 32 numbers are wanted at once.
GREEDY = """
KERNEL(128, 1, 1) void greedy(GLOBAL const float *p0 BUFFER(0), GLOBAL float *p1 BUFFER(1) POSITIONS) {
  float held[32];
  UNROLL
  for (int i = 0; i < 32; ++i) {
    held[i] = p0[i * 128 + THREAD(0)];
  }
  BARRIER;
  UNROLL
  for (int i = 0; i < 32; ++i) {
    p1[i * 128 + THREAD(0)] = held[i] * held[31 - i];
  }
}
"""


class Choosy(Nvrtc):
    """Says that ``greedy`` spills unless it leaves room for so few blocks only: which of NVRTC's kernels do
    depends on its version."""

    fitting = 0

    def measured(self, source: str, capability: int) -> tuple[bytes, dict[str, Resources]]:
        code, taken = super().measured(source, capability)
        bound = re.search(r"^BOUNDED_KERNEL\((\d+), 128, 1, 1\) void greedy", source, re.MULTILINE)
        blocks = int(bound.group(1)) if bound else 16
        return code, {**taken, "greedy": replace(taken["greedy"], spilled=max(0, blocks - self.fitting) * 8)}


def test_a_kernel_that_spills_leaves_room_for_as_many_blocks_as_it_does_not_spill_with() -> None:
    texts = {"greedy": GREEDY, "other": GREEDY.replace("greedy", "other")}
    plain = Choosy()
    blocks = 65536 // (128 * plain.resources(cuda_source(texts), 87)["greedy"].registers)
    assert blocks > 4
    plain.fitting = 3
    code, taken = without_spills(texts, 87, plain)
    assert [one.spilled for one in taken.values()] == [0, 0]
    bounded = {**texts, "greedy": GREEDY.replace("KERNEL(", "BOUNDED_KERNEL(3, ")}
    assert code == Nvrtc().compiled(cuda_source(bounded), 87, "cubin")
    assert code != Nvrtc().compiled(cuda_source(texts), 87, "cubin")


def test_a_kernel_that_spills_in_any_case_spills_least() -> None:
    _, taken = without_spills({"greedy": GREEDY}, 87, Choosy())
    assert taken["greedy"].spilled == 8


def test_a_capability_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(ToolchainError, match=r"does not compile for compute capability 3\.0") as caught:
        Nvrtc().compiled(cuda_source({}), 30, "cubin")
    assert "8.7" in caught.value.hint


def test_a_source_that_it_does_not_take_is_an_internal_error_with_its_log() -> None:
    with pytest.raises(InternalError) as caught:
        Nvrtc().compiled("this is no CUDA C", 87, "cubin")
    assert "error" in caught.value.detail


def test_without_nvrtc_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda driver: None)
    with pytest.raises(ToolchainError) as caught:
        Nvrtc()
    assert "pip install" in caught.value.hint and "[cuda]" in caught.value.hint


def test_an_old_driver_gets_ptx_of_its_version(tmp_path: Path) -> None:
    made = write_cuda(kernels(), (72, 87), tmp_path, "10.2")
    assert [(b.kind, b.capability) for b in made] == [("source", 0), ("ptx", 72)]
    text = (tmp_path / "kernels_72.ptx").read_bytes()
    assert b"\n.version 6.5\n.target sm_72\n" in text
    assert text.endswith(b"\0")
    write_cuda(kernels(), (87,), tmp_path, "11.4")
    text = (tmp_path / "kernels_87.ptx").read_bytes()
    assert b"\n.version 7.4\n.target sm_87\n" in text
    assert all(used in text for used in (b"mma.sync", b"ldmatrix.sync", b"cp.async.cg"))


def test_cubins_are_made_for_drivers_that_take_them() -> None:
    taken = [("11.4", "11.8"), ("12.0", "12.9"), ("13.0", "12.9"), ("10.2", "10.2")]
    assert all(takes_cubins(*pair) for pair in taken)
    assert not any(takes_cubins(*pair) for pair in [("10.2", "11.8"), ("10.1", "10.2"), ("11.4", "12.9")])
    assert [nvrtc_for({12, 13}, driver) for driver in ("", "10.2", "12.0", "13.1")] == [13, 12, 12, 13]


def test_of_several_nvrtc_the_one_for_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "cuda_nvrtc" / "lib"
    library.mkdir(parents=True)
    for name in ("libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.alt.so.12"):
        (library / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(nvrtc, "find_spec", lambda name: spec)
    monkeypatch.setattr(nvrtc, "_NAMES", ("lib/libnvrtc.so.*",))
    chosen = [nvrtc.find_nvrtc(driver) for driver in ("", "10.2", "11.4", "12.0")]
    assert [path.name[-2:] for path in chosen if path is not None] == ["12", ".2", ".2", "12"]


PTX = ".version 8.8\n.target sm_53\n.visible .entry k()\n{\n%s\n}\n"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("max.NaN.f32 %f1, %f2, %f3;", "max.NaN.f32"),
        ("@%p1 add.f16 %h1, %h2, %h3;", "add.f16"),
        ("cp.async.commit_group;", "cp.async.commit_group"),
        ("ld.global.nc.L2::128B.f32 %f1, [%rd1];", "L2::128B"),
        ('.pragma "used_bytes_mask 7";', "used_bytes_mask"),
        (MMA, "m16n8k16"),
    ],
)
def test_ptx_that_the_driver_lacks_is_refused(body: str, what: str) -> None:
    with pytest.raises(ToolchainError, match=r"PTX ISA 6\.5 is not known to have") as caught:
        lowered((PTX % body).encode(), "10.2", 53)
    assert what in caught.value.message
    if body == MMA:
        assert b".version 7.4" in lowered((PTX % body).encode(), "11.4", 80)
        with pytest.raises(ToolchainError, match="sm_89"):
            lowered((PTX % body).encode(), "11.4", 89)


def test_a_driver_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(ToolchainError, match=r"no PTX is known that a driver of CUDA 14\.0 takes"):
        isa_of("14.0")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_kernels_of_all_small_models_compile(precision: Precision, tmp_path: Path) -> None:
    """And their PTX is what a driver of CUDA 10.2 takes."""
    nano = replace(target(), capabilities=(53,), precision=precision)
    texts: dict[str, str] = {}
    for number, make in enumerate({**CASES, **ODD}.values()):
        texts |= plan_of(make(), f"m{number}", nano).gpu_kernels
    for capability in (53, 72):
        write_cuda(texts, (capability,), tmp_path, "10.2")
