"""What work items of a group may take together: how large a schedule that is given may be.

What rules choose themselves stays within the device's group size and shared memory; a schedule that is given
has to, and its numbers must fit the registers too, as far as that is known before a compiler has seen it.
"""

from __future__ import annotations

from edgepack.compiler.kernels.schedule import ScheduleError, by
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["check_group", "check_power", "check_registers"]

#: Registers of 32 bits of a thread at most, and of a multiprocessor; fewer on Jetson Nano and TX2 (CUDA C++
#: Programming Guide, "Technical Specifications per Compute Capability").
_THREAD, _BLOCK, _SMALL_BLOCK, _SMALL = 255, 65536, 32768, (53, 62)

#: What other GPUs are taken to have for each work item.
_OTHERS = 128

#: Registers for addresses and counters.
_POSITIONS = 32


def check_group(threads: int, local_bytes: int, target: GpuTarget) -> None:
    """ScheduleError where a group has more work items, or shares more memory, than the device allows."""
    if not 1 <= threads <= target.group_size:
        raise ScheduleError(f"{threads} work items in a group of at most {target.group_size}")
    if local_bytes > target.local_bytes:
        raise ScheduleError(f"{local_bytes} bytes of shared memory of {target.local_bytes}")


def check_registers(numbers: int, threads: int, target: GpuTarget) -> None:
    """ScheduleError where a work item holds more numbers of 32 bits than registers are left for them."""
    have = _OTHERS
    if target.api == "cuda":
        small = any(capability in _SMALL for capability in target.capabilities)
        have = min(_THREAD, (_SMALL_BLOCK if small else _BLOCK) // threads)
    if numbers > have - _POSITIONS:
        raise ScheduleError(f"{numbers} numbers of a work item in {have} registers")


def check_power(name: str, *numbers: int) -> None:
    """ScheduleError where a number is no power of two."""
    if any(number < 1 or number & (number - 1) for number in numbers):
        raise ScheduleError(f"{name} {by(numbers)}, which has to be of powers of two")
