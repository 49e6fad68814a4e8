"""The emulator's board of a device: its own part of the linker script, and the places in its memories where
params lie that are not in the firmware's image (``--params caller``).

A device writes new params beside those in use, so a board has two places. The first is at the end of its
flash; the second, which only the example looks at, is a part of its memory for test data.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from edgepack.config.device import Device
from edgepack.config.memories import FLASH
from edgepack.errors import CheckFailedError
from edgepack.render.formatting import human_bytes
from edgepack.resources import TEMPLATES

__all__ = ["BOARDS", "PAGE", "Places", "board_script", "machine", "places_on_board"]

#: The boards' parts of linker scripts, one a board.
BOARDS = TEMPLATES / "firmware" / "boards"

#: A place begins at a multiple of this, and has as many bytes: what usual flash erases at once.
PAGE = 4096
_REGION = re.compile(r"^ *(FLASH|TEST) *\(.*ORIGIN = (0x[0-9a-fA-F]+), *LENGTH = ([0-9]+)M", re.MULTILINE)


class Places(NamedTuple):
    """Addresses of the board's two places for params.

    Attributes:
        nbytes: of each.
        flash: whether the first is in the image's own flash.
    """

    first: int
    second: int
    nbytes: int
    flash: bool


def machine(device: Device) -> str:
    """The board's name; "" if the device names none."""
    return str(device.runner.options.get("machine", ""))


def board_script(device: Device) -> Path:
    """The board's own part of the script, which may not be there."""
    return BOARDS / f"{machine(device)}.ld"


def places_on_board(device: Device, file_bytes: int, memory: str) -> Places:
    """Where the board of the emulator has the params.

    Args:
        file_bytes: of the params file, at most.
        memory: that keeps them.

    Raises:
        CheckFailedError: the board has no room.
    """
    board = board_script(device).read_text(encoding="utf-8")
    regions = {name: (int(begin, 16), int(size) << 20) for name, begin, size in _REGION.findall(board)}
    nbytes = -(-file_bytes // PAGE) * PAGE
    (flash, flash_bytes), (test, test_bytes) = regions["FLASH"], regions["TEST"]
    middle, end = test + test_bytes // 2, test + test_bytes
    in_flash = memory == FLASH
    first = flash + flash_bytes - nbytes if in_flash else middle
    second = middle if in_flash else middle + nbytes
    if second + nbytes > end or first < flash:
        raise CheckFailedError(
            f"The board {machine(device)} has no room for two times {human_bytes(nbytes)} of params.",
            hint="Leave --params out: the params go into the image.",
        )
    return Places(first, second, nbytes, in_flash)
