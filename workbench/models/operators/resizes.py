"""Resize in its many modes, Upsample, GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.models.builder import Graph
from workbench.models.operators.case import case


def _resize(
    name: str,
    shape: list[int],
    *,
    scales: list[float] | None = None,
    sizes: list[int] | None = None,
    opset: int = 17,
    dtype: str = "float32",
    **attributes: Any,
) -> None:
    @case(name, opset=opset)
    def build(g: Graph) -> None:
        inputs = [g.input("x", shape, dtype), g.const(np.zeros(0, "float32")) if opset < 13 else ""]
        inputs += [g.const(scales)] if scales is not None else ["", g.const(sizes)]
        g.op("Resize", *inputs, name="y", **attributes)
        g.output("y", dtype)


_UP = [1.0, 1.0, 2.0, 2.0]
for _mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
    for _kind in ("nearest", "linear", "cubic"):
        _resize(
            f"resize_{_kind}_{_mode}",
            [1, 2, 5, 6],
            scales=_UP,
            mode=_kind,
            coordinate_transformation_mode=_mode,
        )
        _resize(
            f"resize_{_kind}_{_mode}_sizes",
            [1, 2, 5, 6],
            sizes=[1, 2, 8, 4],
            mode=_kind,
            coordinate_transformation_mode=_mode,
        )
for _nearest in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor"):
    _resize(
        f"resize_nearest_{_nearest}",
        [1, 2, 5, 6],
        sizes=[1, 2, 8, 9],
        mode="nearest",
        nearest_mode=_nearest,
        coordinate_transformation_mode="asymmetric",
    )
    _resize(
        f"resize_nearest_{_nearest}_half_pixel",
        [1, 2, 5, 6],
        sizes=[1, 2, 8, 9],
        mode="nearest",
        nearest_mode=_nearest,
    )
_resize(
    "resize_cubic_coefficient",
    [1, 2, 5, 6],
    scales=_UP,
    mode="cubic",
    cubic_coeff_a=-0.5,
    coordinate_transformation_mode="half_pixel",
)
_resize("resize_cubic_exclude_outside", [1, 2, 5, 6], scales=_UP, mode="cubic", exclude_outside=1)
_resize("resize_fractional", [1, 2, 5, 6], scales=[1.0, 1.0, 1.5, 0.7], mode="linear")
_resize("resize_nearest_fractional", [1, 2, 5, 6], scales=[1.0, 1.0, 1.5, 0.7], mode="nearest")
_resize("resize_1d", [1, 2, 5], scales=[1.0, 1.0, 2.0], mode="linear")
_resize(
    "resize_opset11",
    [1, 2, 5, 6],
    scales=_UP,
    mode="linear",
    opset=11,
    coordinate_transformation_mode="align_corners",
)
_resize("resize_opset18_axes", [1, 2, 5, 6], scales=[2.0, 2.0], mode="linear", opset=18, axes=[2, 3])
_resize("resize_antialias", [1, 2, 8, 8], sizes=[1, 2, 4, 5], mode="linear", opset=18, antialias=1)
_resize("resize_channels_last", [1, 5, 6, 2], scales=[1.0, 2.0, 2.0, 1.0], mode="linear")
_resize("resize_channels_last_uint8", [1, 6, 6, 3], sizes=[1, 9, 9, 3], mode="linear", dtype="uint8")
_resize(
    "resize_antialias_uint8",
    [1, 2, 10, 12],
    sizes=[1, 2, 4, 5],
    opset=18,
    dtype="uint8",
    mode="linear",
    antialias=1,
)
_resize(
    "resize_antialias_int32",
    [1, 2, 10, 12],
    sizes=[1, 2, 4, 5],
    opset=18,
    dtype="int32",
    mode="linear",
    antialias=1,
)


@case("resize_opset10", opset=10)
def _resize_opset10(g: Graph) -> None:
    g.op("Resize", g.input("x", [1, 2, 5, 6]), g.const(_UP), mode="nearest", name="y")
    g.output("y")


@case("upsample_nearest", opset=9)
def _upsample(g: Graph) -> None:
    g.op("Upsample", g.input("x", [1, 2, 5, 6]), g.const(_UP), mode="nearest", name="y")
    g.output("y")


@case("upsample_linear", opset=9)
def _upsample_linear(g: Graph) -> None:
    g.op("Upsample", g.input("x", [1, 2, 5, 6]), g.const(_UP), mode="linear", name="y")
    g.output("y")


@case("gridsample", opset=16)
def _gridsample(g: Graph) -> None:
    grid = g.op("Tanh", g.input("grid", [1, 4, 5, 2]))
    g.op("GridSample", g.input("x", [1, 2, 6, 6]), grid, name="y")
    g.output("y")


for _mode, _padding, _corners in (
    *(("linear", padding, corners) for padding in ("zeros", "border", "reflection") for corners in (0, 1)),
    *(("nearest", padding, 0) for padding in ("zeros", "border", "reflection")),
    *(("cubic", padding, 1) for padding in ("zeros", "border", "reflection")),
):

    @case(f"gridsample_{_mode}_{_padding}_{_corners}", opset=20)
    def _gridsample_pixels(
        g: Graph, mode: str = _mode, padding: str = _padding, corners: int = _corners
    ) -> None:
        """Positions up to twice as far from the centre as the border is."""
        grid = g.op("Mul", g.op("Tanh", g.input("grid", [2, 4, 5, 2])), g.const(np.float32(2)))
        x = g.input("x", [2, 5, 6, 7])
        g.op("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=corners, name="y")
        g.output("y")


@case("gridsample_volume", opset=20)
def _gridsample_volume(g: Graph) -> None:
    grid = g.op("Tanh", g.input("grid", [1, 2, 4, 5, 3]))
    g.op("GridSample", g.input("x", [1, 6, 3, 6, 4]), grid, padding_mode="reflection", name="y")
    g.output("y")


for _corners in (0, 1):

    @case(f"affinegrid_{_corners}", opset=20)
    def _affinegrid(g: Graph, corners: int = _corners) -> None:
        size = g.const(np.int64([2, 1, 5, 9]))
        g.op("AffineGrid", g.input("theta", [2, 2, 3]), size, align_corners=corners, name="y")
        g.output("y", shape=[2, 5, 9, 2])


_resize(
    "resize_antialias_cubic",
    [1, 2, 9, 8],
    sizes=[1, 2, 4, 5],
    mode="cubic",
    opset=18,
    antialias=1,
    exclude_outside=1,
)
_resize(
    "resize_not_larger",
    [1, 2, 9, 8],
    sizes=[12, 16],
    mode="linear",
    opset=18,
    axes=[2, 3],
    keep_aspect_ratio_policy="not_larger",
)
_resize(
    "resize_symmetric",
    [1, 2, 5, 6],
    scales=[1.0, 1.0, 1.7, 2.3],
    mode="linear",
    opset=19,
    coordinate_transformation_mode="half_pixel_symmetric",
)


@case("resize_down_opset10", opset=10)
def _resize_down_opset10(g: Graph) -> None:
    g.op("Resize", g.input("x", [1, 2, 9, 7]), g.const([1.0, 1.0, 0.6, 0.5]), mode="nearest", name="y")
    g.output("y")


_resize("resize_nearest_undecided", [1, 2, 2, 2], sizes=[1, 2, 7, 8], mode="nearest")


def _crop(name: str, region: list[float], sizes: list[int], opset: int = 13, **attributes: Any) -> None:
    @case(name, opset=opset)
    def build(g: Graph) -> None:
        inputs = [g.input("x", [1, 2, 5, 6]), g.const(region), "", g.const(sizes)]
        mode = "tf_crop_and_resize"
        g.op("Resize", *inputs, name="y", coordinate_transformation_mode=mode, **attributes)
        g.output("y")


_crop("resize_crop", [0, 0, 0.2, 0.4, 1, 1, 1.2, 0.4], [1, 2, 3, 1], mode="linear", extrapolation_value=7.0)
_crop("resize_crop_axes", [0.4, 0.1, 0.6, 0.9], [4, 3], opset=18, mode="linear", axes=[3, 2])


@case("roialign_scaled", opset=16)
def _roialign_scaled(g: Graph) -> None:
    x, regions = g.input("x", [2, 3, 9, 8]), g.input("regions", [4, 2])
    corners = g.op("Concat", regions, g.op("Add", regions, g.const([[9.0, 14.0]])), axis=1)
    size = {"output_height": 3, "output_width": 2}
    y = g.input("images", [4], "int64")
    g.op("RoiAlign", x, corners, y, name="y", sampling_ratio=2, spatial_scale=0.25, **size)
    g.output("y")


@case("deformconv_groups", opset=19)
def _deformconv_groups(g: Graph) -> None:
    """Groups of channels and of offsets, a mask, and a kernel, strides, dilations and pads that differ."""
    x, offset = g.input("x", [1, 8, 7, 9]), g.input("offset", [1, 24, 4, 9])
    mask, form = g.input("mask", [1, 12, 4, 9]), {"group": 4, "offset_group": 2}
    form |= {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 2], "kernel_shape": [3, 2]}
    g.op("DeformConv", x, g.weight(4, 2, 3, 2), offset, g.weight(4), mask, name="y", **form)
    g.output("y")


@case("col2im_dilated", opset=18)
def _col2im_dilated(g: Graph) -> None:
    """Strides that leave pixels between, a block that overlaps itself, uneven pads."""
    sizes, form = [g.const([7, 6]), g.const([3, 2])], {"strides": [1, 3], "dilations": [2, 1]}
    g.op("Col2Im", g.input("x", [1, 12, 15]), *sizes, name="y", pads=[1, 0, 1, 2], **form)
    g.output("y")
