"""Seeded models that are tested and measured: ``build("mobilenetv2")``. They need numpy and onnx only."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import onnx

from workbench.models import audio, recurrent, relatives, transformers, video, vision
from workbench.models.light import LIGHT, light

__all__ = ["DIMS", "LARGE", "NETWORKS", "build", "example", "save"]


def example(name: str) -> ModuleType:
    """The script ``examples/<name>.py`` as a module."""
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _resnet18(seed: int = 0) -> onnx.ModelProto:
    model = example("resnet18").build(seed)
    assert isinstance(model, onnx.ModelProto)
    return model


#: Whole networks by name. Those with open dimensions need ``DIMS``.
NETWORKS: dict[str, Callable[..., onnx.ModelProto]] = {
    "resnet18": _resnet18,
    "resnet50": vision.resnet50,
    "mobilenetv2": vision.mobilenetv2,
    "mobilenetv3": vision.mobilenetv3,
    "efficientnet": vision.efficientnet,
    "regnet": vision.regnet,
    "convnext": vision.convnext,
    "ds_cnn": vision.ds_cnn,
    "unet_transpose": partial(vision.unet, up="transpose"),
    "unet_resize": partial(vision.unet, up="resize"),
    "yolo": vision.yolo,
    "mlp": vision.mlp,
    "bert": transformers.bert,
    "vit": transformers.vit,
    "segformer": transformers.segformer,
    "hifigan": audio.hifigan,
    "tcn": audio.tcn,
    "wav2vec2": audio.wav2vec2,
    "whisper_stem": audio.whisper_stem,
    "r3d": video.r3d,
    "lstm": partial(recurrent.stacked, "LSTM", 2, 16, 32, 10, classes=5, last=True),
    "gru": partial(recurrent.stacked, "GRU", 2, 16, 24, 8, classes=6, bidirectional=True),
    "small_alexnet": relatives.small_alexnet,
    "small_densenet": relatives.small_densenet,
    "small_inception": relatives.small_inception,
    "small_vgg": relatives.small_vgg,
    **{f"light_{name}": partial(light, name) for name in LIGHT},
}

#: Networks that take long to compile; in `make test` their small relatives stand for them.
LARGE = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_vgg19",
    "light_zfnet512",
    "resnet50",
)

#: Sizes for the open dimensions of the networks that have some.
DIMS: dict[str, dict[str, int]] = {
    "bert": {"batch": 1, "sequence": 16},
    "efficientnet": {"batch": 1},
}


def build(name: str, seed: int = 0) -> onnx.ModelProto:
    """The network ``name`` with weights drawn from ``seed``."""
    return NETWORKS[name](seed=seed)


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Writes the model into ``folder``; the path of the file."""
    path = folder / name
    onnx.save(model, str(path))
    return path
