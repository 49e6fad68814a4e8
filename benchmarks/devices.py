"""Every built-in device with each of its compilers: ``python benchmarks/devices.py [DEVICE ...] [--write]``.

Packs a small network (a keyword spotter, ds_cnn; quantised where floats are refused) for each, audits what
comes out, and compares it with ONNX Runtime on what runs the device's programs here. ``--write`` puts the
tables into docs/devices.md and docs/internals/device-checks.md; results of devices that are not named stay as
they are there. The exit code is 1 if a device's own compiler is
refused, or any result is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnx
import stand_in
from markdown import replace_section, table
from networks import BENCHMARKS, save

import edgepack
from edgepack.config.aliases import load_aliases
from edgepack.config.device import Device, device_names, load_device
from edgepack.errors import CheckFailedError, EdgepackError, ToolchainError
from edgepack.toolchains import resolve
from workbench.models.quantise import quantise

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENT, CHECKED = DOCS / "devices.md", DOCS / "internals" / "device-checks.md"
NETWORK = "ds_cnn"
DEVICES, CHIPS, CHECKS = "The devices", "Names of chips and boards", "How each device was checked"
HEADER = ["device", "toolchain", "built", "audited", "run by", "last result"]
NOTHING = "-"


@dataclass(frozen=True)
class Row:
    """What became of one device and compiler; ``good`` unless something is not as it should be."""

    device: str
    toolchain: str
    built: str = NOTHING
    audited: str = NOTHING
    runner: str = NOTHING
    result: str = ""
    good: bool = True

    def cells(self) -> list[str]:
        """As they stand in the table."""
        return [f"`{self.device}`", self.toolchain, self.built, self.audited, self.runner, self.result]


def check(device: Device, family: str, model: Path, folder: Path) -> Row:
    """Pack, audit, run."""
    own = family == device.toolchain
    label = f"**{family}**" if own else family
    try:
        resolve(device, family).executable()
    except ToolchainError:
        if device.os != "android":
            return Row(device.name, label, result="not built: not installed here")
        with stand_in.android(device):
            row = check(device, family, model, folder)
        return replace(row, runner="qemu", result=f"with stand-ins for NDK and adb: {row.result}")
    note = ""
    if device.gpu.missing:
        return Row(device.name, label, result="not built: there is no GPU here")
    try:
        bundle, glibc = _pack(device, family, model, folder)
        if glibc:
            note = f"needs glibc {glibc}; with that allowed "
    except EdgepackError as error:
        return Row(device.name, label, result=f"refused: {_one_line(error.message)}", good=not own)
    artifacts = bundle.manifest.artifacts
    checks = {name for artifact in artifacts for name in artifact.audit["checks"]}
    formats = ", ".join(sorted({artifact.audit["format"] for artifact in artifacts}))
    built, audited = ", ".join(a.kind for a in artifacts), f"{formats}, {len(checks)} checks"
    runner, result, good = _run(bundle)
    return Row(device.name, label, built, audited, runner, note + result, good)


def _pack(device: Device, family: str, model: Path, folder: Path) -> tuple[edgepack.Bundle, str]:
    """The bundle, and the glibc that it needs if that is newer than the device's."""
    output = folder / f"{device.name}-{family}"
    try:
        return edgepack.pack(model, device, output, toolchain=family), ""
    except CheckFailedError as error:
        if "glibc version" not in error.message:
            raise
    allowed = device.audit.model_copy(update={"glibc": ""})
    bundle = edgepack.pack(
        model, device.model_copy(update={"audit": allowed}), output, toolchain=family, force=True
    )
    versions = [artifact.audit.get("glibc", "0") for artifact in bundle.manifest.artifacts]
    return bundle, max(versions, key=lambda text: [int(part) for part in text.split(".")])


def _run(bundle: edgepack.Bundle) -> tuple[str, str, bool]:
    """Runner, result, and whether that is as it should be."""
    if bundle.manifest.artifact("program") is None:
        return NOTHING, "built and audited, not run: these bundles hold no program", True
    try:
        result = bundle.verify()
    except ToolchainError:
        return NOTHING, "built and audited, not run: nothing here runs its programs", True
    except EdgepackError as error:
        if "EP_E_CPU" in error.message:
            return NOTHING, "built and audited, not run: this machine's CPU lacks what it needs", True
        return NOTHING, f"built and audited; {_one_line(error.message)}", False
    worst = max(output.max_abs_err for output in result.outputs)
    where = re.sub(r"(^|\s)/\S*/", r"\1", result.where.split(", ")[0])
    cpu = bundle.manifest.device.runner.cpu
    shown = f"{where}, {cpu}" if result.runner == "qemu" and cpu else where
    text = f"verified, max error {worst:.1g}" if result.ok else f"wrong ({result.status}), error {worst:.1g}"
    return shown, text, result.ok


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/").rstrip(".")


def devices_table(results: Iterable[Sequence[str]]) -> str:
    """What each device is, and what became of it here.

    Args:
        results: cells of the rows of :func:`checks_table`.
    """
    checked = {cells[0].strip("`"): cells for cells in results if cells[1].startswith("**")}
    rows = []
    for name in device_names():
        device = load_device(name)
        bits = device.cpu.vector_bits
        cpu = f"{device.llvm.cpu or device.arch}, {f'{bits} bits' if bits else 'no vectors'}"
        if name in {"host", "host-gpu"}:
            cpu = "detected"
        rows.append([f"`{name}`", device.description, cpu, _where(checked.get(name))])
    return table(["device", "for", "CPU, vectors", "checked here"], rows, left=4)


def _where(cells: Sequence[str] | None) -> str:
    """What ran a device's program here, in a few words."""
    if cells is None or "verified" not in cells[5]:
        return "built" if cells is not None and cells[2] != NOTHING else NOTHING
    if cells[4].startswith("this machine"):
        return "run on this CPU"
    return f"run by {re.sub(r'[ ,].*', '', cells[4])}" + (", stand-ins" if "stand-ins" in cells[5] else "")


def chips_table() -> str:
    """Which names of chips and boards lead to each device."""
    names: dict[str, list[str]] = {}
    for name, alias in load_aliases().aliases.items():
        names.setdefault(alias.device, []).append(f"`{name}`")
    rows = [[f"`{device}`", ", ".join(sorted(chips))] for device, chips in sorted(names.items())]
    return table(["device", "chips and boards"], rows, left=2)


def checks_table(rows: list[Row]) -> str:
    """New rows among those of the document that are of other devices."""
    new = {row.device for row in rows}
    kept = [cells for cells in _old_rows() if cells[0].strip("`") not in new]
    cells = [cells for cells in kept if cells[0].strip("`") in device_names()]
    cells += [row.cells() for row in rows]
    # The device's own compiler, in bold, comes first.
    cells.sort(key=lambda c: (c[0].strip("`"), not c[1].startswith("**"), c[1]))
    return table(HEADER, cells, left=len(HEADER))


def _old_rows() -> Iterator[list[str]]:
    section = CHECKED.read_text(encoding="utf-8").partition(f"## {CHECKS}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def write_tables() -> None:
    """The tables of docs/devices.md, from what docs/internals/device-checks.md says."""
    replace_section(DEVICES, devices_table(_old_rows()), "devices.py", DOCUMENT)
    replace_section(CHIPS, chips_table(), "devices.py", DOCUMENT)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", metavar="DEVICE", help="default: all")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/")
    parser.add_argument(
        "--tables", action="store_true", help="only write the tables of what is known, and check nothing"
    )
    options = parser.parse_args()
    if options.tables:
        write_tables()
        return 0
    if unknown := {*options.devices} - {*device_names()}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        model, integers = save(NETWORK, folder), folder / f"{NETWORK}_int8.onnx"
        onnx.save(quantise(BENCHMARKS[NETWORK](), "s8s8"), integers)
        for name in options.devices or device_names():
            device = load_device(name)
            for family in sorted(device.compilers, key=lambda family: (family != device.toolchain, family)):
                row = check(device, family, model if device.cpu.soft_float else integers, folder)
                print("; ".join(row.cells()), flush=True)
                rows.append(row)
    if options.write:
        when = f"Last written on {date.today().isoformat()}; bold is the device's own compiler."
        replace_section(CHECKS, f"{checks_table(rows)}\n\n{when}", "devices.py", CHECKED)
        write_tables()
    wrong = [row for row in rows if not row.good]
    for row in wrong:
        print(f"WRONG: {row.device} with {row.toolchain}: {row.result}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
