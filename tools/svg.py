"""Pictures for the documents as SVG, in a light and a dark version, with plain text and no other library.

GitHub shows a picture without the page's style, so colours and fonts stand in the file, and its background
is the page's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

__all__ = ["IMAGES", "THEMES", "Svg", "Theme"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"

_FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours: of text and lines, of areas and boxes in them, of what matters most, and of text on that."""

    text: str
    muted: str
    line: str
    area: str
    box: str
    strong: str
    soft: str
    on_strong: str


#: GitHub's own colours, so that a picture looks like the page around it.
THEMES = {
    "light": Theme("#1f2328", "#59636e", "#d1d9e0", "#f6f8fa", "#ffffff", "#0969da", "#80ccff", "#ffffff"),
    "dark": Theme("#f0f6fc", "#9198a1", "#3d444d", "#151b23", "#0d1117", "#1f6feb", "#0c4a8a", "#ffffff"),
}


@dataclass
class Svg:
    """A picture of ``width`` by ``height`` pixels."""

    width: int
    height: int
    theme: Theme
    title: str
    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        anchor: str = "start",
        weight: int = 400,
        fill: str = "",
    ) -> None:
        """One line; ``y`` is its base line."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{fill or self.theme.text}">{escape(text)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str = "none",
        radius: float = 0,
    ) -> None:
        """A rectangle."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def card(
        self, x: float, y: float, width: float, title: str, *lines: str, strong: bool = False
    ) -> tuple[float, float]:
        """A box with a title and lines of text; ``strong``: of what matters most.

        Returns:
            the top and the bottom of the box.
        """
        theme = self.theme
        height = 30 + 17 * len(lines)
        fill, stroke = (theme.strong, "none") if strong else (theme.box, theme.line)
        self.box(x, y, width, height, fill=fill, stroke=stroke, radius=6)
        self.text(x + 12, y + 20, title, size=13, weight=600, fill=theme.on_strong if strong else "")
        for row, text in enumerate(lines):
            fill = theme.on_strong if strong else theme.muted
            self.text(x + 12, y + 37 + 17 * row, text, fill=fill)
        return y, y + height

    def frame(self, x: float, y: float, width: float, height: float, title: str, note: str) -> None:
        """An area with a title and a note, that cards are put into."""
        theme = self.theme
        self.box(x, y, width, height, fill=theme.area, stroke=theme.line, radius=10)
        self.text(x + 14, y + 23, title, size=14, weight=600)
        self.text(x + 14, y + 41, note, fill=theme.muted)

    def line(self, *points: tuple[float, float], stroke: str = "", arrow: bool = False) -> None:
        """A line through points; with ``arrow`` a head at its end."""
        path = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
        head = ' marker-end="url(#head)"' if arrow else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{stroke or self.theme.muted}" stroke-width="1.5"{head}/>'
        )

    def __str__(self) -> str:
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0.5 8 4 0 7.5z" fill="{self.theme.muted}"/></marker></defs>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" role="img" font-family="{_FONT}">',
                f"<title>{escape(self.title)}</title>",
                head,
                *self.parts,
                "</svg>\n",
            ]
        )
