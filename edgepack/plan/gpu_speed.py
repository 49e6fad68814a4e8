"""How fast a GPU is, and the way to its memory: numbers for estimates of where an operator is computed.

What a device's file does not say is that of a common GPU of its kind, and of the slower ones. Bandwidths,
peaks, rates of copies and the time until a kernel starts are what clpeak measured on them
(github.com/krrishnarraj/clpeak, ``results/``), but where a source is named.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GpuSpeed", "usual_speed"]


@dataclass(frozen=True)
class GpuSpeed:
    """Rates and fixed times of a GPU.

    Attributes:
        bandwidth: of its memory, in GB/s (10^9 bytes).
        peak: float32 operations, a multiply-add counted as two, in 10^9 a second.
        launch: from one kernel to the next where nothing waits, in microseconds.
        copy: what a copy from or to the process's memory takes beside its bytes, waiting for the GPU
            included, in microseconds.
        link: of such copies, in GB/s.
    """

    bandwidth: float
    peak: float
    launch: float
    copy: float
    link: float


#: A GeForce RTX 2080. Launches are nodes of a graph: 3.4 microseconds for a kernel of 2.9, and 9.6 where each
#: is waited for (developer.nvidia.com/blog/cuda-graphs).
_CARD = GpuSpeed(390, 11_200, launch=1, copy=10, link=6)

#: NVIDIA's Jetsons, by the least compute capability: Orin Nano (data sheet: 68 GB/s, 1024 cores at 625 MHz),
#: Xavier NX (data sheet: 59.7 GB/s, 384 cores at 1.1 GHz), Nano. CPU and GPU share the memory. clpeak
#: measured the Nano alone; the others' copies are assumed.
_JETSONS = (
    (80, GpuSpeed(68, 1280, launch=2, copy=20, link=10)),
    (70, GpuSpeed(59.7, 845, launch=3, copy=25, link=8)),
    (0, GpuSpeed(20, 230, launch=5, copy=33, link=0.7)),
)

#: Graphics of a PC's CPU, the Intel UHD 620; of a phone, the Adreno 530. Launches in a queue are assumed.
_PC_GRAPHICS = GpuSpeed(29, 436, launch=5, copy=35, link=11)
_PHONE_GRAPHICS = GpuSpeed(20, 250, launch=20, copy=300, link=9)

#: Apple's M1, and half of it for the A14. That a command buffer is waited for takes up to 2.5 milliseconds
#: (Metal Performance Shaders, "Tuning Hints"); 200 microseconds are assumed.
_MAC = GpuSpeed(60, 1210, launch=2, copy=200, link=24)
_IPHONE = GpuSpeed(30, 605, launch=2, copy=200, link=12)


def usual_speed(api: str, triple: str, capabilities: tuple[int, ...] = ()) -> GpuSpeed:
    """The speed of a common GPU of a kind.

    Args:
        triple: of the CPU beside it, as LLVM names it.
        capabilities: of NVIDIA's GPUs, the compute capabilities, 10 * major + minor.
    """
    x86 = triple.startswith("x86")
    if api == "cuda":
        least = min(capabilities, default=0)
        return _CARD if x86 else next(speed for since, speed in _JETSONS if least >= since)
    if api == "metal":
        return _IPHONE if "-ios" in triple else _MAC
    return _PC_GRAPHICS if x86 else _PHONE_GRAPHICS
