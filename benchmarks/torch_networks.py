"""The networks that benchmarks/torch_compile.py measures: six made of torch.nn, and six of other packages."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["NETWORKS", "missing", "network"]

#: Made here, of torch.nn alone.
_OWN = ("MLP", "ResNet-18", "depthwise", "encoder", "LSTM", "signal")
NETWORKS = (
    *_OWN,
    *("timm/mobilenetv3_large_100", "timm/convnext_atto", "timm/mixer_s32_224", "timm/vit_tiny_patch16_224"),
    *("torchvision/squeezenet1_1", "transformers/distilbert"),
)


def missing(name: str) -> str:
    """The package that a network needs and that is not installed; "" where nothing is missing."""
    package, slash, _ = name.partition("/")
    return package if slash and importlib.util.find_spec(package) is None else ""


def network(name: str) -> tuple[Any, dict[str, Any]]:
    """A network with random weights, and its inputs by the names of its arguments (``""``: its only one)."""
    import torch

    torch.manual_seed(0)
    if name in _OWN:
        model, x = _own()[name]()
        return model.eval(), {"": x}
    tolerate_torchvision()
    from real_networks import _built, _liven

    model, inputs = _built(name)
    _liven(model, inputs)
    if not name.startswith("transformers/"):
        inputs = {"": next(iter(inputs.values()))}
    return model.eval(), inputs


def tolerate_torchvision() -> None:
    """Imports torchvision, whose own operators (nms) fail to load beside a PyTorch of another build; no
    network here needs them."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for _ in range(40):
        try:
            import torchvision  # noqa: F401
        except ImportError:
            return
        except RuntimeError as error:
            absent = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if absent is None:
                raise
            library.define(f"{absent[1]}(Tensor a) -> Tensor")
            for module in [module for module in sys.modules if module.startswith("torchvision")]:
                del sys.modules[module]
        else:
            globals()["_LIBRARY"] = library  # which takes its operators with it
            return


def _own() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Each network of torch.nn with its input."""
    import torch
    from torch import nn

    def block(inner: int, outer: int, stride: int) -> Any:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = nn.Sequential(
                    *(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()),
                    *(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)),
                )
                short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
                self.short = nn.Identity() if inner == outer else short

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (self.body(x) + self.short(x)).relu()

        return Block()

    def resnet() -> tuple[Any, Any]:
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        widths = [64, 64, 128, 256, 512]
        for inner, outer in itertools.pairwise(widths):
            layers += [block(inner, outer, 1 if inner == outer else 2), block(outer, outer, 1)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
        return nn.Sequential(*layers), torch.randn(1, 3, 224, 224)

    def depthwise() -> tuple[Any, Any]:
        layers: list[Any] = [nn.Conv2d(3, 32, 3, 2, 1), nn.Hardswish()]
        widths = [32, 64, 128, 128, 256, 256]
        for inner, outer in itertools.pairwise(widths):
            stride = 1 if inner == outer else 2
            layers += [
                nn.Conv2d(inner, inner, 3, stride, 1, groups=inner),
                nn.BatchNorm2d(inner),
                nn.Hardswish(),
            ]
            layers += [nn.Conv2d(inner, outer, 1), nn.BatchNorm2d(outer), nn.Hardswish()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), torch.randn(1, 3, 160, 160)

    def mlp() -> tuple[Any, Any]:
        layers = (*(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512)), *(nn.Linear(512, 512), nn.GELU()))
        return nn.Sequential(*layers, nn.Linear(512, 10)), torch.randn(1, 256)

    def encoder() -> tuple[Any, Any]:
        torch.backends.mha.set_fastpath_enabled(False)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(1, 64, 256)

    def signal() -> tuple[Any, Any]:
        layers: list[Any] = []
        for inner, outer in ((1, 32), (32, 64), (64, 128)):
            layers += [nn.Conv1d(inner, outer, 9, 2, 4), nn.BatchNorm1d(outer), nn.SiLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten()), torch.randn(1, 1, 4000)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.past, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 20)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.past(x)[0][:, -1])

    def lstm() -> tuple[Any, Any]:
        torch._dynamo.config.allow_rnn = True  # PyTorch captures no recurrent layer otherwise
        return Recurrent(), torch.randn(1, 50, 64)

    return dict(zip(_OWN, (mlp, resnet, depthwise, encoder, lstm, signal), strict=True))
