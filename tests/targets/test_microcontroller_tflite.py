"""TFLite's networks of int8 and of int16 on microcontrollers' boards, bit for bit what LiteRT's reference
kernels compute: convolutions of windows and groups as few others have them, and a network of 16x8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

import edgepack
from workbench.models.tflite import Writer
from workbench.models.tflite.words import network_16x8

BOARDS = ("cortex-m4", "cortex-m55", "cortex-m0plus", "esp32-c3")


def boards(*quick: str) -> list[Any]:
    """All boards, of which most are slow."""
    return [device if device in quick else pytest.param(device, marks=pytest.mark.slow) for device in BOARDS]


def convolutions() -> bytes:
    """One layer each of an image, none connected with another."""
    writer, random = Writer(), np.random.default_rng(1)
    inputs, outputs = [], []

    def layer(rows: int, columns: int, channels: int, shape: list[int], *, depthwise: bool) -> None:
        kind, axis = ("DEPTHWISE_CONV_2D", 3) if depthwise else ("CONV_2D", 0)
        filters = shape[axis]
        x = writer.tensor([1, rows, columns, channels], scale=0.05, zero=-3)
        scales = random.uniform(0.002, 0.004, filters)
        w = writer.tensor(shape, "int8", scales, 0, axis, random.integers(-127, 128, shape, np.int8))
        bias = random.integers(-2000, 2000, filters, np.int32)
        b = writer.tensor([filters], "int32", scales * 0.05, data=bias)
        side = [rows - shape[1] + 1, columns - shape[2] + 1]
        y = writer.tensor([1, *side, filters], scale=0.1, zero=-5)
        options: dict[str, Any] = {"padding": 1, "strideH": 1, "strideW": 1}
        table = "DepthwiseConv2D" if depthwise else "Conv2D"
        options |= {"depthMultiplier": filters // channels} if depthwise else {}
        writer.operator(kind, [x, w, b], [y], 3, table, **options)
        inputs.append(x)
        outputs.append(y)

    layer(17, 1, 64, [1, 17, 1, 64], depthwise=True)
    layer(33, 1, 6, [1, 33, 1, 6], depthwise=True)
    layer(1, 21, 16, [1, 1, 21, 16], depthwise=True)
    layer(6, 5, 8, [1, 3, 3, 16], depthwise=True)
    layer(6, 5, 8, [8, 3, 3, 4], depthwise=False)
    layer(6, 5, 24, [12, 3, 3, 6], depthwise=False)
    return writer.finished(inputs, outputs)


@pytest.mark.parametrize("device", boards("cortex-m4"))
def test_windows_and_groups_of_any_kind_are_the_interpreters(device: str, tmp_path: Path) -> None:
    """Tall and wide ones, several results of a channel, groups of several channels."""
    path = tmp_path / "convolutions.tflite"
    path.write_bytes(convolutions())
    bundle = edgepack.pack(path, device, tmp_path / "bundle")
    assert not [text for text in bundle.manifest.warnings if "failed" in text]
    result = bundle.verify()
    assert result.ok and not any(one.max_abs_err for one in result.outputs), result


@pytest.mark.parametrize("device", boards("cortex-m0plus"))
def test_a_network_of_16x8_is_the_interpreters(device: str, tmp_path: Path) -> None:
    path = tmp_path / "words.tflite"
    path.write_bytes(network_16x8())
    bundle = edgepack.pack(path, device, tmp_path / "bundle")
    result = bundle.verify()
    assert result.ok and not any(one.max_abs_err for one in result.outputs), result
    assert result.outputs[0].max_abs_ref > 1000, "the results are no zeros, and not cut off"
