"""How much flash and RAM a model takes in firmware, by part, and whether that is within the device's budget.

The parts are sections of a linked image that holds the model, the start code and nothing else
(``templates/firmware/example.c.j2``, ``sections.ld``), so what the linker dropped is not counted, and what it
took from libraries is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgepack.bundle.manifest import Footprint, FootprintPart
from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.code_size import section_bytes
from edgepack.objectfiles.elf.stack_depth import METHOD, stack_bytes
from edgepack.render.formatting import human_bytes

__all__ = ["check_budget", "estimate", "footprint_rows", "measure"]

#: Part -> the sections that it is, and a note.
_PARTS = {
    "kernels": ((".kernels",), ""),
    "runtime": ((".runtime",), "what calls the kernels"),
    "params": ((".params",), ""),
    "start and library": ((".vectors", ".text"), "start code, what is called of the C library"),
    "arena": ((".arena",), "intermediate results"),
    "data": ((".data", ".bss"), "the example's inputs and outputs, the library's variables"),
}
_INITIALISED = ".data"
_IN_RAM = {".arena", ".data", ".bss"}


def measure(image: Path, device: Device) -> Footprint:
    """What a linked image takes of a device's flash and RAM, by part."""
    sizes = section_bytes(image)

    def part(name: str, sections: Sequence[str], note: str) -> FootprintPart:
        flash = sum(sizes.get(s, 0) for s in sections if s not in _IN_RAM or s == _INITIALISED)
        ram = sum(sizes.get(s, 0) for s in sections if s in _IN_RAM)
        return FootprintPart(name=name, flash=flash, ram=ram, note=note)

    parts = [part(name, *what) for name, what in _PARTS.items()]
    parts.append(FootprintPart(name="stack", flash=0, ram=stack_bytes(image), note=METHOD))
    return _footprint(parts, device)


def estimate(kernels: Path, params_bytes: int, arena_bytes: int, device: Device) -> Footprint:
    """The largest parts before anything is linked: no image can be smaller.

    Args:
        kernels: the object of the model's kernels.
        params_bytes: of the params' file.
        arena_bytes: that a run needs.
    """
    return _footprint(
        [
            FootprintPart(name="kernels", flash=section_bytes(kernels).get(".text", 0), ram=0, note=""),
            FootprintPart(name="params", flash=params_bytes, ram=0, note=""),
            FootprintPart(name="arena", flash=0, ram=arena_bytes, note="intermediate results"),
        ],
        device,
    )


def _footprint(parts: Sequence[FootprintPart], device: Device) -> Footprint:
    return Footprint(
        parts=tuple(parts),
        flash=sum(part.flash for part in parts),
        ram=sum(part.ram for part in parts),
        flash_budget=device.budget.flash,
        ram_budget=device.budget.ram,
    )


def check_budget(
    found: Footprint, name: str, device: Device, *, growth: int, estimated: bool = False
) -> None:
    """Raise CheckFailedError, with the table, if flash or RAM is over the device's budget.

    Args:
        growth: bytes of params that ``--optimize size`` would save, for the hint.
        estimated: ``found`` is of :func:`estimate`, so it is the least.
    """
    over = [
        f"{human_bytes(used)} of {what} where {human_bytes(budget)} are allowed"
        for what, used, budget in (
            ("flash", found.flash, found.flash_budget),
            ("RAM", found.ram, found.ram_budget),
        )
        if 0 < budget < used
    ]
    if not over:
        return
    rows = footprint_rows(found)
    first, *sizes = (max(len(row[column]) for row in rows) for column in range(3))
    table = "\n".join(
        "  ".join((row[0].ljust(first), *map(str.rjust, row[1:3], sizes), row[3])).rstrip() for row in rows
    )
    raise CheckFailedError(
        f"{name} is too large for {device.name}: it needs {'at least ' if estimated else ''}"
        f"{' and '.join(over)}.",
        detail=table,
        hint=(f"--optimize size saves {human_bytes(growth)} of params. " if growth > 1024 else "")
        + f"Take a smaller model; or a larger chip, whose device file extends {device.name} and says "
        "`budget: {flash: ..., ram: ...}`.",
    )


def footprint_rows(found: Footprint) -> list[list[str]]:
    """The rows of a table: part, flash, RAM, note; the first row is the header."""

    def cell(value: int) -> str:
        return human_bytes(value) if value else ""

    rows = [["part", "flash", "RAM", ""]]
    rows += [[part.name, cell(part.flash), cell(part.ram), part.note] for part in found.parts]
    rows.append(["total", human_bytes(found.flash), human_bytes(found.ram), ""])
    used, allowed = (found.flash, found.ram), (found.flash_budget, found.ram_budget)
    if any(allowed):
        rows.append(["budget", *map(cell, allowed), ""])
    excess = [cell(max(0, most and n - most)) for n, most in zip(used, allowed, strict=True)]
    if any(excess):
        rows.append(["too much", *excess, ""])
    return rows
