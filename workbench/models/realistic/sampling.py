"""Resize in its modes, and what reads an image at computed positions."""

from __future__ import annotations

import numpy as np

from workbench.models.builder import Graph
from workbench.models.realistic.row import between, row


def _resize(
    name: str, shape: list[int], sizes: list[int], mode: str, coordinates: str, **attributes: object
) -> None:
    @row(name, opset=18)
    def build(g: Graph) -> None:
        sizes_ = g.const(np.int64([*shape[:2], *sizes]))
        x = g.input("x", shape)
        form = {"mode": mode, "coordinate_transformation_mode": coordinates, **attributes}
        g.output(g.op("Resize", x, "", "", sizes_, **form))


_SMALL, _LARGE = [1, 64, 28, 28], [1, 64, 56, 56]
_resize("resize nearest up", _SMALL, [56, 56], "nearest", "asymmetric", nearest_mode="floor")
_resize("resize nearest up 1.5", _SMALL, [42, 42], "nearest", "half_pixel")
_resize("resize nearest down", _LARGE, [28, 28], "nearest", "asymmetric", nearest_mode="floor")
for _mode in ("linear", "cubic"):
    _resize(f"resize {_mode} up", _SMALL, [56, 56], _mode, "half_pixel")
    _resize(f"resize {_mode} align corners", _SMALL, [56, 56], _mode, "align_corners")
    _resize(f"resize {_mode} down", _LARGE, [28, 28], _mode, "half_pixel")
_resize("resize linear logits", [1, 21, 33, 33], [257, 257], "linear", "align_corners")
_resize("resize linear picture", [1, 3, 320, 320], [224, 224], "linear", "half_pixel")
_resize("resize linear antialias", [1, 3, 320, 320], [224, 224], "linear", "half_pixel", antialias=1)
_resize("resize cubic picture", [1, 3, 320, 320], [224, 224], "cubic", "half_pixel")


@row("resize linear volume", opset=18)
def _volume(g: Graph) -> None:
    x = g.input("x", [1, 8, 16, 16, 16])
    g.output(g.op("Resize", x, "", g.const(np.float32([1, 1, 2, 2, 2])), mode="linear"))


@row("resize nearest signal", opset=18)
def _signal(g: Graph) -> None:
    x = g.input("x", [1, 64, 500])
    g.output(g.op("Resize", x, "", g.const(np.float32([1, 1, 4])), mode="nearest"))


@row("resize linear channels last", opset=18)
def _channels_last(g: Graph) -> None:
    x = g.input("x", [1, 28, 28, 64])
    g.output(g.op("Resize", x, "", g.const(np.float32([1, 2, 2, 1])), mode="linear"))


for _mode in ("linear", "nearest", "cubic"):

    @row(f"gridsample {_mode}", opset=20, grid=between(-1, 1))
    def _grid(g: Graph, mode: str = _mode) -> None:
        x, grid = g.input("x", [1, 32, 56, 56]), g.input("grid", [1, 56, 56, 2])
        g.output(g.op("GridSample", x, grid, mode=mode))


@row("affinegrid", opset=20)
def _affine(g: Graph) -> None:
    theta = g.input("theta", [1, 2, 3])
    g.output(g.op("AffineGrid", theta, g.const(np.int64([1, 3, 224, 224]))), shape=[1, 224, 224, 2])


@row(
    "roialign",
    rois=lambda rng, shape: np.sort(rng.uniform(0, 50, (shape[0], 2, 2)), 1).reshape(shape),
)
def _roi(g: Graph) -> None:
    x, rois = g.input("x", [1, 64, 50, 50]), g.input("rois", [100, 4])
    batch = g.const(np.zeros(100, "int64"))
    g.output(g.op("RoiAlign", x, rois, batch, output_height=7, output_width=7, sampling_ratio=2))


@row("deformconv", opset=19)
def _deform(g: Graph) -> None:
    x, offset = g.input("x", [1, 64, 28, 28]), g.input("offset", [1, 18, 28, 28])
    w = g.weight(64, 64, 3, 3)
    g.output(g.op("DeformConv", x, w, offset, kernel_shape=[3, 3], pads=[1] * 4))
