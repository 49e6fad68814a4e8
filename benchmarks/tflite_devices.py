"""Trained TFLite networks on devices: ``python benchmarks/tflite_devices.py FOLDER [--write]``.

FOLDER has .tflite files (docs/tflite.md says where they can be had); tflite_models.yaml's wake words of int8
are downloaded by pip, with ``--wheels`` all of its networks. Each is packed for each device and verified
there, by its runner, against LiteRT's reference kernels; on a Cortex-M4 instructions are counted under qemu,
and flash and RAM read from the image. Times on a PC are those of notes/tflite-beside-litert.md. What was
found is kept in build/tflite, a file for each network and device: who starts it again goes on where it was
(``--again``: anew). ``--write`` makes the table of docs/tflite.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import note, read_section, read_tables, replace_section, table
from models_of_wheels import model_file, read_table
from real_models import FOLDER as WHEELS

import edgepack

ROOT = Path(__file__).parents[1]
PAGE, FOUND = ROOT / "docs" / "tflite.md", ROOT / "build" / "tflite"
TABLE = Path(__file__).with_name("tflite_models.yaml")
HEADING = "Networks on devices"
#: The device whose instructions, flash and RAM are shown.
COUNTED = "cortex-m4"
DEVICES = {
    "host": "PC",
    "raspberrypi4": "Pi 4",
    "linux-riscv64-v": "RISC-V, V",
    "wasm32-wasi": "WASI",
    COUNTED: "M4",
    "cortex-m55": "M55",
    "cortex-m0plus": "M0+",
    "esp32-c3": "C3",
}
#: Of what a pack that is refused says, the words of the table.
REFUSED = {"is too large for": "too large", "floats": "floats", "tensors of float": "floats"}


@dataclass(frozen=True)
class Result:
    """What became of a network on a device.

    Attributes:
        said: "exact", the largest error relative to the output's largest value, or why there is no bundle.
        instructions: of a run; 0 where they are not counted.
        flash, ram: bytes of firmware; 0 elsewhere.
    """

    said: str
    instructions: int = 0
    flash: int = 0
    ram: int = 0


def result_of(name: str, path: Path, device: str, *, again: bool) -> Result:
    """What became of a network on a device, now or when it was last tried."""
    kept = FOUND / "devices" / f"{name}-{device}.json"
    if kept.is_file() and not again:
        return Result(**json.loads(kept.read_text()))
    folder = FOUND / "bundles" / f"{name}-{device}"
    shutil.rmtree(folder, ignore_errors=True)
    found = _tried(path, device, folder)
    shutil.rmtree(folder, ignore_errors=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(found)))
    return found


def _tried(path: Path, device: str, folder: Path) -> Result:
    try:
        bundle = edgepack.pack(path, device, folder, timeout=0)
    except edgepack.EdgepackError as error:
        words = (short for text, short in REFUSED.items() if text in error.message)
        return Result(next(words, error.message))
    checked = bundle.verify(timeout=3600)
    if not checked.ok:
        return Result("wrong")
    error = max((one.max_abs_err / (one.max_abs_ref or 1.0) for one in checked.outputs), default=0.0)
    said = f"{error:.0e}" if error else "exact"
    footprint = bundle.manifest.footprint
    if device != COUNTED or footprint is None:
        return Result(said)
    counted = bundle.bench().instructions
    assert counted is not None
    return Result(said, counted.run, footprint.flash, footprint.ram)


def networks(folder: Path, *, wheels: bool) -> dict[str, Path]:
    """Files by name."""
    found = {path.stem: path for path in sorted(folder.glob("*.tflite"))}
    chosen = [one for one in read_table(TABLE) if wheels or one.name.endswith("-int8")]
    return found | {one.name: model_file(one, WHEELS) for one in chosen}


def times() -> dict[str, list[str]]:
    """Microseconds of a run on a PC, by name: edgepack's and LiteRT's."""
    rows = read_tables(read_section("TFLite beside LiteRT", note("TFLite beside LiteRT")))[0][1:]
    return {name: [ours, theirs] for name, ours, theirs, _ in rows}


def row(name: str, found: dict[str, Result], measured: dict[str, list[str]]) -> list[str]:
    """A line of the table."""
    counted = found.get(COUNTED, Result(""))
    firmware = ["", "", ""]
    if counted.instructions:
        flash, ram = (f"{size / 1024:.0f}" for size in (counted.flash, counted.ram))
        firmware = [flash, ram, f"{counted.instructions / 1e6:.3g}"]
    said = [found[device].said if device in found else "" for device in DEVICES]
    return [name.removeprefix("mlperf_tiny_"), *said, *firmware, *measured.get(name, ["", ""])]


def main() -> None:
    """Try, print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--device", nargs="+", choices=DEVICES, default=list(DEVICES))
    parser.add_argument("--wheels", action="store_true", help="all networks of tflite_models.yaml")
    parser.add_argument("--again", action="store_true", help="also what was tried before")
    parser.add_argument("--write", action="store_true", help="the table of docs/tflite.md")
    given = parser.parse_args()
    measured, rows = times(), []
    for name, path in networks(given.folder, wheels=given.wheels).items():
        if given.only and name not in given.only:
            continue
        found = {device: result_of(name, path, device, again=given.again) for device in given.device}
        rows.append(row(name, found, measured))
        print(" | ".join(rows[-1]), flush=True)
    if given.write:
        header = ["network", *DEVICES.values(), "flash, KiB", "RAM, KiB", "10^6 instructions"]
        text = table([*header, "PC, us", "LiteRT, us"], rows)
        replace_section(HEADING, text, Path(__file__).name, PAGE)


if __name__ == "__main__":
    main()
