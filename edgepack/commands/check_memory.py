"""Whether a microcontroller has room for a model, as far as that is known before anything is linked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgepack.bundle.firmware.budget import check_budget, estimate
from edgepack.bundle.firmware.placement import CODE_RESERVE, placed
from edgepack.bundle.manifest import Footprint
from edgepack.config.device import Device
from edgepack.config.memories import FLASH, RAM
from edgepack.errors import CheckFailedError
from edgepack.plan.model_check import CheckedMemory, ModelCheck
from edgepack.plan.types import Plan
from edgepack.render.formatting import human_bytes

__all__ = ["with_memory"]

#: What start code, the runtime and the C library's functions may take of flash, and a run's stack and the
#: library's variables of RAM: with less than that left, only a pack knows.
_UNKNOWN = {"flash": CODE_RESERVE, "RAM": 1 << 10}


def with_memory(found: ModelCheck, plan: Plan, code_bytes: int, device: Device) -> ModelCheck:
    """The check of a model for a microcontroller, with what it takes of each memory, and whether it fits.

    Args:
        code_bytes: of the model's kernels, 0 where that is not known.
    """
    plan = replace(plan, name=Path(found.model).stem)
    try:
        where = placed(plan, device, code_bytes) if device.memories else None
        footprint = estimate(plan, code_bytes, device, where)
    except CheckFailedError as error:  # of several memories none has room
        return replace(found, fits=False, message=error.message, hint=error.hint)
    found = replace(found, memories=tuple(_memories(footprint)))
    try:
        check_budget(footprint, plan.name, device, growth=plan.params_growth, estimated=True)
    except CheckFailedError as error:
        return replace(found, fits=False, message=error.message, hint=error.hint)
    limited = [memory for memory in found.memories if memory.budget]
    if not limited:
        return found
    # Where several memories are filled, room for the unknown has been left.
    tight = [] if where else [one for one in limited if one.budget - one.nbytes < _UNKNOWN.get(one.name, 0)]
    if not tight:
        return replace(found, fits=True)
    left = " and ".join(f"{human_bytes(one.budget - one.nbytes)} of {one.name}" for one in tight)
    text = (
        f"{left} {'is' if len(tight) == 1 else 'are'} left for what is known when it is packed (start code, "
        f"the C library, the stack): a pack may find {plan.name} too large for {device.name}"
    )
    return replace(found, warnings=(*found.warnings, text))


def _memories(footprint: Footprint) -> Iterator[CheckedMemory]:
    """What is taken of each memory, by part."""
    flash = {part.name: part.flash for part in footprint.parts if part.flash}
    ram = {part.name: part.ram for part in footprint.parts if part.ram}
    yield CheckedMemory(FLASH, flash, footprint.flash, footprint.flash_budget)
    yield CheckedMemory(RAM.upper(), ram, footprint.ram, footprint.ram_budget)
    for one in footprint.memories:
        parts = {part.name: part.memories[one.name] for part in footprint.parts if one.name in part.memories}
        yield CheckedMemory(one.name, parts, one.used, one.budget)
