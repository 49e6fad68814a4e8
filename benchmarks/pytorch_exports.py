"""PyTorch modules as their users have them, packed and verified: ``pytorch_exports.py [NAME ...] [--write]``.

``edgepack.pack(module, example_inputs=...)`` of 40 named networks of timm, torchvision and transformers, and
of 20 that a seed draws from ``timm.list_models()`` and transformers' types of models; random weights, nothing
is downloaded. Each is verified against the eager module. Results are kept in build/pytorch_exports.json, so
that a run goes on where the last one stopped; ``--write`` puts the table into notes/exported-modules.md.
Needs PyTorch, timm, torchvision and transformers beside edgepack.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from torch_networks import tolerate_torchvision

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "pytorch_exports.json"
HEADING = "Exported modules"

NAMED = (
    *(f"timm/{name}" for name in ("resnet18", "resnet50", "mobilenetv2_100", "mobilenetv3_large_100")),
    *(f"timm/{name}" for name in ("efficientnet_b0", "efficientnet_lite0", "convnext_atto", "regnety_004")),
    *(f"timm/{name}" for name in ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "densenet121")),
    *(f"timm/{name}" for name in ("mobilevit_s", "edgenext_xx_small", "levit_128s", "mixnet_s", "repvgg_a0")),
    *(f"timm/{name}" for name in ("poolformer_s12", "mobileone_s0", "fastvit_t8", "efficientformer_l1")),
    *(
        f"timm/{name}"
        for name in (
            "coat_tiny",
            "swin_tiny_patch4_window7_224",
            "hardcorenas_a",
            "tinynet_e",
            "ghostnet_100",
        )
    ),
    *(f"torchvision/{name}" for name in ("squeezenet1_0", "mnasnet0_5", "shufflenet_v2_x1_0", "vgg11")),
    *("torchvision/lraspp_mobilenet_v3_large", "torchvision/deeplabv3_mobilenet_v3_large"),
    *(f"transformers/{name}" for name in ("albert", "distilbert", "electra_small", "mobilebert", "gpt2")),
    *(f"transformers/{name}" for name in ("segformer", "wav2vec2", "whisper_encoder", "hifigan")),
)
SEED, DRAWN = 20261125, 20
#: Of drawn networks: the most parameters, and the largest image.
MOST_PARAMS, LARGEST_IMAGE = 40_000_000, 256
SECONDS = 900


def build(name: str) -> tuple[Any, dict[str, Any]]:
    """A module with random weights, and its arguments by name."""
    tolerate_torchvision()
    import torch
    from real_networks import _built, _liven

    torch.manual_seed(0)
    kind, _, model = name.partition("/")
    module, inputs = _drawn_transformer(model) if kind == "type" else _built(name)
    module = module.eval()
    if kind != "type":
        _liven(module, inputs)
    if kind in {"timm", "torchvision"}:
        (image,) = inputs.values()
        return module.eval(), {"": image}
    return module.eval(), inputs


def _drawn_transformer(kind: str) -> tuple[Any, dict[str, Any]]:
    """A type of models of transformers, of two layers where its configuration counts them."""
    import torch
    import transformers

    config = transformers.CONFIG_MAPPING[kind]()
    for attribute in (
        "num_hidden_layers",
        "num_layers",
        "n_layers",
        "n_layer",
        "encoder_layers",
        "decoder_layers",
    ):
        if isinstance(getattr(config, attribute, None), int):
            setattr(config, attribute, 2)
    for attribute in ("use_cache", "output_attentions", "output_hidden_states"):
        if hasattr(config, attribute):
            setattr(config, attribute, False)
    module = transformers.AutoModel.from_config(config)
    size = getattr(config, "image_size", 224)
    size = size if isinstance(size, int) else 224
    shapes = {
        "input_ids": lambda: torch.randint(3, config.vocab_size, (1, 32)),
        "pixel_values": lambda: torch.randn(1, getattr(config, "num_channels", 3), size, size),
        "input_values": lambda: torch.randn(1, 8000),
    }
    name = str(module.main_input_name)
    return module, {name: shapes[name]()}


def draw() -> list[str]:
    """The drawn networks: those that can be made and are not too large, in the order in which a seed has
    them."""
    found = []
    chosen = random.Random(SEED)
    tolerate_torchvision()
    import timm
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    images = [f"timm/{name}" for name in timm.list_models()]
    types = [f"type/{name}" for name in MODEL_MAPPING_NAMES]
    for pool, count in ((images, DRAWN * 7 // 10), (types, DRAWN * 3 // 10)):
        taken = 0
        while taken < count:
            name = chosen.choice(pool)
            if name not in found and name not in NAMED and _fits(name):
                found.append(name)
                taken += 1
    return found


def _fits(name: str) -> bool:
    """Whether a drawn network can be made, run and is not too large. Of timm's, the size is known from its
    name."""
    import torch

    try:
        with torch.device("meta"):  # nothing is in memory yet
            if name.startswith("timm/"):
                import timm

                module = timm.create_model(name[5:], pretrained=False)
                if module.pretrained_cfg.get("input_size", (3, 224, 224))[-1] > LARGEST_IMAGE:
                    return False
            else:
                module, _ = _drawn_transformer(name[5:])
        if sum(value.numel() for value in module.parameters()) > MOST_PARAMS:
            return False
        if name.startswith("type/"):
            module, inputs = _drawn_transformer(name[5:])
            with torch.no_grad():
                module.eval()(**inputs)
        return True
    except Exception:  # what it needs is not there, or it takes other inputs
        return False


def pack(name: str) -> dict[str, Any]:
    """What becomes of one network."""
    import edgepack

    module, inputs = build(name)
    began = time.perf_counter()
    given = (inputs[""],) if "" in inputs else inputs
    found: dict[str, Any] = {"params": sum(value.numel() for value in module.parameters()) / 1e6}
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = edgepack.pack(module, "host", Path(folder) / "bundle", example_inputs=given, name="net")
            checked = bundle.verify()
            errors = [one.max_abs_err / (one.max_abs_ref or 1) for one in checked.outputs]
            found |= {"ok": checked.ok, "error": max(errors), "outputs": len(errors), "said": ""}
        except edgepack.EdgepackError as error:
            found |= {"ok": False, "said": error.message}
    return {**found, "seconds": time.perf_counter() - began}


def _child(name: str) -> dict[str, Any]:
    """:func:`pack` in a process of its own."""
    command = [sys.executable, __file__, "--one", name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "said": f"not done after {SECONDS} s"}
    if done.returncode:
        return {"ok": False, "said": (done.stderr.strip().splitlines() or ["the process died"])[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def text_of(results: dict[str, dict[str, Any]]) -> str:
    """The section of notes/."""
    import torch

    passed = sum(one["ok"] for one in results.values())
    rows = []
    for name, one in results.items():
        said = one["said"].replace("|", "/").replace("\n", " ")[:120] if not one["ok"] else ""
        error = f"{one['error']:.0e}" if "error" in one else ""
        rows.append(
            [f"`{name}`", "yes" if one["ok"] else "**no**", f"{one.get('params', 0):.1f}", error, said]
        )
    about = (
        f"{passed} of {len(results)} networks of timm, torchvision and transformers, with random "
        "weights, are packed for this "
        f"machine and verified against the eager module ({time.strftime('%Y-%m-%d')}, PyTorch "
        f"{torch.__version__.partition('+')[0]}). Those behind `{NAMED[-1]}` are drawn by a seed; "
        "`type/NAME` is a type "
        "of models of transformers, of two layers. The error is the largest of an output, relative to "
        "its largest value."
    )
    head = ["module", "packed and verified", "M params", "error", "what edgepack says"]
    return f"{about}\n\n{table(head, rows, left=2)}"


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--write", action="store_true", help="put the table into notes/")
    parser.add_argument("--anew", action="store_true", help="forget what is known")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(pack(options.one)))
        return 0
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() and not options.anew else {}
    if "drawn" not in kept:
        kept["drawn"] = draw()
    names = options.names or [*NAMED, *kept["drawn"]]
    results = kept.setdefault("results", {})
    for number, name in enumerate(names):
        if options.names or name not in results:
            results[name] = _child(name)
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        one = results[name]
        print(f"{number + 1:3} {name:40} {'ok' if one['ok'] else one['said']}", flush=True)
    if options.write:
        chosen = {name: results[name] for name in (*NAMED, *kept["drawn"]) if name in results}
        replace_section(HEADING, text_of(chosen), "pytorch_exports.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
