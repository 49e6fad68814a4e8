"""A terminal as SVG: commands, and what they printed, which appears line by line where pictures may move.

There is no script and no font of its own. Each line is given its width, so that columns stand below each
other in whatever font of one width a reader has.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from tools.svg import Svg, Theme

__all__ = ["draw"]

_CHARACTER, _LINE, _SIZE = 7.0, 17, 11.5
_LEFT, _TOP = 18, 58
#: Seconds: to type a command, until it has done something, between two lines of what it prints.
_TYPED, _WORKED, _NEXT = 0.9, 1.1, 0.09

_STYLE = """<style>
text.m { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
.l { animation: appear 0.01s both; }
@keyframes appear { from { opacity: 0 } to { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { .l { animation: none } }
</style>"""


def draw(steps: Sequence[tuple[str, Sequence[str]]], theme: Theme) -> str:
    """Commands, and the lines that each printed."""
    count = sum(len(lines) + 2 for _, lines in steps) - 1
    longest = max(len(line) for command, lines in steps for line in (f"$ {command}", *lines))
    width = round(2 * _LEFT + longest * _CHARACTER)
    height = _TOP + count * _LINE
    picture = Svg(width, height, theme, "A terminal: a model is packed, verified, and measured")
    picture.parts.append(_STYLE)
    picture.box(0.5, 0.5, width - 1, height - 1, fill=theme.area, stroke=theme.line, radius=8)
    picture.line((0.5, 32), (width - 0.5, 32), stroke=theme.line)
    for i in range(3):
        picture.box(16 + 20 * i, 10, 12, 12, fill=theme.line, radius=6)
    picture.text(width / 2, 21, "edgepack", anchor="middle", fill=theme.muted)
    seconds, y = 0.3, float(_TOP)
    for command, lines in steps:
        _line(picture, y, f"$ {command}", seconds, theme.strong, 600)
        seconds += _TYPED + _WORKED
        for line in lines:
            y += _LINE
            if line:
                _line(picture, y, line, seconds, theme.text, 400)
                seconds += _NEXT
        y += 2 * _LINE
        seconds += _TYPED
    return str(picture)


def _line(picture: Svg, y: float, text: str, seconds: float, fill: str, weight: int) -> None:
    """One line, as wide as its characters are many; ``seconds`` until it appears."""
    indent = len(text) - len(text.lstrip())
    text = text.strip()
    x, width = _LEFT + indent * _CHARACTER, len(text) * _CHARACTER
    picture.parts.append(
        f'<text class="m l" style="animation-delay:{seconds:.2f}s" x="{x:g}" y="{y:g}" font-size="{_SIZE}" '
        f'font-weight="{weight}" fill="{fill}" textLength="{width:g}" lengthAdjust="spacingAndGlyphs" '
        f'xml:space="preserve">{escape(text)}</text>'
    )
