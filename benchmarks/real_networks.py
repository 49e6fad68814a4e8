"""Real networks for ``compare.py``, as PyTorch exports them: ``real_networks.py [NAME ...]``.

``timm/MODEL`` and ``torchvision/MODEL`` are any models of these packages, ``transformers/NAME`` is one of
transformers.yaml. Weights are random and seeded: nothing is downloaded. Batch 1, all shapes static, written
once to a cache folder. What PyTorch's exporter writes is taken as it is: operators, names, opset.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    import torch

__all__ = ["LISTED", "PREFIXES", "cached", "default_cache"]

PREFIXES = ("timm/", "torchvision/", "transformers/")

#: The models of transformers, as :class:`Transformer` describes one.
TRANSFORMERS = Path(__file__).with_name("transformers.yaml")


@dataclass(frozen=True)
class Transformer:
    """A model of transformers: its class, the shapes of its inputs, what its configuration changes, and the
    attribute that is the part to be exported ("" for all)."""

    model: str
    inputs: Mapping[str, tuple[int, ...]]
    config: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""


#: Networks that others chose, of which ``compare.py --listed`` runs these as PyTorch exports them.
LISTED = (
    *(
        f"transformers/{name}"
        for name in ("hifigan", "wav2vec2", "whisper_encoder", "albert", "gpt2", "segformer")
    ),
    *(f"timm/{name}" for name in ("swin_tiny_patch4_window7_224", "efficientformer_l1", "mobilevit_s")),
    *(f"timm/{name}" for name in ("ghostnetv2_100", "coat_tiny")),
)


def default_cache() -> Path:
    """Where exported networks are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "edgepack-benchmarks"


def cached(name: str, cache: Path | None = None) -> Path:
    """The network's file, exported by a process of its own if it is not there.

    Raises:
        RuntimeError: PyTorch cannot make or export it; the message ends with its last words.
    """
    path = _file(name, cache or default_cache())
    if not path.is_file():
        command = [sys.executable, __file__, name, "--cache", str(path.parent)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["the exporter died"])[-1])
    return path


def _file(name: str, cache: Path) -> Path:
    return cache / f"{name.replace('/', '-')}.onnx"


def _built(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The module with random weights, and its inputs by name."""
    package, _, model = name.partition("/")
    if package == "transformers":
        return _transformer(Transformer(**yaml.safe_load(TRANSFORMERS.read_text("utf-8"))[model]))
    import torch

    if package == "timm":
        import timm

        module = timm.create_model(model, pretrained=False, exportable=True)
        shape: tuple[int, ...] = tuple(module.pretrained_cfg.get("input_size", (3, 224, 224)))
    else:
        import torchvision

        parts = ("segmentation", "detection")  # whose backbone's weights are downloaded unless one says no
        options = {"weights_backbone": None} if any(part in _module_of(model) for part in parts) else {}
        module = torchvision.models.get_model(model, weights=None, **options)
        shape = (3, 8, 112, 112) if "video" in _module_of(model) else (3, 224, 224)
    return module, {"image": torch.randn(1, *shape)}


def _module_of(model: str) -> str:
    import torchvision

    return str(torchvision.models.get_model_builder(model).__module__)


def _transformer(what: Transformer) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    import torch
    import transformers

    model_class = getattr(transformers, what.model)
    config = model_class.config_class(**what.config)
    for name in ("use_cache", "output_attentions", "output_hidden_states"):
        if hasattr(config, name):
            setattr(config, name, False)
    module = model_class(config)
    for attribute in filter(None, what.part.split(".")):
        module = getattr(module, attribute)
    inputs = {}
    for name, shape in what.inputs.items():
        if name == "attention_mask":
            inputs[name] = torch.ones(shape, dtype=torch.int64)
        elif name == "input_ids":
            inputs[name] = torch.randint(3, config.vocab_size, shape)
        else:
            inputs[name] = torch.randn(shape)
    return module, inputs


def _liven(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> None:
    """Makes what a fresh network leaves constant random (gates of 0 and scales of 1e-6 hide whole branches),
    and gives batch normalisations the statistics of random inputs, so that nothing dies out or explodes."""
    import torch

    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.numel() == 0 or bool((value != value.flatten()[0]).any()):
                continue
            if max(value.shape, default=1) < value.numel():  # a matrix
                value.normal_(0, 0.02)
            elif "bias" in name:
                value.normal_(0, 0.1)
            else:
                value.uniform_(0.5, 1)
        module.eval()
        norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.train()
            norm.momentum = None
        if norms:
            batch = {
                name: torch.randn(8 * value.shape[0], *value.shape[1:]) for name, value in inputs.items()
            }
            module(**batch) if len(batch) > 1 else module(*batch.values())
        module.eval()


def export(name: str, cache: Path) -> Path:
    """Writes the network's file, which appears when it is whole."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, inputs = _built(name)
    _liven(module, inputs)
    names = list(inputs) if name.startswith("transformers/") else []

    class Outputs(torch.nn.Module):
        """The module with positional inputs; of its outputs those that are tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *values: torch.Tensor) -> list[torch.Tensor]:
            found = self.module(**dict(zip(names, values, strict=True))) if names else self.module(*values)
            if isinstance(found, torch.Tensor):
                return [found]
            found = found.values() if isinstance(found, dict) else found
            return [value for value in found if isinstance(value, torch.Tensor)]

    path = _file(name, cache)
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with torch.no_grad():
        program = torch.onnx.export(
            Outputs().eval(), tuple(inputs.values()), input_names=list(inputs), dynamo=True, verbose=False
        )
        program.save(str(unfinished))
    unfinished.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NAME", default=LISTED)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="(default: %(default)s)")
    options = parser.parse_args()
    failed = False
    for name in options.networks:
        if not name.startswith(PREFIXES):
            parser.error(f"{name} does not begin with {', '.join(PREFIXES)}")
        if _file(name, options.cache).is_file():
            continue
        begin = time.perf_counter()
        try:
            path = export(name, options.cache)
        except Exception as error:  # the others are still wanted
            failed = True
            print(f"{name}: {type(error).__name__}: {str(error).strip()[:300]}", file=sys.stderr, flush=True)
        else:
            size = path.stat().st_size / 1e6
            print(f"{name}: {size:.0f} MB in {time.perf_counter() - begin:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
