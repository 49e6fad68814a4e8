"""Which memory of a microcontroller holds which params, and which the intermediate results.

The intermediate results go to the nearest memory in which they have room: every step reads and writes
them, so a byte of theirs is used more often than one of any weight. Then each tensor of params, those first
of which a run reads a byte most often, goes to the nearest memory with room for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgepack.config.device import Device
from edgepack.config.memories import FLASH, RAM, MemoryRegion
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.code_size import section_bytes
from edgepack.plan.constant_reads import constant_reads
from edgepack.plan.memories import ParamsPiece, Placed
from edgepack.plan.types import ALIGNMENT, Constant, Plan
from edgepack.render.formatting import human_bytes

__all__ = ["move_params", "place"]

#: Room that is kept in flash for the runtime, start code and what is called of the C library, and in RAM for
#: the stack and variables, where these share it with the model: bytes.
CODE_RESERVE, STACK_RESERVE = 8 << 10, 4 << 10
#: Header or id before a piece of params, and alignment: bytes.
_PIECE_BYTES = 128 + ALIGNMENT


class _Room:
    """What is left of each memory, in bytes."""

    def __init__(self, plan: Plan, device: Device, code_bytes: int) -> None:
        inputs_and_outputs = sum(tensor.nbytes for tensor in (*plan.inputs, *plan.outputs))
        self.left = {one.name: one.size for one in device.memories}
        for name, most, taken in (
            (FLASH, device.budget.flash, code_bytes + CODE_RESERVE),
            (RAM, device.budget.ram, inputs_and_outputs + STACK_RESERVE),
        ):
            self.left[name] = max(0, most - taken) if most else 1 << 62  # 0: not limited
        for one in device.memories:
            if one.params:
                self.left[one.name] = max(0, self.left[one.name] - _PIECE_BYTES)

    def take(self, nbytes: int, *memories: str) -> bool:
        """Whether each of the memories has room, which is then taken."""
        if any(self.left[name] < nbytes for name in memories):
            return False
        for name in memories:
            self.left[name] -= nbytes
        return True


def place(plan: Plan, device: Device, code_bytes: int) -> tuple[MemoryRegion, list[int]]:
    """The memory of the intermediate results, and for each constant the index of its memory.

    Args:
        code_bytes: of the model's kernels, which lie in flash.

    Raises:
        CheckFailedError: something has room nowhere.
    """
    room = _Room(plan, device, code_bytes)
    fit = [one for one in device.memories if one.arena]
    size = _aligned(plan.arena.nbytes)
    arena = next((one for one in fit if room.take(size, one.name)), None)
    if arena is None:
        what = f"no memory has room for the {human_bytes(size)} of its arena, which is in one piece"
        raise _no_room(what, plan, device, room, fit)
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
        what = f"{human_bytes(missing)} of its {human_bytes(plan.params_bytes)} of params have room nowhere"
        raise _no_room(what, plan, device, room, list(held.values()))
    return arena, places


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
    arena, places = place(plan, device, section_bytes(kernels).get(".text", 0))
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
    return moved, Placed(tuple(pieces), arena.name, arena.arena)


def _lasting(device: Device) -> int:
    """Index of the memory for the header of params that are empty: the nearest that is no RAM, if any is."""
    held = [i for i, one in enumerate(device.memories) if one.params]
    return min(held, key=lambda i: (device.memories[i].volatile, i))


def _aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    return -(-nbytes // alignment) * alignment


def _no_room(
    what: str, plan: Plan, device: Device, room: _Room, memories: Sequence[MemoryRegion]
) -> CheckFailedError:
    left = ", ".join(f"{one.name} {human_bytes(room.left[one.name])}" for one in memories)
    return CheckFailedError(
        f"{plan.name} is too large for the memories of {device.name}: {what} (left: {left}).",
        hint="Take a smaller model, or give a memory more room: `memories` in the device's file say what a "
        "model may take of each, and `budget` does for flash and ram.",
    )
