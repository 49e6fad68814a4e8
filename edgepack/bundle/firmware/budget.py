"""How much flash and RAM a model takes in firmware, by part, and whether that is within the device's budget.

The parts are sections of a linked image that holds the model, the start code and nothing else
(``templates/firmware/example.c.j2``, ``sections.ld.j2``), so what the linker dropped is not counted, and what
it took from libraries is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgepack.bundle.manifest import Footprint, FootprintMemory, FootprintPart
from edgepack.config.device import Device
from edgepack.config.memories import FLASH, RAM
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.code_size import section_bytes
from edgepack.objectfiles.elf.stack_depth import METHOD, stack_bytes
from edgepack.plan.memories import Placed
from edgepack.plan.types import Plan
from edgepack.render.formatting import human_bytes
from edgepack.render.params_file import params_file_bytes

__all__ = ["check_budget", "estimate", "footprint_rows", "measure"]

#: A part of an estimate: what the example of a measured image has as ``data``. States are inputs and outputs.
_TENSORS = "inputs and outputs"

#: Part -> the sections that it is, and a note.
_PARTS = {
    "kernels": ((".kernels",), ""),
    "runtime": ((".runtime",), "what calls the kernels"),
    "params": ((".params",), ""),
    "start and library": ((".vectors", ".text", ".copies"), "start code, what is called of the C library"),
    "arena": ((".arena",), "intermediate results"),
    "data": ((".data", ".bss"), "the example's inputs and outputs, the library's variables"),
}
#: The note of params that are not in the image.
OUTSIDE = "one place beside the image; a second one takes as much"
_INITIALISED = ".data"
_IN_RAM = {".data", ".bss"}


def measure(image: Path, device: Device, placed: Placed | None = None, *, outside: bool = False) -> Footprint:
    """What a linked image takes of a device's flash, RAM and other memories, by part.

    Args:
        placed: where params and arena lie; None: in flash and RAM.
        outside: the params are one file beside the image; the example's image brings them along.
    """
    sizes = section_bytes(image)
    arena = RAM if placed is None else placed.banks[0].memory

    def part(name: str, sections: Sequence[str], note: str) -> FootprintPart:
        used: Counter[str] = Counter()
        for section in sections:
            memory = arena if section == ".arena" else RAM if section in _IN_RAM else FLASH
            if outside and section == ".params" and placed is not None:
                memory = placed.pieces[0].memory
            for one in (memory, FLASH) if section == _INITIALISED else (memory,):
                used[one] += sizes.get(section, 0)
        if name == "arena" and placed is not None:
            for bank in placed.banks[1:]:
                used[bank.memory] += sizes.get(f".arena.{bank.memory}", 0)
        if name == "params" and placed is not None and not outside:
            for piece in placed.pieces:
                for memory in filter(None, (piece.memory, piece.loaded_from)):
                    used[memory] += sizes.get(f".params.{piece.memory}", 0)
        return _part(name, used, note)

    notes = {"params": OUTSIDE} if outside else {}
    parts = [part(name, names, notes.get(name, note)) for name, (names, note) in _PARTS.items()]
    parts.append(FootprintPart(name="stack", flash=0, ram=stack_bytes(image), note=METHOD))
    return _footprint(parts, device)


def estimate(plan: Plan, code_bytes: int, device: Device, placed: Placed | None = None) -> Footprint:
    """The largest parts before anything is linked: no image can be smaller.

    Args:
        code_bytes: of the model's kernels, 0 where that is not known.
        placed: where params and arena lie; None: in flash and RAM.
    """
    params_bytes = params_file_bytes(plan, listed=False)
    tensors = sum(tensor.nbytes for tensor in (*plan.inputs, *plan.outputs))
    params = Counter({FLASH: params_bytes} if placed is None else {})
    for piece in () if placed is None else placed.pieces:
        for memory in filter(None, (piece.memory, piece.loaded_from)):
            params[memory] += piece.nbytes
    banks = () if placed is None else placed.banks
    arena = {bank.memory: bank.nbytes for bank in banks} or {RAM: plan.arena.nbytes}
    return _footprint(
        [
            FootprintPart(name="kernels", flash=code_bytes, ram=0, note=""),
            _part("params", params, ""),
            _part("arena", arena, "intermediate results"),
            FootprintPart(name=_TENSORS, flash=0, ram=tensors, note=""),
        ],
        device,
    )


def _part(name: str, used: Mapping[str, int], note: str) -> FootprintPart:
    """A part of an image by what it takes of each memory."""
    others = {memory: nbytes for memory, nbytes in used.items() if memory not in {FLASH, RAM} and nbytes}
    return FootprintPart(
        name=name, flash=used.get(FLASH, 0), ram=used.get(RAM, 0), note=note, memories=others
    )


def _footprint(parts: Sequence[FootprintPart], device: Device) -> Footprint:
    others = [one for one in device.memories if one.name not in {FLASH, RAM}]
    return Footprint(
        parts=tuple(parts),
        flash=sum(part.flash for part in parts),
        ram=sum(part.ram for part in parts),
        flash_budget=device.budget.flash,
        ram_budget=device.budget.ram,
        memories=tuple(
            FootprintMemory(
                name=one.name, used=sum(part.memories.get(one.name, 0) for part in parts), budget=one.size
            )
            for one in others
        ),
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
            *((one.name, one.used, one.budget) for one in found.memories),
        )
        if 0 < budget < used
    ]
    if not over:
        return
    rows = footprint_rows(found)
    first, *sizes = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1])
    table = "\n".join(
        "  ".join((row[0].ljust(first), *map(str.rjust, row[1:-1], sizes), row[-1])).rstrip() for row in rows
    )
    raise CheckFailedError(
        f"{name} is too large for {device.name}: it needs {'at least ' if estimated else ''}"
        f"{' and '.join(over)}.",
        detail=table,
        hint=(f"{alone}. " if (alone := "; ".join(_alone(found))) else "")
        + (f"--optimize size saves {human_bytes(growth)} of params. " if growth > 1024 else "")
        + f"Take a smaller model; or a larger chip, whose device file extends {device.name} and says "
        "`budget: {flash: ..., ram: ...}`.",
    )


def _alone(found: Footprint) -> Iterator[str]:
    """Each part of an image for which flash or RAM has no room if it held nothing else, in words."""
    for what, budget, used in (
        ("flash", found.flash_budget, {part.name: part.flash for part in found.parts}),
        ("RAM", found.ram_budget, {part.name: part.ram for part in found.parts}),
    ):
        for name, nbytes in used.items():
            if 0 < budget < nbytes:
                yield f"{human_bytes(nbytes)} of {what} go to {name} alone"


def footprint_rows(found: Footprint) -> list[list[str]]:
    """The rows of a table: part, flash, RAM, other memories, note; the first row is the header."""

    def cell(value: int) -> str:
        return human_bytes(value) if value else ""

    names = [one.name for one in found.memories]
    rows = [["part", "flash", "RAM", *names, ""]]
    for part in found.parts:
        sizes = (part.flash, part.ram, *(part.memories.get(name, 0) for name in names))
        rows.append([part.name, *map(cell, sizes), part.note])
    used = (found.flash, found.ram, *(one.used for one in found.memories))
    allowed = (found.flash_budget, found.ram_budget, *(one.budget for one in found.memories))
    rows.append(["total", *map(human_bytes, used), ""])
    if any(allowed):
        rows.append(["budget", *map(cell, allowed), ""])
    excess = [cell(max(0, most and n - most)) for n, most in zip(used, allowed, strict=True)]
    if any(excess):
        rows.append(["too much", *excess, ""])
    return rows
