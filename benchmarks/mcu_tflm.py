"""TFLite Micro with a network of MLPerf Tiny, for mcu_sizes.py: compiled by arm-none-eabi-g++, or its arena
on this machine, by pip's package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edgepack.compiler.frontend.tflite.model_file import read_model

PACKAGES = ("tflite-micro==0.dev20261023182759", "flatbuffers==25.12.19", "numpy")
#: Room for any of the four networks; what is used of it is asked for.
ARENA = 256 * 1024
CORE = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
SMALL = ("-Os", "-ffunction-sections", "-fdata-sections", "-w", "-g0")
DEFINES = ("-DTF_LITE_STATIC_MEMORY", "-DTF_LITE_STRIP_ERROR_STRINGS", "-DNDEBUG", "-DCMSIS_NN")
CXX = ("-std=c++17", "-fno-rtti", "-fno-exceptions", "-fno-threadsafe-statics", "-fno-use-cxa-atexit")
LIBRARIES = ("--specs=nano.specs", "--specs=nosys.specs", "-Wl,--defsym=end=firmware_bss_end", "-lm")
#: Sources of the interpreter; tests and what stands in for a board are left out.
INTERPRETER = (
    *("lite/micro", "lite/micro/arena_allocator", "lite/micro/memory_planner", "lite/micro/tflite_bridge"),
    *(
        "lite/core/api",
        "lite/core/c",
        "lite/kernels",
        "lite/kernels/internal",
        "lite/kernels/internal/reference",
    ),
    *("compiler/mlir/lite/schema", "compiler/mlir/lite/core/api"),
)
LEFT_OUT = re.compile(
    r"_test|test_help|fake_micro|mock_micro|testing|debug_log|system_setup|micro_time|hexdump"
)
#: Operator -> what registers its kernel for int8, and the kernel's sources: its own and common ones.
KERNELS = {
    "ADD": ("AddAdd(tflite::Register_ADD_INT8())", "add"),
    "AVERAGE_POOL_2D": ("AddAveragePool2D(tflite::Register_AVERAGE_POOL_2D_INT8())", "pooling"),
    "CONV_2D": ("AddConv2D(tflite::Register_CONV_2D_INT8())", "conv"),
    "DEPTHWISE_CONV_2D": ("AddDepthwiseConv2D(tflite::Register_DEPTHWISE_CONV_2D_INT8())", "depthwise_conv"),
    "FULLY_CONNECTED": ("AddFullyConnected(tflite::Register_FULLY_CONNECTED_INT8())", "fully_connected"),
    "RESHAPE": ("AddReshape()", "reshape"),
}


def built(
    sources: Path, folder: Path, model: Path, cmsis_core: Path
) -> tuple[list[str], list[Path], list[str]]:
    """The compiler's command, objects of the interpreter and its kernels, and flags of the network."""
    tflm, nn = sources / "tflite-micro", sources / "CMSIS-NN"
    headers = [
        tflm,
        sources / "flatbuffers" / "include",
        sources / "gemmlowp",
        sources / "ruy",
        nn,
        nn / "Include",
    ]
    include = [f"-I{one}" for one in [*headers, cmsis_core]]
    files = [
        file
        for part in INTERPRETER
        for file in sorted((tflm / "tensorflow" / part).glob("*.cc"))
        if not LEFT_OUT.search(file.name)
    ]
    kernels = tflm / "tensorflow" / "lite" / "micro" / "kernels"
    files += [kernels / "kernel_util.cc"]
    for _, name in KERNELS.values():
        own = kernels / "cmsis_nn" / f"{name}.cc"
        files += [own if own.is_file() else kernels / f"{name}.cc", kernels / f"{name}_common.cc"]
    files += [
        one for one in sorted((nn / "Source").rglob("*.c")) if not re.search(r"_f(16|32|lt)\.c$", one.name)
    ]
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(number: int, file: Path) -> Path:
        made = folder / f"{number}_{file.stem}.o"
        if not made.is_file():
            flags = [*CORE, *SMALL, *DEFINES, *include, *(CXX if file.suffix == ".cc" else ())]
            compiler = "arm-none-eabi-g++" if file.suffix == ".cc" else "arm-none-eabi-gcc"
            subprocess.run([compiler, *flags, "-c", str(file), "-o", str(made)], check=True)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, range(len(files)), files))
    kinds = sorted({operator.kind for operator in read_model(model).subgraphs[0].operators})
    registered = "".join(f"operators.{KERNELS[kind][0]};" for kind in kinds)
    network = folder / f"{model.stem}.o"
    flags = [f'-DMODEL="{model}"', f"-DARENA={ARENA}", f"-DOPERATORS={len(kinds)}"]
    flags += [f"-DRESOLVE(operators)={registered}", *CORE, *SMALL, *DEFINES, *include, *CXX]
    source = Path(__file__).with_name("mcu_tflm.cc")
    subprocess.run(["arm-none-eabi-g++", *flags, "-c", str(source), "-o", str(network)], check=True)
    return ["arm-none-eabi-gcc", *CORE], [network, *objects], ["-DTFLM"]


def host_arena(model: Path, folder: Path) -> int:
    """Bytes of the arena on this machine, as the interpreter's recording allocator says."""
    site = folder / "tflite_micro"
    if not site.is_dir():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), *PACKAGES], check=True
        )
    program = (
        "from tflite_micro.python.tflite_micro import runtime\n"
        f"runtime.Interpreter.from_file({str(model)!r}, arena_size={ARENA}).print_allocations()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    (total,) = re.findall(r"Arena allocation total (\d+) bytes", done.stdout + done.stderr)
    return int(total)
