"""Kernels of a few lines on the shims of CUDA's and Metal's drivers: a text is built with the shim, and a
program of a few lines launches one of its kernels as the runtime does."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgepack.compiler.backends.cuda import cuda_source
from edgepack.compiler.backends.metal import metal_source
from edgepack.runners.base import arch_of
from edgepack.runners.cuda_shim import CUDA
from edgepack.runners.metal_shim import METAL
from edgepack.runners.shim import Shim, build_library, shim_environment

NEEDS_SHIM = pytest.mark.skipif(
    sys.platform != "linux" or arch_of(platform.machine()) not in {"x86_64", "aarch64"},
    reason="the shims are for Linux on x86-64 and aarch64",
)

#: Each kernel reads 128 floats x, which are 0, 1, ..., and writes y, of which the first 64 are printed.
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
    """The shim of a language, with all kernels of a text, and what it is given of their text."""

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


def build(language: str, kernels: Mapping[str, str], folder: Path) -> Built:
    """The shim of a language, "cuda" or "metal", with ``kernels``: the text of each, by symbol."""
    used = LANGUAGES[language]
    text = used.source(kernels)
    image = folder / "kernels.image"
    image.write_text(used.image(text), encoding="utf-8")
    library = build_library(used.shim, [text], folder, arch_of(platform.machine()))
    return Built(used, library, image)
