"""The stand-in for NVIDIA's driver, on kernels of a few lines: right ones, and ones with each of the errors
that it is there to find."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.runners import cuda_shim
from edgepack.runners.base import arch_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or arch_of(platform.machine()) not in {"x86_64", "aarch64"},
    reason="the shim is for Linux on x86-64 and aarch64",
)

PROLOGUE = """\
#define KERNEL(x, y, z) extern "C" __global__ __launch_bounds__((x) * (y) * (z))
#define BARRIER __syncthreads()
"""

#: Sums rows of 64 numbers; of its barriers none can be left out.
SUM = """
KERNEL(32, 1, 1) void sum(const float *__restrict__ x, float *__restrict__ y) {
  __shared__ float parts[32];
  const int t = (int)threadIdx.x;
  float total = 0.0f;
  for (int half = 0; half < 2; ++half) {
    parts[31 - t] = x[(int)blockIdx.x * 64 + half * 32 + t];
    BARRIER;
    for (int n = 16; n > 0; n /= 2) {
      if (t < n) parts[t] += parts[t + n];
      BARRIER;
    }
    total += parts[0];
    BARRIER;
  }
  if (t == 0) y[blockIdx.x] = total;
}
"""

HEAD = "(const float *__restrict__ x, float *__restrict__ y) {\n  const int t = (int)threadIdx.x;\n"

#: Kernels with an error each, and what is said of it. They get 128 floats each to read and to write.
WRONG = {
    "half_waits": ("if (t < 16) { BARRIER; } y[t] = x[t];", "it waits at the barrier of line"),
    "other_barrier": ("if (t < 16) { BARRIER; }\n else { BARRIER; }", "but thread 0 at that of line"),
    "reads_behind": ("y[t] = x[t + 97];", "reads 4 bytes"),
    "reads_before": ("y[t] = x[t - 1];", "reads 4 bytes"),
    "writes_behind": ("y[t + 97] = x[t];", "writes 4 bytes"),
    "shared_behind": (
        "__shared__ float a[32]; __shared__ float b[32];\n"
        "b[t] = 0; a[t + 1] = x[t]; BARRIER; y[t] = a[t] + b[t];",
        "shared_behindE1",
    ),
    "same_result": ("y[t / 2] = x[t];", "it and another thread write"),
    "all_blocks": ("y[t] = x[t];", "it and another block write"),
    "reads_results": (
        "const int b = (int)blockIdx.x; const float n = y[(b * 32 + t + 32) % 64]; y[b * 32 + t] = n;",
        "another block",
    ),
    "unaligned": (
        "const float4 v = *(const float4 *)(x + 4 * (t % 8) + 1); y[t] = v.x + v.y + v.z + v.w;",
        "reads 16 bytes at an address",
    ),
    "too_much_shared": (
        "__shared__ float a[12289]; for (int i = t; i < 12289; i += 32) a[i] = x[t]; BARRIER; y[t] = a[0];",
        "it has 49156 bytes of shared memory",
    ),
}

RIGHT = {
    "bytes": "((unsigned char *)y)[(int)blockIdx.x * 32 + t] = (unsigned char)t;",
    "nothing_shared": "__shared__ float a[32]; if (blockIdx.x == 0) a[t] = x[t];\n"
    "BARRIER; y[(int)blockIdx.x * 32 + t] = a[t];",
    "numbers": "if (blockIdx.x == 0) y[t] = fmaxf(exp(x[t]), min(x[t], 2.0f)) + rsqrtf(4.0f) + tanhf(x[t]);",
}

#: Calls the driver as the runtime does: a launch of KERNEL with BLOCKS blocks of THREADS, on 128 floats
#: 0, 1, ...; prints the first 64 of the results.
PROGRAM = """
import ctypes, os, sys
kernel, blocks, threads, image = sys.argv[1:5]
cuda = ctypes.CDLL(os.environ["EDGEPACK_SHIM_LIBRARY"])
def call(name, *arguments):
    code = getattr(cuda, "cu" + name)(*arguments)
    if code != 0:
        sys.exit(f"{name}: {code}")
P, N = ctypes.c_void_p, ctypes.c_size_t
context, module, function, stream, x, y = (P() for _ in range(6))
call("Init", 0)
call("DevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("CtxPushCurrent_v2", context)
call("ModuleLoadData", ctypes.byref(module), open(image, "rb").read())
call("ModuleGetFunction", ctypes.byref(function), module, kernel.encode())
call("StreamCreate", ctypes.byref(stream), 1)
for one in (x, y):
    call("MemAlloc_v2", ctypes.byref(one), N(512))
data = (ctypes.c_float * 128)(*range(128))
call("MemcpyHtoDAsync_v2", x, data, N(512), stream)
arguments = (P * 2)(*(ctypes.cast(ctypes.pointer(one), P) for one in (x, y)))
sizes = [int(word) for word in (blocks + "," + threads).split(",")]
call("LaunchKernel", function, *sizes, 0, stream, arguments, None)
call("MemcpyDtoHAsync_v2", data, y, N(512), stream)
call("StreamSynchronize", stream)
print(*data[:64])
"""


@dataclass
class Shim:
    """A shim of all kernels of this file, and an image that has them."""

    library: Path
    image: Path

    def launch(
        self,
        kernel: str,
        blocks: str = "2,1,1",
        threads: str = "32,1,1",
        order: str = "forward",
        image: str = "",
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, kernel, blocks, threads, image or str(self.image)],
            env=cuda_shim.shim_environment(self.library, order),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def without(text: str, barrier: int) -> str:
    """SUM with another name, and without one of its barriers."""
    parts = text.replace("void sum(", f"void sum_without_{barrier}(").split("BARRIER;")
    return "BARRIER;".join(parts[: barrier + 1]) + "BARRIER;".join(parts[barrier + 1 :])


BARRIERS = SUM.count("BARRIER;")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    folder = tmp_path_factory.mktemp("shim")
    bodies = {**{name: body for name, (body, _) in WRONG.items()}, **RIGHT}
    kernels = [SUM, *(without(SUM, i) for i in range(BARRIERS))]
    kernels += [f"KERNEL(32, 1, 1) void {name}{HEAD}  {body}\n}}\n" for name, body in bodies.items()]
    text = PROLOGUE + "\n".join(kernels)
    names = re.findall(r"void (\w+)\(", text)
    image = folder / "kernels.ptx"
    image.write_text(
        ".version 8.0\n" + "".join(f".visible .entry {name}(\n" for name in names), encoding="ascii"
    )
    return Shim(cuda_shim.build_shim([text], folder, arch_of(platform.machine())), image)


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_right_kernels(shim: Shim, order: str) -> None:
    done = shim.launch("sum", order=order)
    assert done.returncode == 0, done.stderr
    rows = [sum(range(64)), sum(range(64, 128))]
    assert [float(word) for word in done.stdout.split()[:2]] == rows
    assert done.stdout.split()[2:] == ["nan"] * 62  # what has not been written
    assert shim.launch("bytes", order=order).returncode == 0
    done = shim.launch("numbers", order=order)
    assert done.stdout.split()[0] == "1.5", done.stderr


def test_shared_memory_of_each_block_is_new(shim: Shim) -> None:
    done = shim.launch("nothing_shared")
    assert [float(word) for word in done.stdout.split()[:32]] == list(range(32))
    assert done.stdout.split()[32:64] == ["nan"] * 32


@pytest.mark.parametrize("barrier", range(BARRIERS))
def test_a_missing_barrier_is_found(shim: Shim, barrier: int) -> None:
    done = shim.launch(f"sum_without_{barrier}")
    assert done.returncode != 0
    assert "without a barrier in between" in done.stderr


@pytest.mark.parametrize("kernel", WRONG)
def test_wrong_kernels(shim: Shim, kernel: str) -> None:
    blocks = "2,1,1" if kernel in {"all_blocks", "reads_results"} else "1,1,1"
    for order in ("forward", "reverse"):
        done = shim.launch(kernel, blocks, order=order)
        assert done.returncode != 0, done.stdout
        assert re.search(rf"^cuda-shim: kernel {kernel}, block .*{re.escape(WRONG[kernel][1])}", done.stderr)


def test_launches_that_no_gpu_takes(shim: Shim, tmp_path: Path) -> None:
    assert "blocks cannot be launched" in shim.launch("sum", "1,65536,1").stderr
    assert "blocks cannot be launched" in shim.launch("sum", "0,1,1").stderr
    assert "written for others" in shim.launch("sum", threads="64,1,1").stderr
    image = tmp_path / "image"
    image.write_text(".version 8.0\n.visible .entry summary(\n", encoding="ascii")
    assert "the image has no kernel sum" in shim.launch("sum", image=str(image)).stderr
    image.write_bytes(b"\x7fELF" + bytes(60))  # of another machine
    assert "ModuleLoadData: 209" in shim.launch("sum", image=str(image)).stderr


def test_devices() -> None:
    assert cuda_shim.available(load_device("linux-x86_64")).ok == (arch_of(platform.machine()) == "x86_64")
    assert "not windows and x86_64" in cuda_shim.available(load_device("windows-x86_64")).hint


def test_a_bundle_without_cuda(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kernels for CUDA"):
        cuda_shim.run(load_device("host"), ["program", "verify"], timeout=1, cwd=tmp_path)


def test_the_order_of_threads_must_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that prints the order."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.cu").write_text(PROLOGUE, encoding="utf-8")
    monkeypatch.setattr(cuda_shim, "_library", lambda texts, arch: tmp_path / "libcuda.so.1")
    program = tmp_path / "program"

    def run(order: str) -> str:
        text = f'#!/bin/sh\necho \'{{"status": "ok", "outputs": ["\'{order}\'"]}}\'\n'
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        return cuda_shim.run(load_device("host"), [program, "verify"], timeout=60, cwd=tmp_path).stdout

    assert "same" in run("same")
    with pytest.raises(CheckFailedError, match="order in which threads run"):
        run("$EDGEPACK_SHIM_ORDER")
