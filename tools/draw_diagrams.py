#!/usr/bin/env python3
"""Draw what a bundle is on a device, and how a release is made and verified, for the documents:
``tools/draw_diagrams.py``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.svg import IMAGES, THEMES, Svg, Theme

__all__ = ["PICTURES", "bundle", "release", "write"]


def bundle(theme: Theme) -> str:
    """What an application links and opens, and what that needs while it runs."""
    left, right, wide = 34, 454, 350
    picture = Svg(830, 430, theme, "A bundle on a device: what is linked, what is mapped, what runs")
    picture.frame(left - 14, 12, wide + 28, 406, "In the program", "linked, or loaded when it starts")
    _, top = picture.card(
        left,
        66,
        wide,
        "your application",
        "C, C++, Rust, Swift, Python, a web page, firmware",
    )
    y, bottom = picture.card(
        left,
        top + 28,
        wide,
        "include/resnet18.h",
        "resnet18_open, ep_session_create, resnet18_run",
        "sizes, shapes and names as constants",
    )
    picture.line((left + wide / 2, top), (left + wide / 2, y), arrow=True)
    y = bottom + 28
    picture.line((left + wide / 2, bottom), (left + wide / 2, y), arrow=True)
    picture.box(left, y, wide, 168, fill=theme.box, stroke=theme.strong, radius=8)
    picture.text(left + 12, y + 22, "lib/libresnet18.so or .a", size=13, weight=600)
    inside = left + 12
    _, runtime = picture.card(
        inside, y + 34, wide - 24, "runtime", "opens params, makes sessions, runs the steps", strong=True
    )
    picture.card(
        inside,
        runtime + 10,
        wide - 24,
        "kernels, steps, plan of the memory",
        "machine code of one CPU, a function for each",
        "fused operator",
        strong=True,
    )

    picture.frame(right - 14, 12, wide + 28, 282, "In memory", "all sizes known when it is packed")
    params = picture.card(
        right,
        66,
        wide,
        "model: params/resnet18.params",
        "mapped read-only, not read; one copy for all",
        "sessions and processes; its header is checked",
    )
    arena = picture.card(
        right,
        params[1] + 14,
        wide,
        "session: arena",
        "one block for all intermediate results, made with",
        "the session; nothing is allocated while it runs",
    )
    pool = picture.card(
        right,
        arena[1] + 14,
        wide,
        "session: threads",
        "a pool, or your own threads; the results are the",
        "same, bit for bit, with any number",
    )
    edge, turn = left + wide - 12, (left + wide + right) / 2
    start = y + 34 + 23
    for target in (params, arena, pool):
        middle = sum(target) / 2
        picture.line((edge, start), (turn, start), (turn, middle), (right, middle), arrow=True)

    picture.frame(
        right - 14, 312, wide + 28, 106, "From the system", "libc, libm and threads: each bundle is audited"
    )
    picture.text(right, 378, "No TVM, no Python, no interpreter, no graph file.", fill=theme.text)
    picture.text(right, 396, "Firmware needs no files and no malloc either.", fill=theme.text)
    return str(picture)


#: Steps on each side of a release: a title and its lines.
_MADE = (
    ("edgepack.yaml", "which models for which devices, as which", "packages, within which budgets"),
    (
        "units: a model for a device",
        "pack, then verify with the bundle's own program,",
        "here or in the device's emulator",
    ),
    ("packages", "wheel, deb, npm, aar, xcframework, OCI, ...", "a bill of materials for each"),
    (
        "SHA256SUMS, and a signature over it",
        "the same inputs give the same bytes; the key is",
        "minisign's or cosign's, and stays here",
    ),
)
_CHECKED = (
    ("signature", "by the public key, which comes from you and", "not with the release"),
    ("sums", "every file is in SHA256SUMS, and is as it says;", "a file more is an error"),
    (
        "packages and manifests",
        "read to the end; no entry leads out of its folder,",
        "and all tools unpack the same",
    ),
    ("programs", "run again on the recorded data, on request", "in a sandbox"),
)


def release(theme: Theme) -> str:
    """How a release comes about, and what is checked before and on the device."""
    left, right, wide, top, pitch = 34, 454, 350, 66, 88
    height = top - 12 + pitch * 4
    picture = Svg(830, height + 182, theme, "A release: how it is made, checked, and how weights are updated")
    picture.frame(left - 14, 12, wide + 28, height, "edgepack release", "on the machine that builds")
    picture.frame(
        right - 14,
        12,
        wide + 28,
        height,
        "edgepack check-release",
        "wherever it arrives; nothing runs before all files are right",
    )
    for x, steps in ((left, _MADE), (right, _CHECKED)):
        end = 0.0
        for row, (title, *lines) in enumerate(steps):
            y, bottom = picture.card(x, top + pitch * row, wide, title, *lines, strong=x == left and row == 3)
            if row:
                picture.line((x + wide / 2, end), (x + wide / 2, y), arrow=True)
            end = bottom
    turn, low = (left + wide + right) / 2, top + pitch * 3 + 32
    picture.line((left + wide, low), (turn, low), (turn, top + 32), (right, top + 32), arrow=True)

    y = height + 30
    picture.frame(
        left - 14,
        y,
        2 * wide + 98,
        140,
        "New weights, later",
        "for a library that was packed with your public key",
    )
    first = picture.card(
        left,
        y + 54,
        wide,
        "edgepack update",
        "new weights of a retrained model, for the library",
        "that is in use; signed, run, compared",
    )
    second = picture.card(
        right,
        y + 54,
        wide,
        "the library opens them",
        "if the signature, the layout, the hash of the data",
        "and the least version are right",
        strong=True,
    )
    middle = sum(first) / 2
    picture.line((left + wide, middle), (right, middle), arrow=True)
    assert first == second
    return str(picture)


#: Pictures by name.
PICTURES: dict[str, Callable[[Theme], str]] = {"bundle-on-a-device": bundle, "release-verified": release}


def write() -> None:
    """All of them in both versions."""
    IMAGES.mkdir(exist_ok=True)
    for picture, draw in PICTURES.items():
        for name, theme in THEMES.items():
            (IMAGES / f"{picture}-{name}.svg").write_text(draw(theme), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write()
