"""Writes clip.wav, and its samples alone as clip.raw: ``python clip.py``. No speech: voices of a synthesiser,
whose pulses go through three resonators that glide. The network takes them for words.
"""

from __future__ import annotations

import math
import random
import struct
import wave
from pathlib import Path

RATE, SECONDS, WIDTH = 16000, 5, 90.0
#: When it begins, the voice's pitch, resonances at the start and at the end in Hz, seconds.
WORDS = (
    (0.6, 111, (734, 1046, 2873), (717, 1237, 2911), 0.55),
    (2.0, 198, (264, 1105, 2584), (774, 1339, 2779), 0.28),
    (3.4, 164, (695, 1530, 2649), (484, 790, 2896), 0.32),
)


def word(pitch: float, start: tuple[int, ...], end: tuple[int, ...], seconds: float) -> list[float]:
    """Samples of a voice, the largest of which is 1."""
    count, phase = int(seconds * RATE), 0.0
    memory = [[0.0, 0.0] for _ in start]
    samples = []
    for i in range(count):
        at = i / count
        phase += pitch * (1 - 0.2 * at) / RATE
        value = 1.0 if phase >= 1 else 0.0
        phase %= 1
        for (one, two), state in zip(zip(start, end, strict=True), memory, strict=True):
            radius = math.exp(-math.pi * WIDTH / RATE)
            feedback = 2 * radius * math.cos(2 * math.pi * (one + (two - one) * at) / RATE)
            result = value + feedback * state[0] - radius**2 * state[1]
            state[:] = [result, state[0]]
            value = result * (1 - feedback + radius**2)
        samples.append(value * math.sqrt(math.sin(math.pi * at)))
    largest = max(map(abs, samples))
    return [value / largest for value in samples]


def main() -> None:
    noise = random.Random(0)
    clip = [noise.gauss(0, 20) for _ in range(RATE * SECONDS)]
    for begin, *voice in WORDS:
        for i, value in enumerate(word(*voice)):
            clip[int(begin * RATE) + i] += 12000 * value
    data = struct.pack(f"<{len(clip)}h", *map(round, clip))
    Path("clip.raw").write_bytes(data)
    with wave.open("clip.wav", "wb") as file:
        file.setparams((1, 2, RATE, len(clip), "NONE", ""))
        file.writeframes(data)


if __name__ == "__main__":
    main()
