"""Flash and RAM of int8 networks on a Cortex-M4, beside what others make of them:
``python benchmarks/mcu_sizes.py FOLDER [--only WORD] [--tflm SOURCES] [--write]``.

FOLDER has MLPerf Tiny's .tflite files, of int8 and of float32. Each network is made firmware by edgepack,
with default options and with ``--optimize size``, by bakenn over CMSIS-NN 4.0.0, by emx-onnx-cgen, and by
TFLite Micro over CMSIS-NN. All is compiled for size
(-Os), linked with a bundle's start code, and run under qemu, where the stack is painted and instructions are
counted. RAM is all of it: arena, variables, input, output, stack; TFLite Micro's input and output are in its
arena. A softmax at the end is left out.

bakenn, emx-onnx-cgen and tflite-micro are downloaded by pip to build/mcu. emx-onnx-cgen gets the float
network, quantised by ONNX Runtime to operators of integers, and has to agree with ONNX Runtime. TFLite Micro
is compiled by arm-none-eabi-g++: SOURCES is a folder with checkouts of tensorflow/tflite-micro,
google/flatbuffers (of the version that its schema asks for), google/gemmlowp, google/ruy and
ARM-software/CMSIS-NN. Without it only the arena is known, of pip's package for this machine, whose pointers
have 64 bits. ``--write`` makes the section in notes/microcontrollers.md, and keeps TFLite Micro's rows there
without it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import mcu_emx
import mcu_tflm
from markdown import note, read_section, read_tables, replace_section, table
from mcu_instructions import FLASH, FOLDER, HERE, RAM, generated

import edgepack
from edgepack.client.bundle import Bundle
from edgepack.config.device import load_device
from edgepack.objectfiles.code_size import section_bytes

HEADING = "Flash and RAM beside others"
ICOUNT = "shift=7,sleep=off"
DEVICE = "cortex-m4"
#: What TFLite Micro's row is called where its arena is known only.
ARENA = "TFLite Micro"
#: Behind the name of an engine whose results are not LiteRT's.
OTHER = " (other results)"
START = ("vectors", "start", "semihosting", "library")


@dataclass(frozen=True)
class Sizes:
    """What an image takes: bytes of flash and RAM, of which the stack, and instructions of a run."""

    flash: int
    ram: int
    stack: int
    instructions: float
    arena: int
    output: bytes


class Board:
    """Links images with the start code of a bundle, and runs them."""

    def __init__(self, bundle: Bundle, recorded: Path, output_bytes: int) -> None:
        self.bundle, self.recorded, self.output_bytes = bundle, recorded, output_bytes
        self.firmware = bundle.path / "firmware"
        (self.script,) = self.firmware.glob("*.ld")
        self.common = [
            *(
                "-static",
                "-nostartfiles",
                "-Wl,--gc-sections",
                "-Wl,-e,Reset_Handler",
                "-T",
                str(self.script),
            ),
            *("-Os", "-ffunction-sections", "-fdata-sections", "-w", "-g0"),
            *(f"-I{self.firmware}", f"-I{bundle.path / 'include'}", f'-DINPUT="{recorded}"'),
            *(f"-DINPUT_BYTES={recorded.stat().st_size}", f"-DOUTPUT_BYTES={output_bytes}"),
        ]

    def by_zig(self, sources: Sequence[Path], flags: Sequence[str], name: str) -> Sizes:
        """The image of these sources."""
        options = load_device(DEVICE).compilers["zig"]
        compiler = [
            *(sys.executable, "-m", "ziglang", "cc"),
            "-target",
            options.target,
            f"-mcpu={options.cpu}",
        ]
        return self.sizes([*compiler, "-fno-sanitize=all", "-fno-pic"], sources, flags, name)

    def sizes(
        self, compiler: Sequence[str], sources: Sequence[Path], flags: Sequence[str], name: str
    ) -> Sizes:
        """The image that a compiler makes of these sources, and of the start code."""
        elf = self.bundle.path.parent / f"{name}.elf"
        files = [HERE / "mcu_sizes.c", *sources, *(self.firmware / f"{part}.c" for part in START)]
        command = [*compiler, *self.common, *flags, *map(str, files), "-o", str(elf), *mcu_tflm.LIBRARIES]
        subprocess.run(command if name == "tflm" else command[: -len(mcu_tflm.LIBRARIES)], check=True)
        million, run, stack, arena, output = self._run(elf)
        found = section_bytes(elf)
        flash, ram = (sum(found.get(one, 0) for one in names) for names in (FLASH, RAM))
        return Sizes(flash, ram + stack, stack, run * 1e6 / million, arena, output)

    def _run(self, elf: Path) -> tuple[int, int, int, int, bytes]:
        device = load_device(DEVICE)
        command = [
            *("qemu-system-arm", "-M", device.runner.options["machine"], "-icount", ICOUNT),
            *("-display", "none", "-serial", "none", "-monitor", "none", "-chardev", "stdio,id=console"),
            *("-semihosting-config", "enable=on,target=native,chardev=console", "-kernel", str(elf)),
        ]
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        *numbers, output = found.stdout.split()
        million, run, stack, arena = map(int, numbers)
        return million, run, stack, arena, bytes.fromhex(output)


def rows(model: Path, tflm: Path | None) -> list[list[str]]:
    """The rows of a network."""
    static, made = generated(model, DEVICE)
    network = model.stem.removeprefix("mlperf_tiny_").removesuffix("_int8")
    folder = FOLDER / model.stem
    bundle = edgepack.pack(static, DEVICE, folder / "bundle")
    small = edgepack.pack(static, DEVICE, folder / "small", optimize="size")
    (recorded,), (expected,) = ((bundle.path / "test").glob(f"{kind}_*.bin") for kind in ("input", "output"))
    right = expected.read_bytes()
    board = Board(bundle, recorded, len(right))
    found = [
        _row(network, "edgepack", _ours(board, "ours", right)),
        _row(network, "edgepack, for size", _ours(Board(small, recorded, len(right)), "small", right)),
    ]

    vendor, empty = made / "third_party", FOLDER / "empty"
    empty.mkdir(exist_ok=True)
    (empty / "math.h").touch()  # included, and not used
    include = [made, vendor / "cmsis_nn" / "Include", vendor / "cmsis_core" / "Include", empty]
    flags = ["-DBAKENN_CMSIS_NN_BUILTIN_MEMORY", '-DHEADER="bknn_net.h"', *(f"-I{one}" for one in include)]
    sources = [*sorted(made.glob("*.c")), *sorted(vendor.rglob("*.c"))]
    bakenn = board.by_zig(sources, flags, "bakenn")
    found.append(_row(network, "bakenn, CMSIS-NN" + _other(bakenn, right), bakenn))

    float_model = model.with_name(model.name.replace("_int8", "_float32"))
    source = mcu_emx.generated(float_model, FOLDER, recorded.read_bytes())
    emx = board.by_zig([source.file], ["-DEMX", f"-I{source.include}"], "emx")
    apart = max(abs(a - b) for a, b in zip(_signed(emx.output), _signed(source.output), strict=True))
    assert apart <= 1, f"{network}: emx-onnx-cgen's code is {apart} from ONNX Runtime"
    found.append(_row(network, "emx-onnx-cgen", emx))

    if tflm is not None:
        vectors = vendor / "cmsis_core" / "Include"
        compiler, objects, flags = mcu_tflm.built(tflm, FOLDER / "tflm", static, vectors)
        image = board.sizes(compiler, objects, flags, "tflm")
        used = Sizes(**{**image.__dict__, "ram": image.ram - mcu_tflm.ARENA + image.arena})
        found.append(_row(network, "TFLite Micro, CMSIS-NN" + _other(used, right), used))
    else:
        arena = mcu_tflm.host_arena(static, FOLDER)
        found.append([network, ARENA, "", f"{arena / 1024:.1f} (arena, pointers of 64 bits)", "", ""])
    return found


def _with_kept(measured: list[list[str]]) -> list[list[str]]:
    """The measured rows, and in place of arenas and of networks that are not measured those of the notes."""
    old = read_tables(read_section(HEADING, note("Microcontrollers")))[0][1:]
    found = {(row[0], row[1].removesuffix(OTHER)): row for row in measured if row[1] != ARENA}
    kept = [row for row in old if (row[0], row[1].removesuffix(OTHER)) not in found]
    return sorted([*found.values(), *kept], key=lambda row: row[0])


def _ours(board: Board, name: str, right: bytes) -> Sizes:
    """The image of a bundle's own library."""
    model = board.bundle.manifest.name
    flags = [f"-DNETWORK={model}", f"-DMACRO={model.upper()}", f'-DHEADER="{model}.h"']
    found = board.by_zig([board.bundle.path / "lib" / f"lib{model}.a"], flags, name)
    assert found.output == right, f"{model}: another result than LiteRT's"
    return found


def _row(network: str, engine: str, sizes: Sizes) -> list[str]:
    kib = (f"{value / 1024:.1f}" for value in (sizes.flash, sizes.ram, sizes.stack))
    return [network, engine, *kib, f"{sizes.instructions / 1e6:.2f}"]


def _other(sizes: Sizes, right: bytes) -> str:
    return "" if sizes.output == right else OTHER


def _signed(data: bytes) -> list[int]:
    return [value - 256 if value > 127 else value for value in data]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--tflm", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    models = sorted(options.folder.glob("mlperf_tiny_*_int8.tflite"))
    chosen = [one for one in models if not options.only or any(word in one.stem for word in options.only)]
    header = ["network", "made by", "flash, KiB", "RAM, KiB", "of it stack", "10^6 instructions"]
    measured = [row for model in chosen for row in rows(model, options.tflm)]
    print(table(header, measured, left=2))
    if options.write:
        text = table(header, _with_kept(measured), left=2)
        replace_section(HEADING, text, Path(__file__).name, note("Microcontrollers"))


if __name__ == "__main__":
    main()
