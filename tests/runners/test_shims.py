"""The stand-ins for the drivers of GPUs, on kernels of a few lines: right ones, and ones with each of the
errors that they are there to find."""

from __future__ import annotations

import json
import math
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edgepack import resources
from edgepack.compiler.backends.cuda import cuda_source
from edgepack.compiler.backends.metal import metal_source
from edgepack.config.device import load_device
from edgepack.config.host_gpu import ASK_DEVICES
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.plan.gpu_target import GpuTarget
from edgepack.runners import cuda_shim, metal_shim
from edgepack.runners.base import arch_of
from edgepack.runners.cuda_shim import CUDA
from edgepack.runners.metal_shim import METAL
from edgepack.runners.shim import Shim, build_library, shim_environment
from tests.models.builder import Graph
from tests.support.compiled import plan_of
from tests.support.executor import host_target

CUDA_DRIVER = resources.TEMPLATES / "shim" / "cuda" / "driver.c"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or arch_of(platform.machine()) not in {"x86_64", "aarch64"},
    reason="the shims are for Linux on x86-64 and aarch64",
)

PARAMETERS = "(GLOBAL const float *RESTRICT x BUFFER(0), GLOBAL float *RESTRICT y BUFFER(1) POSITIONS) {\n"

#: Sums rows of 64 numbers; of its barriers none can be left out.
SUM = f"""
KERNEL(32, 1, 1) void sum{PARAMETERS}
  SHARED float parts[32];
  const int t = THREAD(0);
  float total = 0.0f;
  for (int part = 0; part < 2; ++part) {{
    parts[31 - t] = x[GROUP(0) * 64 + part * 32 + t];
    BARRIER;
    for (int n = 16; n > 0; n /= 2) {{
      if (t < n) parts[t] += parts[t + n];
      BARRIER;
    }}
    total += parts[0];
    BARRIER;
  }}
  if (t == 0) y[GROUP(0)] = total;
}}
"""

HEAD = f"{PARAMETERS}  const int t = THREAD(0);\n"

#: Kernels with an error each, and what is said of it. They get 128 floats each to read and to write.
WRONG = {
    "half_waits": ("if (t < 16) { BARRIER; } y[t] = x[t];", "it waits at the barrier of line"),
    "other_barrier": ("if (t < 16) { BARRIER; }\n else { BARRIER; }", "but thread 0 at that of line"),
    "reads_behind": ("y[t] = x[t + 97];", "reads 4 bytes"),
    "reads_before": ("y[t] = x[t - 1];", "reads 4 bytes"),
    "writes_behind": ("y[t + 97] = x[t];", "writes 4 bytes"),
    "shared_behind": (
        "SHARED float a[32]; SHARED float b[32];\nb[t] = 0; a[t + 1] = x[t]; BARRIER; y[t] = a[t] + b[t];",
        "shared_behind.*E1",
    ),
    "same_result": ("y[t / 2] = x[t];", "it and another thread write"),
    "all_blocks": ("y[t] = x[t];", "it and another block write"),
    "reads_results": (
        "const int b = GROUP(0); const float n = y[(b * 32 + t + 32) % 64]; y[b * 32 + t] = n;",
        "another block",
    ),
    "unaligned": (
        "const ep_int64 v = *(GLOBAL const ep_int64 *)(x + 4 * (t % 8) + 1); y[t] = (float)v;",
        "reads 8 bytes at an address",
    ),
    "too_much_shared": (
        "SHARED float a[12289]; for (int i = t; i < 12289; i += 32) a[i] = x[t]; BARRIER; y[t] = a[0];",
        "it has 49156 bytes of shared memory",
    ),
}

#: A product of 16 x 16 and 16 x 8 matrices, row + 2 k and k - column, by the fragments of PTX ISA.
MATRICES = f"""
KERNEL(32, 1, 1) void matrices{PARAMETERS}
  const int t = THREAD(0), group = t / 4, at = t % 4 * 2;
  uint a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) c[i] = 1.0f;
  for (int i = 0; i < 4; ++i) {{
    const int row = group + i % 2 * 8, k = at + i / 2 * 8;
    a[i] = HALF_BITS(row + 2 * k) | (uint)HALF_BITS(row + 2 * k + 2) << 16;
  }}
  for (int i = 0; i < 2; ++i) {{
    const int k = at + i * 8;
    b[i] = HALF_BITS(k - group) | (uint)HALF_BITS(k + 1 - group) << 16;
  }}
  ep_mma(c, a, b);
  for (int i = 0; i < 4; ++i) y[(group + i / 2 * 8) * 8 + at + i % 2] = c[i];
}}
KERNEL(32, 1, 1) void matrices_of_tf32{PARAMETERS}
  const int t = THREAD(0), group = t / 4;
  uint a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) {{
    c[i] = 1.0f;
    a[i] = ep_tf32_bits(group + i % 2 * 8 + 2 * (t % 4 + i / 2 * 4) + 1e-5f);
  }}
  for (int i = 0; i < 2; ++i) b[i] = ep_tf32_bits(t % 4 + i * 4 - group);
  ep_mma_tf32(c, a, b);
  for (int i = 0; i < 4; ++i) y[(group + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = c[i];
}}
KERNEL(32, 1, 1) void not_rounded{PARAMETERS}
  uint a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) {{
    c[i] = 0.0f;
    a[i] = __float_as_uint(0.1f);
  }}
  b[0] = b[1] = 0;
  ep_mma_tf32(c, a, b);
  y[THREAD(0)] = c[0];
}}
KERNEL(32, 1, 1) void half_a_warp{PARAMETERS}
  uint a[4], b[2];
  float c[4];
  a[0] = a[1] = a[2] = a[3] = b[0] = b[1] = 0;
  c[0] = c[1] = c[2] = c[3] = 0.0f;
  if (THREAD(0) < 16) ep_mma(c, a, b);
  y[THREAD(0)] = c[0];
}}
"""

#: Adds three tiles of 32 numbers and one of zeros, copied in three stages; each line of it is needed.
COPIES = f"""
KERNEL(32, 1, 1) void copies{PARAMETERS}
  SHARED ALIGNED(16) float tiles[96];
  const int t = THREAD(0);
  float sum = 0.0f;
  for (int i = 0; i < 2; ++i) {{
    if (t < 8) ep_copy_16(tiles + i * 32 + t * 4, x + i * 32 + t * 4, 1);
    COPIES_END;
  }}
  for (int i = 0; i < 4; ++i) {{
    COPIES_ARRIVED(1);
    BARRIER;
    if (t < 8 && i < 2) ep_copy_16(tiles + (i + 2) % 3 * 32 + t * 4, x + (i + 2) * 32 + t * 4, i == 0);
    COPIES_END;
    sum += tiles[i % 3 * 32 + 31 - t];
  }}
  if (GROUP(0) == 0) y[t] = sum;
}}
"""

#: What COPIES becomes by an error, and what is said of it.
WRONG_COPIES = {
    "none_waited_for": ("COPIES_ARRIVED(1);", "", "before a copy to it was waited for"),
    "too_few_waited_for": ("COPIES_ARRIVED(1)", "COPIES_ARRIVED(2)", "before a copy to it was waited for"),
    "first_group_not_ended": ("1);\n    COPIES_END;", "1);", "before a copy to it was waited for"),
    "group_not_ended": ("0);\n    COPIES_END;", "0);", "before a copy to it was waited for"),
    "copies_without_barrier": ("BARRIER;", "", "without a barrier in between|before a copy to it"),
    "barrier_before_wait": (
        "COPIES_ARRIVED(1);\n    BARRIER;",
        "BARRIER;\n    COPIES_ARRIVED(1);",
        "without a barrier in between|before a copy to it",
    ),
    "too_few_stages": ("(i + 2) % 3", "i % 3", "before a copy to it|without a barrier"),
    "copies_at_the_end": ("if (GROUP(0) == 0)", "ep_copy_16(tiles, x, t == 0);", "with 1 copies"),
    "copy_not_aligned": ("x + i * 32 + t", "x + 1 + i * 32 + t", "at an address that is no multiple"),
    "copy_to_memory": ("ep_copy_16(tiles + i * 32", "ep_copy_16(y + i * 32", "not from global to shared"),
}

#: Rows of four matrices in another order, by the layout of PTX ISA.
LDMATRIX = f"""
KERNEL(32, 1, 1) void rows_of_matrices{PARAMETERS}
  SHARED ALIGNED(16) uint rows[128];
  const int t = THREAD(0);
  uint words[4], two[2];
  for (int i = t; i < 128; i += 32) rows[i] = i;
  BARRIER;
  LDMATRIX_4(words, rows + t * 5 % 32 * 4);
  LDMATRIX_2(two, rows + t * 3 % 32 * 4);
  y[t] = words[0] + 1000 * words[3];
  y[32 + t] = words[1] + 1000 * words[2] + 1000000 * (two[0] + two[1]);
}}
KERNEL(32, 1, 1) void rows_not_aligned{PARAMETERS}
  SHARED ALIGNED(16) uint rows[136];
  uint words[4];
  LDMATRIX_4(words, rows + THREAD(0) * 4 + 1);
  y[THREAD(0)] = words[0] + x[0];
}}
KERNEL(32, 1, 1) void rows_of_others{PARAMETERS}
  SHARED ALIGNED(16) uint rows[128];
  uint words[4];
  for (int i = 0; i < 4; ++i) rows[THREAD(0) * 4 + i] = i;
  LDMATRIX_4(words, rows + THREAD(0) * 4);
  y[THREAD(0)] = words[0] + x[0];
}}
"""

#: A product of 8 x 8 matrices, the second one turned: row + k by column + 2 k.
SIMDGROUP_MATRICES = f"""
KERNEL(32, 1, 1) void matrices{PARAMETERS}
  SHARED ALIGNED(16) ep_half first[80], second[80];
  SHARED float results[64];
  const int t = THREAD(0);
  for (int i = t; i < 64; i += 32) {{
    first[i / 8 * 10 + i % 8] = (half)(i / 8 + i % 8);
    second[i / 8 * 10 + i % 8] = (half)(i / 8 + i % 8 * 2);
  }}
  BARRIER;
  simdgroup_half8x8 a, b;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(a, first, 10);
  simdgroup_load(b, second, 10, ulong2(0), true);
  simdgroup_multiply_accumulate(c, a, b, c);
  simdgroup_store(c, results, 8);
  BARRIER;
  for (int i = t; i < 64; i += 32) y[i] = results[i];
}}
KERNEL(32, 1, 1) void half_a_warp{PARAMETERS}
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  if (THREAD(0) < 16) simdgroup_multiply_accumulate(a, a, a, a);
  y[THREAD(0)] = 1.0f;
}}
KERNEL(64, 1, 1) void matrix_race{PARAMETERS}
  SHARED float results[64];
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_store(a, results, 8);
  BARRIER;
  y[THREAD(0)] = results[THREAD(0)];
}}
KERNEL(32, 1, 1) void matrix_behind{PARAMETERS}
  simdgroup_float8x8 a;
  simdgroup_load(a, x + 72, 8);
  simdgroup_store(a, y, 8);
}}
"""

RIGHT = {
    "bytes": "((GLOBAL uchar *)y)[GROUP(0) * 32 + t] = (uchar)t;",
    "nothing_shared": "SHARED float a[32]; if (GROUP(0) == 0) a[t] = x[t];\n"
    "BARRIER; y[GROUP(0) * 32 + t] = a[t];",
    "numbers": "if (GROUP(0) == 0) y[t] = max(exp(x[t]), min(x[t], 2.0f)) + rsqrt(4.0f) + tanh(x[t]);",
    "functions": "if (GROUP(0) == 0) { const float v = (x[t] - 16.0f) / 4.0f; y[t] = erf(v);\n"
    "y[32 + t] = t == 0 ? log1p(1e-6f) : t == 1 ? hypot(3e30f, 4e30f) : log1p(x[t]); }",
}

#: Calls CUDA's driver as the runtime does: a launch of KERNEL with BLOCKS blocks of THREADS, on 128 floats
#: 0, 1, ...; prints the first 64 of the results.
CUDA_PROGRAM = """
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

#: The same of Metal.
METAL_PROGRAM = """
import ctypes, os, sys
kernel, blocks, threads, text, bindings = sys.argv[1:6]
metal = ctypes.CDLL(os.environ["EDGEPACK_SHIM_LIBRARY"])
P, N = ctypes.c_void_p, ctypes.c_size_t
class Size(ctypes.Structure):
    _fields_ = [("width", N), ("height", N), ("depth", N)]
for function in (metal.sel_registerName, metal.objc_getClass, metal.objc_autoreleasePoolPush,
                 metal.MTLCreateSystemDefaultDevice):
    function.restype = P
def send(to, name, *arguments):
    types = [ctypes.c_char_p if isinstance(a, bytes) else type(a) for a in arguments]
    message = ctypes.CFUNCTYPE(P, P, P, *types)(("objc_msgSend", metal))
    answer = message(to, metal.sel_registerName(name.encode()), *arguments)
    if answer is None and name.startswith("new"):
        sys.exit(f"{name}: nil")
    return P(answer)
def string(value):
    return send(metal.objc_getClass(b"NSString"), "stringWithUTF8String:", value)
pool = P(metal.objc_autoreleasePoolPush())
device = P(metal.MTLCreateSystemDefaultDevice())
options = send(send(metal.objc_getClass(b"MTLCompileOptions"), "alloc"), "init")
error = ctypes.pointer(P())
library = send(device, "newLibraryWithSource:options:error:", string(open(text, "rb").read()), options, error)
function = send(library, "newFunctionWithName:", string(kernel.encode()))
pipeline = send(device, "newComputePipelineStateWithFunction:error:", function, error)
queue = send(device, "newCommandQueue")
buffers = [send(device, "newBufferWithLength:options:", N(512), N(0)) for _ in range(2)]
data = (ctypes.c_float * 128)(*range(128))
ctypes.memmove(send(buffers[0], "contents"), data, 512)
commands = send(queue, "commandBufferWithUnretainedReferences")
encoder = send(commands, "computeCommandEncoder")
send(encoder, "setComputePipelineState:", pipeline)
for index, one in enumerate(bindings):
    send(encoder, "setBuffer:offset:atIndex:", buffers[int(one)], N(0), N(index))
sizes = [Size(*map(int, words.split(","))) for words in (blocks, threads)]
send(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", *sizes)
for to, name in ((encoder, "endEncoding"), (commands, "commit"), (commands, "waitUntilCompleted")):
    send(to, name)
ctypes.memmove(data, send(buffers[1], "contents"), 512)
metal.objc_autoreleasePoolPop(pool)
for one in (*buffers, queue, pipeline, function, library, options, device):
    send(one, "release")
print(*data[:64])
"""


@dataclass
class Language:
    """What kernels are written in: its shim, the text of a file, and a program that launches one of them.

    Attributes:
        image: what the driver is given of a text.
    """

    shim: Shim
    source: Callable[[Mapping[str, str]], str]
    program: str
    image: Callable[[str], str]


def ptx(text: str) -> str:
    """As much of an image as the shim looks at."""
    return ".version 8.0\n" + "".join(
        f".visible .entry {n}(\n" for n in re.findall(r"^KERNEL.* void (\w+)\(", text, re.M)
    )


LANGUAGES = {
    "cuda": Language(CUDA, cuda_source, CUDA_PROGRAM, ptx),
    "metal": Language(METAL, metal_source, METAL_PROGRAM, str),
}


@dataclass
class Built:
    """The shim of a language, with all kernels of this file, and what it is given of their text."""

    language: Language
    library: Path
    image: Path

    def launch(
        self,
        kernel: str,
        blocks: str = "2,1,1",
        threads: str = "32,1,1",
        order: str = "forward",
        image: str = "",
        bindings: str = "01",
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-c", self.language.program, kernel, blocks, threads),
                *(image or str(self.image), bindings),
            ],
            env=shim_environment(self.library, order),
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


def simdgroup_product() -> dict[str, str]:
    """The kernel of an 8 x 16 by a 16 x 8 matrix."""
    g = Graph("product", seed=1)
    g.op("MatMul", g.input("x", (8, 16)), g.input("w", (16, 8)), name="y")
    g.output("y")
    built = plan_of(g.model(), "product", GpuTarget("metal", host_target(), family=7))
    assert [kernel.rule for kernel in built.plan.kernels] == ["metal.simdgroup_matrix"]
    return dict(built.gpu_kernels)


@pytest.fixture(scope="module", params=LANGUAGES)
def shim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    language = LANGUAGES[request.param]
    folder = tmp_path_factory.mktemp("shim")
    bodies = {**{name: body for name, (body, _) in WRONG.items()}, **RIGHT}
    kernels = {"sum": SUM, **{f"sum_without_{i}": without(SUM, i) for i in range(BARRIERS)}}
    kernels |= {name: f"KERNEL(32, 1, 1) void {name}{HEAD}  {body}\n}}\n" for name, body in bodies.items()}
    if language.shim is CUDA:
        kernels |= {"matrices": MATRICES, "copies": COPIES, "rows_of_matrices": LDMATRIX}
        for name, (part, other, _) in WRONG_COPIES.items():
            kernels[name] = COPIES.replace(part, other, 1).replace("void copies", f"void {name}")
    else:
        kernels |= {"matrices": SIMDGROUP_MATRICES, **simdgroup_product()}
    text = language.source(kernels)
    image = folder / "kernels.image"
    image.write_text(language.image(text), encoding="utf-8")
    library = build_library(language.shim, [text], folder, arch_of(platform.machine()))
    return Built(language, library, image)


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_right_kernels(shim: Built, order: str) -> None:
    done = shim.launch("sum", order=order)
    assert done.returncode == 0, done.stderr
    rows = [sum(range(64)), sum(range(64, 128))]
    assert [float(word) for word in done.stdout.split()[:2]] == rows
    assert done.stdout.split()[2:] == ["nan"] * 62  # what has not been written
    assert shim.launch("bytes", order=order).returncode == 0
    done = shim.launch("numbers", order=order)
    assert done.stdout.split()[0] == "1.5", done.stderr


def test_shared_memory_of_each_block_is_new(shim: Built) -> None:
    done = shim.launch("nothing_shared")
    assert [float(word) for word in done.stdout.split()[:32]] == list(range(32))
    assert done.stdout.split()[32:64] == ["nan"] * 32


@pytest.mark.parametrize("barrier", range(BARRIERS))
def test_a_missing_barrier_is_found(shim: Built, barrier: int) -> None:
    done = shim.launch(f"sum_without_{barrier}")
    assert done.returncode != 0
    assert "without a barrier in between" in done.stderr


@pytest.mark.parametrize("kernel", WRONG)
def test_wrong_kernels(shim: Built, kernel: str) -> None:
    blocks = "2,1,1" if kernel in {"all_blocks", "reads_results"} else "1,1,1"
    for order in ("forward", "reverse"):
        done = shim.launch(kernel, blocks, order=order)
        assert done.returncode != 0, done.stdout
        assert re.search(
            rf"^{shim.language.shim.name}: kernel {kernel}, block .*{WRONG[kernel][1]}", done.stderr
        )


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_matrices_of_a_warp(shim: Built, order: str) -> None:
    done = shim.launch("matrices", "1,1,1", order=order)
    places = [(row, column) for row in range(8) for column in range(8)]
    if shim.language.shim is CUDA:
        expected = [1 + sum((row + 2 * k) * (k - column) for k in range(16)) for row, column in places]
    else:
        expected = [1 + sum((row + k) * (column + 2 * k) for k in range(8)) for row, column in places]
    assert [float(word) for word in done.stdout.split()[:64]] == expected, done.stderr
    if shim.language.shim is CUDA:
        done = shim.launch("matrices_of_tf32", "1,1,1", order=order)
        expected = [1 + sum((row + 2 * k) * (k - column) for k in range(8)) for row, column in places]
        got = [float(word) for word in done.stdout.split()[:64]]
        assert got == pytest.approx(expected, abs=1e-3), (
            done.stderr
        )  # 1e-5 is more than TF32 holds, but for 0
        assert "was not rounded to TF32" in shim.launch("not_rounded", "1,1,1", order=order).stderr
    done = shim.launch("half_a_warp", "1,1,1", order=order)
    assert "the threads of its warp do not come together" in done.stderr


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_copies_arrive_when_they_are_waited_for(shim: Built, order: str) -> None:
    if shim.language.shim is not CUDA:
        pytest.skip("only CUDA has them")
    done = shim.launch("copies", order=order)
    got = [float(word) for word in done.stdout.split()[:32]]
    assert got == [3 * (31 - t) + 96 for t in range(32)], done.stderr
    for name, (_, _, message) in WRONG_COPIES.items():
        assert re.search(message, shim.launch(name, "1,1,1", order=order).stderr), name


def test_rows_of_matrices(shim: Built) -> None:
    if shim.language.shim is not CUDA:
        pytest.skip("only CUDA has ldmatrix")
    done = shim.launch("rows_of_matrices", "1,1,1")

    def word(lane: int, matrix: int, step: int) -> int:
        return (matrix * 8 + lane // 4) * step % 32 * 4 + lane % 4

    first = [word(t, 0, 5) + 1000 * word(t, 3, 5) for t in range(32)]
    others = [
        word(t, 1, 5) + 1000 * word(t, 2, 5) + 1000000 * (word(t, 0, 3) + word(t, 1, 3)) for t in range(32)
    ]
    got = [float(text) for text in done.stdout.split()]
    assert got == [float(np.float32(n)) for n in first + others], done.stderr
    assert "a row of ldmatrix is not at a multiple" in shim.launch("rows_not_aligned", "1,1,1").stderr
    assert "without a barrier in between" in shim.launch("rows_of_others", "1,1,1").stderr


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_matrices_of_simdgroups(shim: Built, order: str) -> None:
    """The rule's kernel for a product; loads and stores are accesses of each thread."""
    if shim.language.shim is not METAL:
        pytest.skip("only Metal has them")
    (kernel,) = simdgroup_product()
    done = shim.launch(kernel, "1,1,1", "64,1,1", order=order, bindings="001")
    x = np.arange(128.0)
    assert [float(word) for word in done.stdout.split()] == list((x.reshape(8, 16) @ x.reshape(16, 8)).flat)
    assert "it and another thread write" in shim.launch("matrix_race", "1,1,1", "64,1,1", order=order).stderr
    assert "reads 4 bytes" in shim.launch("matrix_behind", "1,1,1", order=order).stderr


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_functions(shim: Built, order: str) -> None:
    """Those that Metal has not, too."""
    done = shim.launch("functions", order=order)
    got = [float(word) for word in done.stdout.split()[:64]]
    expected = [math.erf((t - 16) / 4) for t in range(32)]
    expected += [math.log1p(1e-6), 5e30, *(math.log1p(t) for t in range(2, 32))]
    assert got == pytest.approx(expected, rel=5e-7), done.stderr


def test_launches_that_no_gpu_takes(shim: Built, tmp_path: Path) -> None:
    assert "cannot be launched" in shim.launch("sum", "0,1,1").stderr
    assert "written for others" in shim.launch("sum", threads="64,1,1").stderr
    image = tmp_path / "image"
    if shim.language.shim is METAL:
        image.write_text(shim.image.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        done = shim.launch("sum", image=str(image))
        assert "not that of the bundle's file" in done.stderr
        assert "newLibraryWithSource:options:error:: nil" in done.stderr
        assert "newFunctionWithName:: nil" in shim.launch("summary").stderr
        return
    assert "blocks cannot be launched" in shim.launch("sum", "1,65536,1").stderr
    image.write_text(".version 8.0\n.visible .entry summary(\n", encoding="ascii")
    assert "the image has no kernel sum" in shim.launch("sum", image=str(image)).stderr
    image.write_bytes(b"\x7fELF" + bytes(60))  # of another machine
    assert "ModuleLoadData: 209" in shim.launch("sum", image=str(image)).stderr


def test_the_driver_tells_of_its_devices(shim: Built) -> None:
    """Of those that the variable of NVIDIA's driver leaves; for `host-gpu`."""
    if shim.language.shim is METAL:
        pytest.skip("Apple's framework is asked on a Mac only")
    variables = {**shim_environment(shim.library, "forward"), "CUDA_VISIBLE_DEVICES": "9,16,99,1"}
    command = [sys.executable, "-I", str(ASK_DEVICES), "cuda", "json"]
    lines = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    devices = [json.loads(line) for line in lines]
    assert [device["capability"] for device in devices] == [80, 999]
    assert (devices[0]["units"], devices[0]["group_size"], devices[0]["local_memory"]) == (8, 1024, 48 << 10)


def test_devices() -> None:
    assert cuda_shim.available(load_device("cuda-desktop")).ok == (arch_of(platform.machine()) == "x86_64")
    assert "gpu.api is cuda" in cuda_shim.available(load_device("linux-x86_64")).hint
    assert "gpu.api is metal" in metal_shim.available(load_device("macos-arm64")).hint
    assert "not windows and x86_64" in cuda_shim.available(load_device("windows-x86_64")).hint
    assert "not linux and x86_64" in metal_shim.available(load_device("linux-x86_64")).hint


def test_a_bundle_without_such_kernels(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kernels for CUDA"):
        cuda_shim.run(load_device("host"), ["program", "verify"], timeout=1, cwd=tmp_path)
    with pytest.raises(ConfigError, match="no kernels for Metal"):
        metal_shim.run(load_device("macos-arm64"), ["program", "verify"], timeout=1, cwd=tmp_path)


def test_the_order_of_threads_must_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that prints the order."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.cu").write_text(SUM, encoding="utf-8")
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


def test_the_driver_has_every_function_that_the_library_looks_for() -> None:
    """One that is missing is no error: the library then does without what it is for, or takes the CPU."""
    templates = CUDA_DRIVER.parents[2]
    text = (templates / "runtime" / "gpu" / "cuda.h").read_text(encoding="utf-8")
    asked = {f"cu{name}{version}" for name, version in re.findall(r'X\((\w+), "(\w*)",', text)}
    assert len(asked) > 30
    made = re.findall(r"^API (\w+)\(", CUDA_DRIVER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert asked <= set(made)
