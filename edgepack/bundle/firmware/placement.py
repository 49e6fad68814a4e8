"""Which memory of a microcontroller holds which params, and which the arena.

The arena goes to the nearest memory with room for it: every step reads and writes it, so that a byte of it is
used more often than one of any weight. Where none has room for all, the planner has parted it. Then each
tensor of params, those first of which a run reads a byte most often, goes to the nearest memory with room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgepack.config.device import Device
from edgepack.config.memories import FLASH, PIECE_BYTES, RAM, STACK_RESERVE, MemoryRegion
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.code_size import kernels_bytes
from edgepack.plan.constant_reads import constant_reads
from edgepack.plan.memories import ArenaBank, ParamsPiece, Placed
from edgepack.plan.types import ALIGNMENT, Constant, Plan
from edgepack.render.formatting import human_bytes

__all__ = ["CODE_RESERVE", "move_params", "place", "place_outside", "placed"]

#: Room that is kept in flash for the runtime, start code and what is called of the C library, in bytes.
CODE_RESERVE = 8 << 10
_UNLIMITED = 1 << 62


class _Room:
    """What is left of each memory, in bytes.

    Attributes:
        most: what a model may take of each.
        left: of that.
    """

    def __init__(self, plan: Plan, device: Device, code_bytes: int) -> None:
        tensors = sum(tensor.nbytes for tensor in (*plan.inputs, *plan.outputs))
        self.most = {one.name: one.size for one in device.memories}
        self.most |= {FLASH: device.budget.flash or _UNLIMITED, RAM: device.budget.ram or _UNLIMITED}
        kept = {FLASH: code_bytes + CODE_RESERVE, RAM: tensors + STACK_RESERVE}
        for one in device.memories:
            kept[one.name] = kept.get(one.name, 0) + (PIECE_BYTES if one.params else 0)
        self.left = {name: max(0, most - kept.get(name, 0)) for name, most in self.most.items()}

    def take(self, nbytes: int, *memories: str) -> bool:
        """Whether each of the memories has room, which is then taken."""
        if any(self.left[name] < nbytes for name in memories):
            return False
        for name in memories:
            self.left[name] -= nbytes
        return True

    def table(self, memories: Sequence[MemoryRegion]) -> str:
        """What a model may take of each memory, and what of it is left."""
        rows = [["memory", "allowed", "left"]]
        for one in memories:
            limited = self.most[one.name] < _UNLIMITED
            sizes = (self.most[one.name], self.left[one.name]) if limited else ()
            rows.append([one.name, *(map(human_bytes, sizes) if limited else ("not limited", ""))])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))).rstrip()
            for row in rows
        )


def place(plan: Plan, device: Device, code_bytes: int) -> tuple[tuple[ArenaBank, ...], list[int]]:
    """The memories of the arena, and for each constant the index of its memory.

    Args:
        code_bytes: of the model's kernels, which lie in flash.

    Raises:
        CheckFailedError: something has room nowhere.
    """
    room = _Room(plan, device, code_bytes)
    banks = _arena_banks(plan, room, device)
    held = {i: one for i, one in enumerate(device.memories) if one.params}
    reads, alignment = constant_reads(plan), device.cpu_target().data_alignment
    places, missing = [-1] * len(plan.constants), 0
    for index in sorted(range(len(places)), key=lambda i: (-reads[i], i)):
        nbytes = _aligned(plan.constants[index].nbytes, alignment)
        for memory, one in held.items():
            if room.take(nbytes, *filter(None, (one.name, one.loaded_from))):
                places[index] = memory
                break
        else:
            missing += nbytes
    if missing:
        what = f"{human_bytes(missing)} of its {human_bytes(plan.params_bytes)} of params have no room"
        raise _no_room(what, plan, device, room, list(held.values()))
    return banks, places


def place_outside(plan: Plan, device: Device, kernels: Path, file_bytes: int) -> Placed:
    """Where everything lies of a model whose params are one file beside the image: in the nearest memory for
    params that does not forget them.

    Args:
        kernels: the object of the model's kernels.
        file_bytes: of the params file.

    Raises:
        CheckFailedError: something has room nowhere.
    """
    room = _Room(plan, device, kernels_bytes(kernels))
    banks = _arena_banks(plan, room, device)
    lasting = [one for one in device.memories if one.params and not one.loaded_from]
    for one in lasting:
        if room.take(file_bytes, one.name):
            return Placed((ParamsPiece(one.name, one.params, 0, plan.params_bytes),), banks)
    what = f"{human_bytes(file_bytes)} of params in one file have no room"
    raise _no_room(what, plan, device, room, lasting)


def placed(plan: Plan, device: Device, code_bytes: int) -> Placed:
    """Where everything would lie, without the params data; arguments and errors as for :func:`place`."""
    banks, places = place(plan, device, code_bytes)
    sizes = [0] * len(device.memories)
    for constant, memory in zip(plan.constants, places, strict=True):
        sizes[memory] += constant.nbytes
    return Placed(
        tuple(
            ParamsPiece(one.name, one.params, 0, nbytes, one.loaded_from)
            for one, nbytes in zip(device.memories, sizes, strict=True)
            if nbytes
        ),
        banks,
    )


def _arena_banks(plan: Plan, room: _Room, device: Device) -> tuple[ArenaBank, ...]:
    """Where the arena lies. CheckFailedError where it has room nowhere."""
    fit = [one for one in device.memories if one.arena]
    banks = _banks_with_room(plan, room, fit)
    if not banks:
        what = f"its arena needs {human_bytes(plan.arena.nbytes)} in whole buffers"
        raise _no_room(what, plan, device, room, fit)
    return banks


def _banks_with_room(plan: Plan, room: _Room, memories: Sequence[MemoryRegion]) -> tuple[ArenaBank, ...]:
    """The arena whole in the nearest memory with room, or as it was planned for several; () for nowhere."""
    if plan.arena.banks:
        taken = zip(memories, plan.arena.banks, strict=False)  # the last ones may not be needed
        found = [
            ArenaBank(one.name, one.arena, nbytes) for one, nbytes in taken if room.take(nbytes, one.name)
        ]
        return tuple(found) if len(found) == len(plan.arena.banks) else ()
    for one in memories:
        if room.take(plan.arena.nbytes, one.name):
            return (ArenaBank(one.name, one.arena, plan.arena.nbytes),)
    return ()


def move_params(plan: Plan, device: Device, kernels: Path, data: Path, output: Path) -> tuple[Plan, Placed]:
    """Sort the params data by memory, the farthest first, so that what a memory holds is one piece of them.

    Args:
        kernels: the object of the model's kernels.
        data: the params data as the plan has them.
        output: where the sorted data go.

    Returns:
        the plan with its constants at their new places, and where everything lies.

    Raises:
        CheckFailedError: something has room nowhere.
    """
    banks, places = place(plan, device, kernels_bytes(kernels))
    alignment = device.cpu_target().data_alignment
    constants: list[Constant] = list(plan.constants)
    pieces: list[ParamsPiece] = []
    with data.open("rb") as source, output.open("wb") as out:
        for memory in sorted(set(places) or {_lasting(device)}, reverse=True):
            one = device.memories[memory]
            out.write(bytes(-out.tell() % ALIGNMENT))
            begin = out.tell()
            if pieces:  # the zeros between two pieces belong to the first
                pieces[-1] = replace(pieces[-1], nbytes=begin - pieces[-1].offset)
            for index in (i for i, at in enumerate(places) if at == memory):
                out.write(bytes(-out.tell() % alignment))
                source.seek(constants[index].offset)
                constants[index] = replace(constants[index], offset=out.tell())
                out.write(source.read(constants[index].nbytes))
            pieces.append(ParamsPiece(one.name, one.params, begin, out.tell() - begin, one.loaded_from))
        nbytes = out.tell()
    moved = replace(plan, constants=tuple(constants), params_bytes=nbytes)
    return moved, Placed(tuple(pieces), banks)


def _lasting(device: Device) -> int:
    """Index of the memory for the header of params that are empty: the nearest that is no RAM, if any is."""
    held = [i for i, one in enumerate(device.memories) if one.params]
    return min(held, key=lambda i: (device.memories[i].volatile, i))


def _aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    return -(-nbytes // alignment) * alignment


def _no_room(
    what: str, plan: Plan, device: Device, room: _Room, memories: Sequence[MemoryRegion]
) -> CheckFailedError:
    left = ", ".join(f"{human_bytes(room.left[one.name])} in {one.name}" for one in memories)
    return CheckFailedError(
        f"{plan.name} is too large for the memories of {device.name}: {what}, and {left} are left.",
        detail=room.table(device.memories),
        hint="Take a smaller model, or give a memory more room: `memories` in the device's file say what a "
        "model may take of each, and `budget` does for flash and ram.",
    )
