"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["float32_text", "human_bytes", "human_count", "human_ms", "shape_text"]


def human_bytes(value: int) -> str:
    """``1.5 MiB``; whole bytes below 10 KiB."""
    if value < 10 * 1024:
        return f"{value} B"
    size = value / 1024
    for unit in ("KiB", "MiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def human_ms(value: float) -> str:
    """``4.06 ms`` of milliseconds; ``15.2 us`` below a tenth of one."""
    return f"{value:.3g} ms" if value >= 0.1 or not value else f"{value * 1e3:.3g} us"


def human_count(value: float) -> str:
    """``3.63 G``: three digits and a decimal prefix; a space at the end where there is none."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g} "


def shape_text(shape: tuple[int, ...]) -> str:
    """``1x3x224x224``; ``scalar`` for ()."""
    return "x".join(map(str, shape)) or "scalar"


def float32_text(value: float) -> str:
    """A float32 with as many digits as tell it from all others (9): ``0.584702909``."""
    return f"{value:.9g}"
