"""Every built-in device with each of its compilers: ``python benchmarks/devices.py [DEVICE ...] [--write]``.

Packs a small network (a keyword spotter, ds_cnn) for each, audits what comes out, and compares it with ONNX
Runtime on what runs the device's programs here. ``--write`` puts the tables into docs/devices.md; results of
devices that are not named stay as they are there. The exit code is 1 if a device's own compiler is
refused, or any result is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import stand_in
from markdown import replace_section, table
from networks import save

import edgepack
from edgepack.config.device import Device, device_names, load_device
from edgepack.errors import CheckFailedError, EdgepackError, ToolchainError
from edgepack.toolchains import resolve

DOCUMENT = Path(__file__).parents[1] / "docs" / "devices.md"
NETWORK = "ds_cnn"
DEVICES, CHECKS = "The devices", "How each device was checked"
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


def devices_table() -> str:
    """What each device is."""
    rows = []
    for name in device_names():
        device = load_device(name)
        bits = device.cpu.vector_bits
        cpu = [device.arch, device.llvm.cpu, f"{bits} bits" if bits else "none"]
        if name in {"host", "host-gpu"}:
            cpu = ["this machine's", "detected", "detected"]
        rows.append([f"`{name}`", *cpu, device.toolchain, device.runner.name, device.description])
    return table(["device", "architecture", "CPU", "vectors", "toolchain", "runs here by", ""], rows, left=7)


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
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"## {CHECKS}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", metavar="DEVICE", help="default: all")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/devices.md")
    options = parser.parse_args()
    if unknown := {*options.devices} - {*device_names()}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        model = save(NETWORK, folder)
        for name in options.devices or device_names():
            device = load_device(name)
            for family in sorted(device.compilers, key=lambda family: (family != device.toolchain, family)):
                row = check(device, family, model, folder)
                print("; ".join(row.cells()), flush=True)
                rows.append(row)
    if options.write:
        replace_section(DEVICES, devices_table(), "devices.py", DOCUMENT)
        when = f"Last written on {date.today().isoformat()}; bold is the device's own compiler."
        replace_section(CHECKS, f"{checks_table(rows)}\n\n{when}", "devices.py", DOCUMENT)
    wrong = [row for row in rows if not row.good]
    for row in wrong:
        print(f"WRONG: {row.device} with {row.toolchain}: {row.result}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
