"""Instructions, flash and RAM of int8 networks on microcontrollers, beside CMSIS-NN and ESP-NN:
``python benchmarks/mcu_instructions.py FOLDER [--device NAME ...] [--write]``.

FOLDER has .tflite files of int8. Each is packed as firmware, and made C over CMSIS-NN 4.0.0, for RISC-V over
ESP-NN 1.2.6, by bakenn, which pip downloads to build/mcu. Both are compiled by the same compiler, linked with
the same start code, and run under qemu's -icount, by which the board's timer counts instructions. A softmax
at the end is left out on both sides, for bakenn has none of TFLite's. Both results are compared with LiteRT's
reference kernels, byte for byte. The others are compiled with -O3 and -Os, ESP-NN with and without its
generic optimisations, and the fewest instructions count; where the CPU has Helium CMSIS-NN takes its paths
for that. "For size" is what ``--optimize size`` makes.

A streaming network (micro_wake_word_vad) bakenn does not take: its layers are called as one would write them
by hand over the same CMSIS-NN, with states in place (mcu_layers.c), on Cortex-M alone.
``--write`` writes the rows of the devices that were measured into notes/microcontrollers.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import note, read_section, read_tables, replace_section, table
from mcu_layers import Layers, layers_of, places, written

import edgepack
from edgepack.bundle.firmware.emulator import EMULATORS
from edgepack.client.bundle import Bundle
from edgepack.config.device import load_device
from edgepack.objectfiles.code_size import section_bytes

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[1]
FOLDER = ROOT / "build" / "mcu"
PACKAGES = ("bakenn==1.0.0", "tflite==2.18.0", "flatbuffers==25.12.19", "numpy")
DEVICES = ("cortex-m0plus", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "esp32-c3")
#: bakenn's targets for the architectures: of ESP-NN that whose functions are plain C.
TARGETS = {"arm": "cortex-m4", "riscv32": "esp32"}
#: Networks that keep state, which bakenn does not take: their layers are called by mcu_layers.c.
STREAMING = ("micro_wake_word_vad",)
#: Architectures of CMSIS-NN.
CMSIS = ("arm",)
#: What the libraries need of a header that a compiler without a C library lacks.
STRING_H = """#pragma once
#include <stddef.h>
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
"""
HEADING = "Microcontrollers"

#: An instruction takes 1 ns, so that a network fits the timer's 24 bits, of 40 ns.
ICOUNT = "shift=0,sleep=off"
#: Sections that lie in flash, and in RAM. The recorded input is in neither.
FLASH, RAM = (".vectors", ".params", ".kernels", ".runtime", ".text", ".data"), (".arena", ".data", ".bss")


@dataclass(frozen=True)
class Counted:
    """An image: instructions of a run, and bytes of flash and RAM, without the stack."""

    instructions: float
    flash: int
    ram: int
    right: bool


class Image:
    """Compiles, links and runs one image with the start code of a bundle."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        self.bundle, self.folder = bundle, folder
        self.device = load_device(bundle.manifest.device.name)
        inputs, self.outputs = (_recorded(bundle, kind) for kind in ("input", "output"))
        self.input = folder / "input.bin"
        self.input.write_bytes(b"".join(map(_padded, inputs)))
        self.output_bytes = sum(len(_padded(one)) for one in self.outputs)

    def counted(self, sources: Sequence[str | Path], flags: Sequence[str], name: str) -> Counted:
        """What the image of these sources takes."""
        elf = self._linked(sources, flags, name)
        million, run, output = self._run(elf)
        sizes = section_bytes(elf)
        flash = sum(sizes.get(one, 0) for one in FLASH) - self.input.stat().st_size
        ram = sum(sizes.get(one, 0) for one in RAM)
        return Counted(run * 1e6 / million, flash, ram, self._right(bytes.fromhex(output)))

    def _right(self, printed: bytes) -> bool:
        at, same = 0, True
        for one in self.outputs:
            same &= printed[at : at + len(one)] == one
            at += len(_padded(one))
        return same

    def _linked(self, sources: Sequence[str | Path], flags: Sequence[str], name: str) -> Path:
        firmware, options = self.bundle.path / "firmware", self.device.compilers["zig"]
        elf = self.folder / f"{name}.elf"
        (script,) = firmware.glob("*.ld")
        start = [firmware / f"{part}.c" for part in ("vectors", "start", "semihosting", "library")]
        command: list[str | Path] = [
            *(sys.executable, "-m", "ziglang", "cc", "-target", options.target, f"-mcpu={_cpu(options.cpu)}"),
            *("-fno-sanitize=all", "-fno-pic", "-ffunction-sections", "-fdata-sections", "-w", "-g0"),
            *("-static", "-nostartfiles", "-Wl,--gc-sections", "-Wl,-e,Reset_Handler", "-T", script),
            *(f"-I{firmware}", f"-I{self.bundle.path / 'include'}", f'-DINPUT="{self.input}"'),
            f"-DINPUT_BYTES={self.input.stat().st_size}",
            f"-DOUTPUT_BYTES={self.output_bytes}",
            *flags,
            HERE / "mcu_count.c",
            *sources,
            *start,
            *("-o", elf),
        ]
        subprocess.run(command, check=True)
        return elf

    def _run(self, elf: Path) -> tuple[int, int, str]:
        emulator, runner = EMULATORS[self.device.arch], self.device.runner
        machine = str(runner.options["machine"])
        command = [
            *emulator.command(machine, runner.cpu or "", runner.program or emulator.program),
            *("-icount", ICOUNT, "-display", "none", "-serial", "none", "-monitor", "none"),
            *("-chardev", "stdio,id=console"),
            *("-semihosting-config", "enable=on,target=native,chardev=console", "-kernel", str(elf)),
        ]
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        million, run, output = found.stdout.split()
        return int(million), int(run), output


def _recorded(bundle: Bundle, kind: str) -> list[bytes]:
    """The recorded tensors, in the model's order."""
    count = len(bundle.manifest.inputs if kind == "input" else bundle.manifest.outputs)
    return [(bundle.path / "test" / f"{kind}_{i}.bin").read_bytes() for i in range(count)]


def _padded(data: bytes) -> bytes:
    """As many tensors lie one behind the other: each at a multiple of 16 bytes."""
    return data + bytes(-len(data) % 16)


def _cpu(name: str) -> str:
    """zig's name of a CPU, with the instructions that CMSIS-NN uses."""
    return name if "m33" not in name else f"{name}+dsp"


def ours(bundle: Bundle) -> Counted:
    """The bundle's own library."""
    name = bundle.manifest.name
    flags = ["-Os", f"-DNETWORK={name}", f"-DMACRO={name.upper()}", f'-DHEADER="{name}.h"']
    tensors = [f"input + {at}" for name, at in places(bundle.manifest.inputs).items() if name]
    tensors += [f"output + {at}" for name, at in places(bundle.manifest.outputs).items() if name]
    flags.append(f"-DTENSORS={', '.join(tensors)}")
    return Image(bundle, bundle.path.parent).counted([bundle.path / "lib" / f"lib{name}.a"], flags, "ours")


def theirs(bundle: Bundle, generated: Path) -> Counted:
    """The generated C over CMSIS-NN or ESP-NN, by the options that take fewest instructions."""
    vendor, folder = generated / "third_party", bundle.path.parent
    (folder / "inc").mkdir(exist_ok=True)
    for name in ("math.h", "stdio.h", "stdlib.h"):  # included, and not used
        (folder / "inc" / name).touch()
    (folder / "inc" / "string.h").write_text(STRING_H)
    include = [generated, vendor / "cmsis_nn" / "Include", vendor / "cmsis_core" / "Include", folder / "inc"]
    include += [vendor / "esp_nn" / "include", vendor / "esp_nn" / "src" / "common"]
    flags = ["-DBAKENN_CMSIS_NN_BUILTIN_MEMORY", '-DHEADER="bknn_net.h"', *(f"-I{path}" for path in include)]
    sources = [*sorted(generated.glob("*.c")), *sorted(vendor.rglob("*.c"))]
    forms: list[list[str]] = [["-DCONFIG_NN_OPTIMIZED"], []] if (vendor / "esp_nn").is_dir() else [[]]
    made = [
        Image(bundle, folder).counted(sources, [level, *form, *flags], "theirs")
        for level in ("-O3", "-Os")
        for form in forms
    ]
    return min(made, key=lambda one: one.instructions)


def by_layers(bundle: Bundle, network: Layers) -> Counted:
    """The network's layers by CMSIS-NN's functions, by the options that take fewest instructions."""
    vendor, folder = FOLDER / "site" / "bakenn" / "backend" / "cmsis_nn" / "vendor", bundle.path.parent
    inputs, outputs = places(bundle.manifest.inputs), places(bundle.manifest.outputs)
    header = written(network, folder / "layers", inputs, outputs)
    include = [HERE, header.parent, vendor / "cmsis_nn" / "Include", vendor / "cmsis_core" / "Include"]
    (folder / "inc").mkdir(exist_ok=True)
    for name in ("math.h", "stdio.h", "stdlib.h"):  # included, and not used
        (folder / "inc" / name).touch()
    (folder / "inc" / "string.h").write_text(STRING_H)
    flags = ["-DBAKENN_CMSIS_NN_BUILTIN_MEMORY", "-DLAYERS", '-DHEADER="mcu_layers.h"']
    flags += [f"-I{path}" for path in [*include, folder / "inc"]]
    sources = [HERE / "mcu_layers.c", *sorted((vendor / "cmsis_nn" / "Source").rglob("*.c"))]
    made = [Image(bundle, folder).counted(sources, [level, *flags], "theirs") for level in ("-O3", "-Os")]
    return min(made, key=lambda one: one.instructions)


def generated(model: Path, device: str) -> tuple[Path, Path | None]:
    """The file that both sides compute, and bakenn's C of it; None for a streaming network."""
    site, folder = FOLDER / "site", FOLDER / model.stem
    arch = load_device(device).arch
    if not site.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), *PACKAGES]
        subprocess.run(pip, check=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if model.stem in STREAMING:
        return model, None
    static, made = folder / f"{model.stem}.tflite", folder / "generated"
    command = [sys.executable, "-S", str(HERE / "mcu_cmsis_nn.py")]
    command += [str(model), str(static), str(made), TARGETS[arch]]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(site)})
    return static, made


def row(model: Path, device: str) -> list[str]:
    """A row of the table."""
    folder = FOLDER / model.stem
    static, made = generated(model, device)
    network = layers_of(model) if made is None else None
    cut = {"cut_outputs": network.outputs} if network is not None else {}
    bundle = edgepack.pack(static, device, folder / "bundle", **cut)
    small = edgepack.pack(static, device, folder / "small", optimize="size", **cut)
    own, smallest = ours(bundle), ours(small)
    other = theirs(bundle, made) if made is not None else by_layers(bundle, network)
    assert own.right and smallest.right, f"{model.stem} on {device}: another result than LiteRT's"
    note = "" if other.right else " (other results)"
    return [
        model.stem.removeprefix("mlperf_tiny_").removeprefix("micro_wake_word_").removesuffix("_int8"),
        device,
        f"{own.instructions / 1e6:.3f}",
        f"{other.instructions / 1e6:.3f}{note}",
        f"{own.instructions / other.instructions:.2f}",
        f"{smallest.instructions / other.instructions:.2f}",
        *(f"{value / 1024:.1f}" for value in (own.flash, smallest.flash, other.flash, own.ram, other.ram)),
    ]


def with_others(rows: list[list[str]]) -> list[list[str]]:
    """These rows, and those of other networks and devices that the notes have, by network, then device."""
    old = read_tables(read_section(HEADING))[0][1:] if note(HEADING).is_file() else []
    found = {(line[0], line[1]): line for line in [*old, *rows]}
    order = {name: number for number, name in enumerate(DEVICES)}
    return sorted(found.values(), key=lambda line: (line[0], order.get(line[1], len(order)), line[1]))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", action="append")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    models = sorted(options.folder.glob("mlperf_tiny_*_int8.tflite"))
    models += [path for name in STREAMING if (path := options.folder / f"{name}.tflite").is_file()]
    chosen = [one for one in models if not options.only or any(word in one.stem for word in options.only)]
    rows = [
        row(model, device)
        for model in chosen
        for device in options.device or DEVICES
        if model.stem not in STREAMING or load_device(device).arch in CMSIS
    ]
    header = ["network", "device", "10^6 instructions", "theirs", "ratio", "for size"]
    header += ["flash, KiB", "for size", "theirs", "RAM, KiB", "theirs"]
    print(table(header, rows, left=2))
    if options.write:
        replace_section(HEADING, table(header, with_others(rows), left=2), Path(__file__).name)


if __name__ == "__main__":
    main()
