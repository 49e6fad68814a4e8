"""Says what three images show."""

from __future__ import annotations

import numpy as np
import stripes

NAMES = ("plain", "horizontal", "vertical")


def images() -> dict[str, np.ndarray]:
    """Images as float32[1, 3, 48, 64] from 0 to 1: plain, and with stripes of four pixels."""
    rows, columns = np.mgrid[:48, :64]
    levels = {
        "plain": np.full((48, 64), 0.5),
        "horizontal": np.where(rows // 4 % 2, 0.8, 0.2),
        "vertical": np.where(columns // 4 % 2, 0.8, 0.2),
    }
    return {
        name: np.ascontiguousarray(np.broadcast_to(level, (1, 3, 48, 64)), "f4")
        for name, level in levels.items()
    }


def main() -> None:
    """One session, whose memory and threads serve all runs."""
    with stripes.Session(threads=2) as session:
        for name, image in images().items():
            classes = session.run(image)[0]
            best = int(classes.argmax())
            assert NAMES[best] == name, classes
            print(f"{NAMES[best]} {classes[best]:.3f}")


if __name__ == "__main__":
    main()
