"""What a kernel's threads do to memory, counted by the addresses that they access, without a GPU.

The CUDA C is compiled as C++ as for the shim (``templates/shim/``), with a call for each access to memory,
and a few blocks of a launch are run on the CPU: all, or the first, the last, and some between, whose counts
stand for the others. ``gpu_counts.c`` takes together what the 32 threads of a warp access at one place of the
program at the same time, and counts

- global memory: bytes that all threads ask for, and sectors of 32 bytes that each instruction of a warp
  touches, which is what its caches, or its memory, are asked for;
- shared memory: of each instruction the wavefronts in which 32 banks of 4 bytes serve it: the most different
  words in one bank. 16 bytes a thread are served for 8 threads at a time, 8 bytes for 16, 4 or less for all
  32, so the least is 4, 2, or 1 (CUDA C++ Programming Guide, shared memory of compute capability 5.x).

What a cache keeps is not known, nor what NVRTC makes of the text: clang decides which loads are one, and
which are vectors. Tensors are full of zeros: where a position is read of memory, it is 0. Threads that skip
an access in a loop are taken together with the others at their next one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from edgepack.resources import TEMPLATES
from edgepack.runners.cuda_shim import CUDA
from edgepack.runners.shim import Shim, ZigCc, compile_kernels

__all__ = ["Counter", "Counts"]

#: Blocks of a launch that are run, at most.
MOST_BLOCKS = 4

SECTOR_BYTES = 32

#: Loads that are one to NVRTC are one; a read before a write to the same place counts too. Conversions of
#: float16 are instructions.
_FLAGS = ("-O2", "-mf16c", "-mllvm", "-tsan-instrument-read-before-write=1")


@dataclass(frozen=True)
class Counts:
    """Of all blocks of a launch, as far as those that were run stand for the others.

    Attributes:
        requested: bytes of global memory that all threads load and store.
        sectors: bytes of the sectors that the instructions of warps touch, and ``stored_sectors`` those of
            stores among them.
        instructions: of warps, that load or store global memory.
        wavefronts: of accesses to shared memory, and ``least`` what they would be without conflicts.
    """

    requested: int
    sectors: int
    stored_sectors: int
    instructions: int
    wavefronts: int
    least: int

    @property
    def conflicts(self) -> float:
        """Wavefronts for each that is needed; 1 where no shared memory is used."""
        return self.wavefronts / self.least if self.least else 1.0


class Counter:
    """Compiled kernels.

    Args:
        source: CUDA C, as the back end writes it.
        folder: where they are compiled.

    Raises:
        ToolchainError: zig is missing, or does not take them.
    """

    def __init__(self, source: str, folder: Path) -> None:
        shim = Shim("gpu-counts", CUDA.title, CUDA.folder, CUDA.header, CUDA.suffix, "", 1 << 20, _FLAGS)
        build = ZigCc("x86_64", folder, "building the counter of a GPU's accesses")
        objects = compile_kernels(shim, [source], folder, build)
        library = folder / "counts.so"
        own = Path(__file__).with_name("gpu_counts.c")
        flags = ["-O2", "-fPIC", "-fvisibility=hidden", '-DSHIM_NAME="gpu-counts"', "-DSHIM_SHARED_BYTES=0"]
        link = [*ZigCc.LINK, "-shared", f"-I{TEMPLATES / 'shim' / 'common'}"]
        build(*flags, *link, own, *objects, "-lm", "-o", library)
        self._library = ctypes.CDLL(str(library))

    def counts(
        self,
        kernel: str,
        groups: Sequence[int],
        threads: Sequence[int],
        sizes: Sequence[int],
        most_blocks: int = MOST_BLOCKS,
    ) -> Counts:
        """What a launch accesses.

        Args:
            kernel: its name.
            groups: blocks in x, y and z, and ``threads`` of each.
            sizes: bytes of each tensor.
            most_blocks: that are run.
        """
        blocks = prod(groups)
        run = _spread(blocks, most_blocks)
        found = (ctypes.c_uint64 * 9)()
        known = self._library.gpu_count(
            kernel.encode(),
            (ctypes.c_uint32 * 3)(*groups),
            (ctypes.c_uint32 * 3)(*threads),
            (ctypes.c_uint64 * len(sizes))(*sizes),
            (ctypes.c_uint64 * len(run))(*run),
            ctypes.c_uint64(len(run)),
            found,
        )
        if not known:
            raise ValueError(f"there is no kernel {kernel}")
        all_blocks = [number * blocks // len(run) for number in found]
        loaded, stored, loads, stores, reading, writing, _, wavefronts, least = all_blocks
        sectors = (loads + stores) * SECTOR_BYTES
        return Counts(loaded + stored, sectors, stores * SECTOR_BYTES, reading + writing, wavefronts, least)


def _spread(blocks: int, most: int) -> list[int]:
    """Numbers of blocks, the first and the last among them."""
    if blocks <= most:
        return list(range(blocks))
    return [i * (blocks - 1) // (most - 1) for i in range(most)]
