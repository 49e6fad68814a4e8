"""How near quantised networks are to their float models: ``python benchmarks/quantisation.py [NETWORK ...]``.

Each network has random weights. It is quantised with 8 random samples, and the outputs are compared on 8
others; the rows are those of notes/2026-11-25-quantising.md. ONNX Runtime's own quantiser gets the same
prepared float model and samples, with its defaults but for a scale per channel.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

import onnx

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.quantise.command import quantise
from edgepack.compiler.frontend.onnx.quantise.comparison import compared_outputs, least
from edgepack.compiler.frontend.onnx.quantise.float_model import float_model
from edgepack.compiler.frontend.onnx.quantise.samples import RANDOM_SAMPLES
from edgepack.compiler.frontend.onnx.sampling import random_inputs
from edgepack.plan.quantisation import QuantiseSettings, UserFiles
from workbench.models import DIMS, build, save

NETWORKS = (
    *("resnet18", "mobilenetv2", "mobilenetv3", "efficientnet", "regnet", "ds_cnn", "unet_resize", "yolo"),
    *("convnext", "vit", "segformer", "bert", "tcn", "mlp"),
)

#: Of the samples that are compared.
OTHER_SEED = 1000

#: By column, what is asked for.
SETTINGS: dict[str, dict[str, Any]] = {
    "minmax, biases as they are": {"bias_correction": False},
    "minmax": {},
    "percentile": {"method": "percentile"},
    "entropy": {"method": "entropy"},
    "symmetric": {"symmetric": True},
}


def row(name: str, folder: Path) -> list[str]:
    """The network's signal-to-noise ratios in decibels, that of ONNX Runtime's quantiser first."""
    path = save(build(name), folder, f"{name}.onnx")
    options = ImportOptions(dims=DIMS.get(name, {}))
    model = float_model(path, options, [])
    others = [random_inputs(model, OTHER_SEED + number) for number in range(RANDOM_SAMPLES)]

    def ratio(made: onnx.ModelProto) -> str:
        return f"{least(compared_outputs(model, made, others)):.1f}"

    cells = [ratio(_plain(model, folder))]
    for settings in SETTINGS.values():
        quantise(path, options, folder, QuantiseSettings(**settings), UserFiles(), lambda *_: None)
        cells.append(ratio(onnx.load(str(folder / "quantised.onnx"))))
    return [name, *cells]


def _plain(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """What ONNX Runtime's quantiser makes of the model."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    samples = iter([random_inputs(model, number) for number in range(RANDOM_SAMPLES)])

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(samples, None)

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    path = folder / "plain.onnx"
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(copy, str(path), Reader(), per_channel=True, **types)
    return onnx.load(str(path))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Compare ways to quantise networks.")
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    columns = ["network", "ONNX Runtime's `quantize_static`", *SETTINGS]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.networks:
            print(f"| {' | '.join(row(name, Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main()
