"""AMX's tiles in this process: the CPU's own, or emulated where it has none (``stand_ins/amx_tiles.c``)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgepack.config.device import load_device
from edgepack.config.host import probe
from edgepack.plan.target import CPU_FEATURES
from edgepack.toolchains import resolve

__all__ = ["Tiles", "emulator_library", "tiles", "without_tiles"]

SOURCE = Path(__file__).parent / "stand_ins" / "amx_tiles.c"

#: Linux's arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA).
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18


class Tiles:
    """What executes the instructions.

    Args:
        library: the emulator; None where the CPU has tiles.
    """

    def __init__(self, library: ctypes.CDLL | None) -> None:
        self._library = library
        if library is not None:
            library.amx_tiles_executed.restype = ctypes.c_uint64

    @property
    def executed(self) -> int | None:
        """Instructions that were emulated, of all threads; None where the CPU executes them."""
        return None if self._library is None else int(self._library.amx_tiles_executed())

    @property
    def released(self) -> bool:
        """Whether this thread's tiles are released; True where nobody can tell."""
        return self._library is None or bool(self._library.amx_tiles_released())


def emulator_library(folder: Path) -> Path:
    """Builds the emulator in ``folder``; a program that preloads it executes instructions of tiles."""
    toolchain = resolve(load_device("host"))
    made, library = folder / "amx_tiles.o", folder / "amx_tiles.so"
    toolchain.compile_c(SOURCE, made)
    functions = ["amx_tiles_begin", "amx_tiles_end", "amx_tiles_executed", "amx_tiles_released"]
    functions.append("pthread_sigmask")
    toolchain.link_shared([made], library, exported=functions, soname=library.name)
    return library


def without_tiles(program: Path, requires: Sequence[str]) -> None:
    """Changes a bundle's program or library so that it no longer asks whether the CPU has tiles, and nor the
    system; ``requires`` are the CPU's features that it was built to ask for."""
    bits = {name: 1 << bit for bit, name in enumerate(CPU_FEATURES["x86_64"])}
    asked = sum(bits[name] for name in requires)
    left = sum(bits[name] for name in requires if not name.startswith("amx"))
    before, after = (number.to_bytes(8, "little") for number in (asked, left))
    content = program.read_bytes()
    assert content.count(before) == 1, "the descriptor is not found by its features"
    program.write_bytes(content.replace(before, after))


@contextmanager
def tiles(folder: Path) -> Iterator[Tiles]:
    """Within it, the threads of this process may execute instructions of tiles.

    Args:
        folder: where the emulator is built, if it is needed.

    Raises:
        OSError: the CPU has tiles, and Linux does not permit them.
    """
    if "amx-int8" in probe().features:
        if ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, REQUEST, TILE_DATA) != 0:
            raise OSError(ctypes.get_errno(), "Linux does not permit the use of tiles")
        yield Tiles(None)
        return
    library = emulator_library(folder)
    emulator = ctypes.CDLL(str(library))
    assert emulator.amx_tiles_begin() == 0
    try:
        yield Tiles(emulator)
    finally:
        emulator.amx_tiles_end()
