"""Networks over signals: a vocoder, a temporal convolutional network, and the stems of speech encoders.

Sizes are arguments; the defaults are small enough for a test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["hifigan", "tcn", "wav2vec2", "whisper_stem"]


def _conv(
    g: Graph,
    x: str,
    shape: tuple[int, int, int],
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    pads: Sequence[int] | None = None,
    bias: bool = True,
    gain: float = 1.0,
) -> str:
    """A Conv of (input channels, output channels, taps), padded to keep the length at stride 1."""
    inner, outer, taps = shape
    std = float(np.sqrt(gain / (inner // groups * taps)))
    inputs = [x, g.weight(outer, inner // groups, taps, std=std)]
    if bias:
        inputs.append(g.weight(outer, std=0.1))
    same = dilation * (taps - 1) // 2
    return g.op(
        "Conv",
        *inputs,
        strides=[stride],
        dilations=[dilation],
        group=groups,
        pads=list(pads) if pads is not None else [same, same],
    )


def hifigan(
    *,
    frames: int = 8,
    bands: int = 20,
    channels: int = 32,
    upsampling: Sequence[tuple[int, int]] = ((16, 8), (4, 2)),
    taps: Sequence[int] = (3,),
    dilations: Sequence[int] = (1, 3),
    seed: int = 0,
) -> onnx.ModelProto:
    """HiFi-GAN's generator: a mel spectrogram (1, bands, frames) to a waveform.

    J. Kong, J. Kim and J. Bae, HiFi-GAN: Generative Adversarial Networks for Efficient and High Fidelity
    Speech Synthesis, 2020. Its version 1 is frames=..., bands=80, channels=512, upsampling=((16, 8), (16, 8),
    (4, 2), (4, 2)), taps=(3, 7, 11), dilations=(1, 3, 5).
    """
    g = Graph("hifigan", seed=seed)
    x = _conv(g, g.input("mel", [1, bands, frames]), (bands, channels, 7))
    for kernel, stride in upsampling:
        x = g.op("LeakyRelu", x, alpha=0.1)
        w = g.weight(channels, channels // 2, kernel, std=float(np.sqrt(stride / (channels * kernel))))
        pads = [(kernel - stride) // 2] * 2
        channels //= 2
        x = g.op("ConvTranspose", x, w, g.weight(channels, std=0.1), strides=[stride], pads=pads)
        blocks = []
        for k in taps:
            y = x
            for dilation in dilations:
                z = _conv(g, g.op("LeakyRelu", y, alpha=0.1), (channels, channels, k), dilation=dilation)
                z = _conv(g, g.op("LeakyRelu", z, alpha=0.1), (channels, channels, k))
                y = g.op("Add", z, y)
            blocks.append(y)
        total = blocks[0]
        for y in blocks[1:]:
            total = g.op("Add", total, y)
        x = g.op("Div", total, g.const(float(len(taps))))
    x = _conv(g, g.op("LeakyRelu", x, alpha=0.01), (channels, 1, 7))
    g.op("Tanh", x, name="waveform")
    g.output("waveform")
    return g.model()


def tcn(
    *, inputs: int = 6, channels: int = 12, levels: int = 3, length: int = 40, seed: int = 0
) -> onnx.ModelProto:
    """A temporal convolutional network: causal dilated convolutions of 3 taps, GELU, residuals, a classifier.

    S. Bai, J. Z. Kolter and V. Koltun, An Empirical Evaluation of Generic Convolutional and Recurrent
    Networks for Sequence Modeling, 2018.
    """
    g = Graph("tcn", seed=seed)
    x = g.input("x", [1, inputs, length])
    inner = inputs
    for level in range(levels):
        dilation = 2**level
        causal = [2 * dilation, 0]
        y = g.act(_conv(g, x, (inner, channels, 3), dilation=dilation, pads=causal, gain=2.0), "gelu")
        y = g.act(_conv(g, y, (channels, channels, 3), dilation=dilation, pads=causal, gain=2.0), "gelu")
        x = g.op("Relu", g.op("Add", y, x if inner == channels else _conv(g, x, (inner, channels, 1))))
        inner = channels
    g.op("Flatten", g.op("GlobalAveragePool", x), name="features")
    g.op("Identity", g.gemm("features", channels, 10), name="y")
    g.output("y")
    return g.model()


def wav2vec2(
    *,
    samples: int = 400,
    channels: int = 16,
    width: int = 32,
    groups: int = 4,
    taps: int = 16,
    seed: int = 0,
) -> onnx.ModelProto:
    """wav2vec 2.0's feature extractor, projection and positional convolution, of a waveform (1, samples).

    A. Baevski, H. Zhou, A. Mohamed and M. Auli, wav2vec 2.0: A Framework for Self-Supervised Learning of
    Speech Representations, 2020. The base model is samples=16000, channels=512, width=768, groups=16,
    taps=128. Its group norm has a group for each channel, which exporters write as InstanceNormalization.
    """
    g = Graph("wav2vec2", seed=seed)
    x = g.op("Unsqueeze", g.input("samples", [1, samples]), g.const([1]))
    inner = 1
    for number, (kernel, stride) in enumerate([(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]):
        x = _conv(g, x, (inner, channels, kernel), stride=stride, pads=[0, 0], bias=False, gain=2.0)
        if number == 0:
            flat = g.op("Reshape", x, g.const([0, channels, -1]))
            ones, zeros = g.const(np.ones(channels, np.float32)), g.const(np.zeros(channels, np.float32))
            norm = g.op("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
            x = g.op("Reshape", norm, g.op("Shape", x))
            x = g.op("Mul", x, g.uniform(channels, 1, low=0.7, high=1.3))
            x = g.op("Add", x, g.weight(channels, 1, std=0.1))
        x, inner = g.act(x, "gelu"), channels
    x = g.op("Transpose", x, perm=[0, 2, 1])
    x = g.linear(g.layer_norm(x, channels), channels, width)
    y = g.op("Transpose", x, perm=[0, 2, 1])
    y = _conv(g, y, (width, width, taps), groups=groups, pads=[taps // 2] * 2)
    y = g.op("Slice", y, g.const([0]), g.const([-1]), g.const([2]))  # one frame more than there were
    y = g.op("Transpose", g.act(y, "gelu"), perm=[0, 2, 1])
    g.op("Identity", g.layer_norm(g.op("Add", x, y), width), name="features")
    g.output("features")
    return g.model()


def whisper_stem(*, bands: int = 16, frames: int = 60, width: int = 24, seed: int = 0) -> onnx.ModelProto:
    """What Whisper's encoder begins with: two convolutions with GELU, of which the second halves the length,
    and positions added to (1, frames / 2, width). The tiny model is bands=80, frames=3000, width=384.

    A. Radford et al., Robust Speech Recognition via Large-Scale Weak Supervision, 2022.
    """
    g = Graph("whisper_stem", seed=seed)
    x = g.act(_conv(g, g.input("mel", [1, bands, frames]), (bands, width, 3), gain=2.0), "gelu")
    x = g.act(_conv(g, x, (width, width, 3), stride=2, pads=[1, 1], gain=2.0), "gelu")
    g.op("Add", g.op("Transpose", x, perm=[0, 2, 1]), g.weight(frames // 2, width, std=0.1), name="y")
    g.output("y")
    return g.model()
