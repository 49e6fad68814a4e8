"""Instructions, flash and RAM of int8 networks on microcontrollers, beside CMSIS-NN:
``python benchmarks/mcu_instructions.py FOLDER [--device NAME ...] [--write]``.

FOLDER has .tflite files of int8. Each is packed as firmware, and made C over CMSIS-NN 4.0.0 by bakenn, which
pip downloads to build/mcu. Both are compiled by the same compiler, linked with the same start code, and run
under qemu's -icount, by which the board's timer counts instructions. A softmax at the end is left out on
both sides, for bakenn has none of TFLite's. Both results are compared with LiteRT's reference kernels, byte
for byte. CMSIS-NN is compiled with -O3 and -Os, and the fewer instructions count; where the CPU has Helium it
takes its paths for that. ``--write`` puts the rows into notes/microcontrollers.md; those of networks and
devices that were not measured stay there.
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

from markdown import read_section, read_tables, replace_section, table

import edgepack
from edgepack.client.bundle import Bundle
from edgepack.config.device import load_device
from edgepack.objectfiles.code_size import section_bytes

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[1]
FOLDER = ROOT / "build" / "mcu"
PACKAGES = ("bakenn==1.0.0", "tflite==2.18.0", "flatbuffers==25.12.19", "numpy")
DEVICES = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
HEADING = "Microcontrollers"

#: An instruction takes 2**3 ns, so that a network fits the timer's 24 bits.
ICOUNT = "shift=3,sleep=off"
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
        (self.input,) = sorted((bundle.path / "test").glob("input_*.bin"))
        (output,) = sorted((bundle.path / "test").glob("output_*.bin"))
        self.expected = output.read_bytes()

    def counted(self, sources: Sequence[str | Path], flags: Sequence[str], name: str) -> Counted:
        """What the image of these sources takes."""
        elf = self._linked(sources, flags, name)
        million, run, output = self._run(elf)
        sizes = section_bytes(elf)
        flash = sum(sizes.get(one, 0) for one in FLASH) - self.input.stat().st_size
        ram = sum(sizes.get(one, 0) for one in RAM)
        return Counted(run * 1e6 / million, flash, ram, bytes.fromhex(output) == self.expected)

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
            f"-DOUTPUT_BYTES={len(self.expected)}",
            *flags,
            HERE / "mcu_count.c",
            *sources,
            *start,
            *("-o", elf),
        ]
        subprocess.run(command, check=True)
        return elf

    def _run(self, elf: Path) -> tuple[int, int, str]:
        command = [
            *(self.device.runner.program or "qemu-system-arm", "-M", self.device.runner.options["machine"]),
            *("-icount", ICOUNT, "-display", "none", "-serial", "none", "-monitor", "none"),
            *("-chardev", "stdio,id=console"),
            *("-semihosting-config", "enable=on,target=native,chardev=console", "-kernel", str(elf)),
        ]
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        million, run, output = found.stdout.split()
        return int(million), int(run), output


def _cpu(name: str) -> str:
    """zig's name of a CPU, with the instructions that CMSIS-NN uses."""
    return name if "m33" not in name else f"{name}+dsp"


def ours(bundle: Bundle) -> Counted:
    """The bundle's own library."""
    name = bundle.manifest.name
    flags = ["-Os", f"-DNETWORK={name}", f"-DMACRO={name.upper()}", f'-DHEADER="{name}.h"']
    return Image(bundle, bundle.path.parent).counted([bundle.path / "lib" / f"lib{name}.a"], flags, "ours")


def theirs(bundle: Bundle, generated: Path) -> Counted:
    """The generated C over CMSIS-NN, by the optimisation that takes fewer instructions."""
    vendor, folder = generated / "third_party", bundle.path.parent
    (folder / "inc").mkdir(exist_ok=True)
    (folder / "inc" / "math.h").touch()  # included, and not used
    include = [generated, vendor / "cmsis_nn" / "Include", vendor / "cmsis_core" / "Include", folder / "inc"]
    flags = ["-DBAKENN_CMSIS_NN_BUILTIN_MEMORY", '-DHEADER="bknn_net.h"', *(f"-I{path}" for path in include)]
    sources = [*sorted(generated.glob("*.c")), *sorted(vendor.rglob("*.c"))]
    made = [Image(bundle, folder).counted(sources, [level, *flags], "theirs") for level in ("-O3", "-Os")]
    return min(made, key=lambda one: one.instructions)


def generated(model: Path) -> tuple[Path, Path]:
    """The file that both sides compute, and bakenn's C of it."""
    site, folder = FOLDER / "site", FOLDER / model.stem
    if not site.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), *PACKAGES]
        subprocess.run(pip, check=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    static, made = folder / f"{model.stem}.tflite", folder / "cmsis_nn"
    command = [sys.executable, "-S", str(HERE / "mcu_cmsis_nn.py"), str(model), str(static), str(made)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(site)})
    return static, made


def row(model: Path, device: str) -> list[str]:
    """A row of the table."""
    static, made = generated(model)
    bundle = edgepack.pack(static, device, FOLDER / model.stem / "bundle")
    own, other = ours(bundle), theirs(bundle, made)
    assert own.right, f"{model.stem} on {device}: another result than LiteRT's"
    note = "" if other.right else " (other results)"
    return [
        model.stem.removeprefix("mlperf_tiny_").removesuffix("_int8"),
        device,
        f"{own.instructions / 1e6:.3f}",
        f"{other.instructions / 1e6:.3f}{note}",
        f"{own.instructions / other.instructions:.2f}",
        *(f"{value / 1024:.1f}" for value in (own.flash, other.flash, own.ram, other.ram)),
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", action="append")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    models = sorted(options.folder.glob("mlperf_tiny_*_int8.tflite"))
    chosen = [one for one in models if not options.only or any(word in one.stem for word in options.only)]
    rows = [row(model, device) for model in chosen for device in options.device or DEVICES]
    header = ["network", "device", "10^6 instructions", "CMSIS-NN", "ratio"]
    header += ["flash, KiB", "CMSIS-NN", "RAM, KiB", "CMSIS-NN"]
    print(table(header, rows, left=2))
    if options.write:
        ((_, *before),) = read_tables(read_section(HEADING))
        found = {(network, device): [network, device, *rest] for network, device, *rest in [*before, *rows]}
        order = sorted(found, key=lambda one: (one[0], DEVICES.index(one[1])))
        replace_section(HEADING, table(header, [found[one] for one in order], left=2), Path(__file__).name)


if __name__ == "__main__":
    main()
