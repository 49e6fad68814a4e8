#!/usr/bin/env python3
"""Draw how a model becomes a bundle, for the documents: ``tools/draw_flow.py``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.svg import IMAGES, THEMES, Svg, Theme

#: Packages of ``edgepack/compiler/`` in the order in which data passes through them, and what each makes.
COMPILER = {
    "frontend": "model → Relax module",
    "graph": "Relax → fused operators",
    "kernels": "fused operator → TIR",
    "planner": "order, memory, constants",
    "backends": "TIR → machine code",
}

#: Packages of ``edgepack/`` behind the Plan, likewise.
BEHIND = {
    "render": "templates → C sources, projects",
    "toolchains": "zig, gcc, NDK, ... → libraries",
    "objectfiles": "audit of what was linked",
    "bundle": "folder, manifest, checksums",
    "runners": "verify, bench: here, qemu, ssh, ...",
}

#: What the Plan says.
PLAN = ("inputs, outputs", "steps", "kernels", "memory", "constants")

_WIDTH, _TOP, _PITCH, _HEIGHT = 260, 108, 62, 44
_LEFT, _RIGHT, _PILLAR = 20, 550, (342, 140)


def draw(theme: Theme) -> str:
    """The picture."""
    bottom = _TOP + _PITCH * len(COMPILER)
    picture = Svg(
        830,
        bottom + 12,
        theme,
        "From a model to a bundle: the packages of edgepack and the Plan between them",
    )
    _room(picture, _LEFT, "edgepack/compiler", "knows TVM, a process of its own", COMPILER)
    _room(picture, _RIGHT, "edgepack", "knows no TVM", BEHIND)
    _plan(picture)
    middle = [_TOP + _PITCH * row + _HEIGHT / 2 for row in range(len(COMPILER))]
    edge, pillar_end = _LEFT + _WIDTH, sum(_PILLAR)
    picture.line((_LEFT + _WIDTH / 2, 28), (_LEFT + _WIDTH / 2, 46), arrow=True)
    picture.text(_LEFT + _WIDTH / 2, 20, "model.onnx, device.yaml", size=13, anchor="middle", weight=600)
    picture.line((edge, middle[3]), (_PILLAR[0], middle[3]), arrow=True)
    picture.line((pillar_end, middle[0]), (_RIGHT, middle[0]), arrow=True)
    turn = (pillar_end + _RIGHT - 10) / 2  # halfway between the pillar and the frame
    picture.line((edge, middle[4]), (turn, middle[4]), (turn, middle[1]), (_RIGHT, middle[1]), arrow=True)
    picture.text(
        sum(_PILLAR) - _PILLAR[1] / 2, middle[4] - 7, "objects, parameters", anchor="middle", fill=theme.muted
    )
    return str(picture)


def _room(picture: Svg, x: float, name: str, note: str, packages: dict[str, str]) -> None:
    """A column of packages in a frame, each handing on to the one below it."""
    theme = picture.theme
    picture.box(
        x - 10,
        50,
        _WIDTH + 20,
        _TOP - 50 + _PITCH * len(packages),
        fill=theme.area,
        stroke=theme.line,
        radius=10,
    )
    picture.text(x + 4, 73, name, size=14, weight=600)
    picture.text(x + 4, 91, note, fill=theme.muted)
    for row, (package, makes) in enumerate(packages.items()):
        y = _TOP + _PITCH * row
        picture.box(x, y, _WIDTH, _HEIGHT, fill=theme.box, stroke=theme.line, radius=6)
        picture.text(x + 12, y + 19, package, size=13, weight=600)
        picture.text(x + 12, y + 36, makes, fill=theme.muted)
        if row:
            picture.line((x + _WIDTH / 2, y - _PITCH + _HEIGHT), (x + _WIDTH / 2, y), arrow=True)


def _plan(picture: Svg) -> None:
    """The pillar in the middle."""
    theme, (x, width) = picture.theme, _PILLAR
    picture.box(x, _TOP, width, _PITCH * 3 + _HEIGHT, fill=theme.strong, radius=6)
    picture.text(x + width / 2, _TOP + 44, "Plan", size=20, anchor="middle", weight=600, fill=theme.on_strong)
    picture.text(x + width / 2, _TOP + 66, "plain data, JSON", anchor="middle", fill=theme.on_strong)
    for row, text in enumerate(PLAN):
        picture.text(
            x + width / 2, _TOP + 104 + 21 * row, text, size=13, anchor="middle", fill=theme.on_strong
        )


def write() -> None:
    """Both versions."""
    IMAGES.mkdir(exist_ok=True)
    for name, theme in THEMES.items():
        (IMAGES / f"flow-{name}.svg").write_text(draw(theme), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write()
