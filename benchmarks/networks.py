"""The networks that the benchmarks run, batch 1, float32, all shapes static: built here, exported by PyTorch
(real_networks.py), or any ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
from real_networks import LISTED, PREFIXES, cached

from edgepack.compiler.frontend.onnx.onnxruntime_session import optimise
from workbench.models import NETWORKS, audio, families, recurrent, transformers, video, vision
from workbench.models.light import light

__all__ = [
    "BENCHMARKS",
    "MORE",
    "QUANTISED",
    "QUANTISED_DYNAMICALLY",
    "REAL",
    "RECURRENT",
    "folded",
    "known",
    "save",
]

#: Name in the tables to what builds the model. Weights are seeded; sizes are the real networks'.
BENCHMARKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": NETWORKS["resnet18"],
    "resnet50": vision.resnet50,
    "mobilenetv2": vision.mobilenetv2,
    "squeezenet": partial(light, "squeezenet"),
    "densenet121": partial(light, "densenet121"),
    "inception_v1": partial(light, "inception_v1"),
    "vgg19": partial(light, "vgg19"),
    # MiniLM-L6: 6 layers, hidden size 384, 12 heads.
    "bert": partial(transformers.bert, layers=6, width=384, heads=12, vocabulary=30522, batch=1, length=128),
    # ViT-Ti/16: 12 layers, width 192, 3 heads, 196 patches and a class token.
    "vit_tiny": partial(transformers.vit, size=224, layers=12, width=192, heads=3, classes=1000),
    "unet": partial(vision.unet, size=256),
    "ds_cnn": vision.ds_cnn,
    "mlp": vision.mlp,
}

#: Other families, for which no rule was made: what holds for the networks above should hold for these.
MORE: dict[str, Callable[[], onnx.ModelProto]] = {
    "mobilenetv1": families.mobilenetv1,
    "mobilenetv3_large": families.mobilenetv3_large,
    "efficientnet_b0": families.efficientnet_b0,
    "efficientnet_lite0": families.efficientnet_lite0,
    "regnety_400mf": families.regnety_400mf,
    "regnety_040": families.regnety_040,
    "resnext50": families.resnext50,
    "shufflenetv2": families.shufflenetv2,
    "convnext_tiny": families.convnext_tiny,
    "deit_small": partial(transformers.vit, size=224, layers=12, width=384, heads=6, classes=1000),
    "distilbert": partial(
        transformers.bert,
        layers=6,
        width=768,
        heads=12,
        vocabulary=30522,
        batch=1,
        length=128,
        distilled=True,
    ),
    # Half of the usual size along both sides.
    "segformer_b0": partial(
        transformers.segformer,
        size=256,
        stages=transformers.SEGFORMER_B0,
        blocks=2,
        decoder=256,
        classes=150,
    ),
    # A third of a second at 22 kHz, half as wide as version 1.
    "hifigan": partial(
        audio.hifigan,
        frames=32,
        bands=80,
        channels=256,
        upsampling=((16, 8), (16, 8), (4, 2), (4, 2)),
        taps=(3, 7, 11),
        dilations=(1, 3, 5),
    ),
    # Parts of version 8 (C2f, pyramid pooling, boxes) as wide as its nano model's first stages.
    "yolo": partial(vision.yolo, size=320),
    "tcn": partial(audio.tcn, inputs=16, channels=64, levels=6, length=256),
    # The base model's layers before its transformer, one second.
    "wav2vec2": partial(audio.wav2vec2, samples=16000, channels=512, width=768, groups=16, taps=128),
    # The tiny model's, 15 seconds.
    "whisper_stem": partial(audio.whisper_stem, bands=80, frames=1500, width=384),
    # Half of the usual frames, and of the size along both sides.
    "r3d18": partial(video.r3d, frames=8, size=56, channels=(64, 128, 256, 512), blocks=2, classes=400),
    "r2plus1d18": partial(
        video.r3d, frames=8, size=56, channels=(64, 128, 256, 512), blocks=2, classes=400, factorised=True
    ),
}

#: Recurrent networks, and one step of each with the states as inputs and outputs.
RECURRENT: dict[str, Callable[[], onnx.ModelProto]] = {
    f"{name}{suffix}": partial(
        recurrent.stacked,
        operator,
        layers,
        inputs,
        size,
        1 if streaming else steps,
        classes=classes,
        bidirectional=bidirectional and not streaming,
        streaming=streaming,
        last=last,
    )
    for name, operator, layers, inputs, size, steps, classes, bidirectional, last in (
        ("lstm_text", "LSTM", 2, 64, 96, 40, 5, False, True),
        ("gru_tagger", "GRU", 2, 64, 64, 50, 20, True, False),
        ("lstm_speech", "LSTM", 3, 80, 512, 100, 64, False, False),
    )
    for suffix, streaming in (("", False), ("_step", True))
}
MORE |= RECURRENT


#: Networks of all kinds that others chose, as PyTorch exports them; the last four have no package.
REAL = (*LISTED, "tcn", "r3d18", "lstm_text", "gru_tagger")


#: Networks of BENCHMARKS and MORE that are deployed in int8.
QUANTISED = (
    *("mobilenetv1", "mobilenetv2", "mobilenetv3_large", "efficientnet_b0", "efficientnet_lite0"),
    *("resnet18", "resnet50", "regnety_400mf", "regnety_040", "unet", "yolo", "ds_cnn"),
    *("vit_tiny", "bert", "distilbert", "tcn"),
)

#: Those whose activations are quantised while they run, because their ranges vary more from input to input.
QUANTISED_DYNAMICALLY = ("bert", "distilbert", "vit_tiny")


def known(name: str) -> bool:
    """Whether :func:`save` can be asked for it."""
    return (
        name in BENCHMARKS
        or name in MORE
        or name.startswith(PREFIXES)
        or Path(name).suffix in (".onnx", ".tflite")
    )


def save(name: str, folder: Path, cache: Path | None = None) -> Path:
    """The network's file: written into ``folder``, exported into ``cache`` once, or the file that it names.

    Raises:
        RuntimeError: PyTorch cannot export it.
    """
    if Path(name).suffix in (".onnx", ".tflite"):
        return Path(name).resolve()
    if name.startswith(PREFIXES):
        return cached(name, cache)
    path = folder / f"{name}.onnx"
    onnx.save({**BENCHMARKS, **MORE}[name](), str(path))
    return path


def folded(path: Path) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic optimisations: constants (the shape arithmetic of exporters) and
    batch normalisations are folded, all operators are still ONNX's."""
    return optimise(onnx.load(str(path)))
