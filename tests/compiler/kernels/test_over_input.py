"""Outputs that lie over inputs: a kernel that goes over the pixels in order reads nothing that it has written
over."""

from __future__ import annotations

import random

import numpy as np
import pytest

from edgepack.compiler.kernels.cpu.conv.over_input import PixelOrder


class Window:
    """A window of one image, whose results are sums of what it has of the image, modulo 256."""

    def __init__(self, rng: random.Random) -> None:
        self.size = rng.randint(1, 4), rng.randint(1, 4)
        self.strides = rng.randint(1, 3), rng.randint(1, 3)
        self.pads = rng.randint(0, self.size[0] - 1), rng.randint(0, self.size[1] - 1)
        self.image = rng.randint(3, 9), rng.randint(3, 9)
        self.output = rng.randint(2, 7), rng.randint(2, 7)
        self.channels = rng.choice([1, 3, 4]), rng.choice([1, 2, 4, 9])

    def order(self) -> PixelOrder:
        return PixelOrder(self.image, self.output, self.pads, self.strides, *self.channels)

    def result(self, memory: np.ndarray, at: int, pixel: int) -> np.ndarray:
        """A pixel of the output; the image begins at ``at``."""
        (height, width), (cin, cout) = self.image, self.channels
        image = memory[at : at + height * width * cin].reshape(height, width, cin)
        y, x = divmod(pixel, self.output[1])
        total = 0
        for i in range(self.size[0]):
            for j in range(self.size[1]):
                row, column = y * self.strides[0] - self.pads[0] + i, x * self.strides[1] - self.pads[1] + j
                if 0 <= row < height and 0 <= column < width:
                    total += int(image[row, column].sum()) * (i * 7 + j + 1)
        return ((total + np.arange(cout)) % 256).astype(np.uint8)

    def run(self, tile: int, distance: int) -> np.ndarray:
        """The output, ``distance`` bytes behind the image's beginning, of a kernel with such tiles; 0: one
        that stores a part of a pixel, and computes it anew before it stores the next."""
        rng = np.random.default_rng(1)
        pixels, cout = self.output[0] * self.output[1], self.channels[1]
        memory = rng.integers(0, 256, 4096, np.uint8)
        at, y = 2048, 2048 + distance
        size = min(tile, pixels) or 1
        for tile_number in range(-(-pixels // size)):
            first = min(tile_number * size, pixels - size)
            if not tile:
                for channel in range(cout):
                    memory[y + first * cout + channel] = self.result(memory, at, first)[channel]
                continue
            made = [self.result(memory, at, first + i) for i in range(size)]
            memory[y + first * cout : y + (first + size) * cout] = np.concatenate(made)
        return memory[y : y + pixels * cout].copy()


@pytest.mark.parametrize("tile", [0, 1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_what_lies_over_the_input_is_right(tile: int, seed: int) -> None:
    window = Window(random.Random(seed))
    most = window.order().most(tile or 1, again=not tile)
    far = window.run(tile, -1500)
    for distance in (most, most - 1, most - 17):
        np.testing.assert_array_equal(window.run(tile, distance), far)


def test_no_window_lies_farther_than_it_has_to() -> None:
    """One byte behind what is said, results are wrong."""
    wrong = 0
    for seed in range(20):
        window = Window(random.Random(seed))
        pixels = window.output[0] * window.output[1]
        most = window.order().most(1)
        wrong += not np.array_equal(window.run(1, most + 1), window.run(1, -1500)) or pixels == 1
    assert wrong >= 10
