"""Writes recorded frames for the loop: ``python frames.py WIDTH HEIGHT COUNT FILE``.

Grey stripes that move: vertical ones in the first half, horizontal ones after it. I420, limited range, as
a camera for video gives them: a plane of brightness, then two of colour with a quarter of the pixels each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def frame(width: int, height: int, number: int, *, vertical: bool) -> bytes:
    """The bytes of one frame; stripes are a sixteenth of its width and move by a pixel with each."""
    rows, columns = np.mgrid[:height, :width]
    place = (columns if vertical else rows) + number
    brightness = np.where(place // (width // 16) % 2, 190, 60).astype("u1")
    return brightness.tobytes() + bytes([128]) * (2 * (width // 2) * (height // 2))


if __name__ == "__main__":
    width, height, count = map(int, sys.argv[1:4])
    with Path(sys.argv[4]).open("wb") as file:
        for number in range(count):
            file.write(frame(width, height, number, vertical=number < count // 2))
