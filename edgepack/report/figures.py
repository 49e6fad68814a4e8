"""The figures of a report as shapes with coordinates, in pixels of an SVG; templates draw them.

Texts are shown as they are by the template, which escapes them; here they are only cut to the room that they
have. The same data gives the same numbers: every coordinate is rounded to hundredths.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.bundle.live_memory import bytes_in_use
from edgepack.bundle.manifest import BufferRecord
from edgepack.render.formatting import human_bytes
from edgepack.text.printable import printable

__all__ = [
    "WIDTH",
    "BarChart",
    "BarRow",
    "MemoryMap",
    "Panel",
    "Scale",
    "Value",
    "bar_chart",
    "byte_ticks",
    "error_scale",
    "memory_map",
    "shortened",
]

#: Of every figure.
WIDTH = 960
_LABELS, _ROW, _HEAD, _GAP = 290, 26, 30, 20
#: Room for the text at the end of a bar.
_TEXT = 132
#: The most of a panel that it takes, and how many colours of bars there are.
_MOST_TEXT, _SERIES = 0.65, 2
_LEFT, _RIGHT, _TOP = 76, 12, 12
_MAP, _BETWEEN, _CURVE, _AXIS = 300, 34, 90, 40


def shortened(text: str, columns: int) -> str:
    """A name of others in at most so many columns, those of East Asian characters counted as two."""
    shown: list[str] = []
    used = 0
    for character in printable(text):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > columns:
            return "".join(shown[:-1]) + "…"
        shown.append(character)
    return "".join(shown)


@dataclass(frozen=True)
class Value:
    """A number as it is drawn and as it is written."""

    number: float
    text: str


@dataclass(frozen=True)
class BarRow:
    """A row of values, one for each panel; ``others`` is the sum of what has no row."""

    label: str
    values: tuple[Value, ...]
    note: str = ""
    others: bool = False


@dataclass(frozen=True)
class Bar:
    """A bar, and the text at its end."""

    x: float
    width: float
    text: str
    series: str


@dataclass(frozen=True)
class DrawnRow:
    """A row at its height ``y``, which is that of its bars' upper edge."""

    y: float
    label: str
    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Panel:
    """A column of bars from ``x`` on."""

    x: float
    heading: str


@dataclass(frozen=True)
class BarChart:
    """Bars in rows; ``rows`` has the values too, for the table beside the figure."""

    title: str
    description: str
    panels: tuple[Panel, ...]
    drawn: tuple[DrawnRow, ...]
    rows: tuple[BarRow, ...]
    label: str
    height: int
    width: int = WIDTH


def bar_chart(
    title: str, description: str, label: str, headings: Sequence[str], rows: Sequence[BarRow]
) -> BarChart:
    """Horizontal bars; each panel has its own scale, from zero to its largest value.

    Args:
        label: what a row is, a word.
        headings: of the panels, what their values are.
    """
    room = (WIDTH - _LABELS - _GAP * (len(headings) - 1)) / len(headings)
    text = min(_TEXT, _MOST_TEXT * room)
    longest = [max((row.values[i].number for row in rows), default=0) or 1.0 for i in range(len(headings))]
    panels = tuple(Panel(_round(_LABELS + i * (room + _GAP)), heading) for i, heading in enumerate(headings))
    drawn = []
    for index, row in enumerate(rows):
        bars = tuple(
            Bar(
                panel.x,
                _bar(value.number / longest[i] * (room - text)),
                value.text,
                "rest" if row.others else f"s{i % _SERIES}",
            )
            for i, (panel, value) in enumerate(zip(panels, row.values, strict=True))
        )
        texts = ", ".join(f"{h}: {v.text}" for h, v in zip(headings, row.values, strict=True))
        title_of = printable(f"{row.label}: {texts}" + (f" ({row.note})" if row.note else ""))
        drawn.append(DrawnRow(_HEAD + index * _ROW, shortened(row.label, 40), title_of, bars))
    height = _HEAD + len(rows) * _ROW + 4
    return BarChart(title, description, panels, tuple(drawn), tuple(rows), label, height)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Box:
    """A buffer in the memory map."""

    x: float
    y: float
    width: float
    height: float
    scratch: bool
    title: str


@dataclass(frozen=True)
class MemoryMap:
    """The arena over time: addresses upwards, steps to the right; below it how many bytes are in use."""

    title: str
    description: str
    boxes: tuple[Box, ...]
    steps: tuple[Tick, ...]
    addresses: tuple[Tick, ...]
    in_use: tuple[Tick, ...]
    curve: str
    peak: float | None
    peak_text: str
    scratch: bool
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    curve_top: int = _TOP + _MAP + _BETWEEN
    curve_bottom: int = _TOP + _MAP + _BETWEEN + _CURVE
    height: int = _TOP + _MAP + _BETWEEN + _CURVE + _AXIS
    width: int = WIDTH


def memory_map(
    buffers: Sequence[BufferRecord], makers: Sequence[str], arena: int, title: str, description: str
) -> MemoryMap:
    """Draw an arena.

    Args:
        buffers: at least one; each step is one of ``makers``.
        makers: what each step computes, in words.
        arena: its size in bytes, at least 1.
    """
    steps = len(makers)
    wide, high = (WIDTH - _LEFT - _RIGHT) / steps, _MAP / arena

    def box(buffer: BufferRecord) -> Box:
        first, last = buffer.first_step, buffer.last_step
        during = f"step {first}" if first == last else f"steps {first} to {last}"
        return Box(
            _round(_LEFT + first * wide),
            _round(_TOP + _MAP - (buffer.offset + buffer.nbytes) * high),
            _round((last + 1 - first) * wide),
            _round(max(buffer.nbytes * high, 0.5)),
            buffer.name.startswith("scratch"),
            printable(
                f"{buffer.name}: {human_bytes(buffer.nbytes)} from {human_bytes(buffer.offset)} on, "
                f"{during}; {makers[first]}"
            ),
        )

    boxes = tuple(map(box, buffers))
    used = bytes_in_use(buffers, steps)
    most = max(used)
    at = used.index(most)
    bottom = _TOP + _MAP + _BETWEEN + _CURVE
    points = [f"M{_LEFT} {bottom}"]
    for step, value in enumerate(used):
        y = _round(bottom - value / (most or 1) * _CURVE)
        points.append(f"L{_round(_LEFT + step * wide):g} {y:g}L{_round(_LEFT + (step + 1) * wide):g} {y:g}")
    return MemoryMap(
        title=title,
        description=description,
        boxes=boxes,
        steps=tuple(Tick(_round(_LEFT + (step + 0.5) * wide), str(step)) for step in _step_ticks(steps)),
        addresses=tuple(Tick(_round(_TOP + _MAP - value * high), text) for value, text in byte_ticks(arena)),
        in_use=tuple(
            Tick(_round(bottom - value / most * _CURVE), text) for value, text in byte_ticks(most, 2) if most
        ),
        curve="".join([*points, f"L{_round(_LEFT + steps * wide):g} {bottom}Z"]),
        peak=_round(_LEFT + (at + 0.5) * wide) if most else None,
        peak_text=f"most in use: {human_bytes(most)} at step {at}",
        scratch=any(one.scratch for one in boxes),
    )


def _step_ticks(steps: int) -> range:
    unit = next(u for e in range(20) for u in (10**e, 2 * 10**e, 5 * 10**e) if steps <= 12 * u)
    return range(0, steps, unit)


def byte_ticks(most: int, count: int = 5) -> list[tuple[int, str]]:
    """Powers of two and their multiples from zero to ``most``: at most ``count`` steps."""
    unit = 1 << max(0, math.ceil(math.log2(max(most, 1) / count)))
    return [(value, human_bytes(value) if value else "0") for value in range(0, most + 1, unit)]


@dataclass(frozen=True)
class Scale:
    """Errors as fractions of what is allowed, on a logarithmic axis of powers of ten."""

    low: int
    high: int
    left: int = _LABELS
    right: int = WIDTH - _TEXT

    def at(self, fraction: float) -> float:
        """Where a fraction stands; zero and what is below the axis at its left end."""
        exponent = math.log10(fraction) if fraction > 0 else self.low
        inside = min(max(exponent, self.low), self.high)
        return _round(self.left + (inside - self.low) / (self.high - self.low) * (self.right - self.left))

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Powers of ten, at most nine, without the tolerance itself."""
        step = -(-(self.high - self.low) // 8)
        exponents = range(self.high, self.low - 1, -step)
        return tuple(Tick(self.at(10.0**e), f"1e{e:+03d}") for e in exponents if e != 0)


def error_scale(fractions: Sequence[float]) -> Scale:
    """An axis on which all fractions have their place, and 1, which is the tolerance."""
    exponents = [math.log10(value) for value in fractions if value > 0] or [-3.0]
    low = max(-12, math.floor(min(exponents)))
    high = min(12, math.ceil(max(exponents)))
    return Scale(min(low, -3), max(high, 1) if max(exponents) > 0 else 0)


def _bar(width: float) -> float:
    """What is not zero is seen."""
    return _round(max(width, 1.5) if width > 0 else 0)


def _round(value: float) -> float:
    return round(value, 2)
