"""Writes tables.h, the constants of features.c: ``python tables.py tables.h``.

Definitions are TensorFlow's: hann_window (periodic), linear_to_mel_weight_matrix (40 bands from 20 to 4000
Hz, of the 257 bins of 512 points at 16 kHz), mfccs_from_log_mel_spectrograms (the first 10).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path

FRAME, POINTS, RATE, MELS, COEFFICIENTS = 480, 512, 16000, 40, 10
LOWEST, HIGHEST = 20.0, 4000.0


def mel(hertz: float) -> float:
    return 1127.0 * math.log(1.0 + hertz / 700.0)


def bands() -> list[tuple[int, list[float]]]:
    """The first bin of each band that is not zero, and the weights from it on."""
    low, high = mel(LOWEST), mel(HIGHEST)
    edges = [low + (high - low) * i / (MELS + 1) for i in range(MELS + 2)]
    bins = [mel(RATE / 2 * i / (POINTS // 2)) for i in range(POINTS // 2 + 1)]
    found = []
    for left, middle, right in zip(edges[:-2], edges[1:-1], edges[2:], strict=True):
        slopes = [min((x - left) / (middle - left), (right - x) / (right - middle)) for x in bins]
        inside = [i for i in range(1, len(bins)) if slopes[i] > 0]
        found.append((inside[0] if inside else 1, [slopes[i] for i in inside]))
    return found


def array(kind: str, name: str, values: Iterable[float]) -> str:
    numbers = [str(value) if kind != "float" else f"{value:.9e}F" for value in values]
    lines = [", ".join(numbers[i : i + 6]) for i in range(0, len(numbers), 6)]
    return f"static const {kind} {name}[{len(numbers)}] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main() -> None:
    filters = bands()
    angles = [2 * math.pi * i / POINTS for i in range(POINTS // 2)]
    cosines = [
        math.sqrt(2 / MELS) * math.cos(math.pi * k * (n + 0.5) / MELS)
        for k in range(COEFFICIENTS)
        for n in range(MELS)
    ]
    parts = [
        "/* Written by tables.py. */\n",
        array(
            "float", "window_of_hann", (0.5 - 0.5 * math.cos(2 * math.pi * i / FRAME) for i in range(FRAME))
        ),
        array("float", "circle_cos", map(math.cos, angles)),
        array("float", "circle_sin", map(math.sin, angles)),
        array("unsigned char", "band_first", (first for first, _ in filters)),
        array("unsigned char", "band_bins", (len(weights) for _, weights in filters)),
        array("float", "band_weights", (one for _, weights in filters for one in weights)),
        array("float", "cosines", cosines),
    ]
    Path(sys.argv[1]).write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
