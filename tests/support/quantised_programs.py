"""Quantised modules, as PT2E and torchao make them, packed: a part of ``tests.support.torch_programs``."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import edgepack
from edgepack.compiler.frontend.torch.to_onnx import export
from edgepack.programs.exporting import exported_program
from edgepack.programs.flat import flattened
from workbench.models.evaluate import run_onnxruntime

__all__ = ["quantised"]


class Image(nn.Module):
    """A convolution, a depthwise one, a sum, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.depth = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.head = nn.Linear(16, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).relu()
        result: torch.Tensor = self.head((x + self.depth(x)).mean((2, 3)))
        return result


def mlp() -> nn.Sequential:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 24)).eval()


class Bounds(nn.Module):
    """Integers bound closer than their type, and int8 by channels and by rows of run-time scales."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ops = torch.ops.quantized_decomposed
        low = ops.quantize_per_tensor(x, 0.1, 3, -5, 6, torch.int8)
        found = ops.choose_qparams_symmetric(x, -127, 127, 1e-6, torch.int8)
        own = ops.quantize_per_tensor(x, *found, -127, 127, torch.int8)
        scales, zeros = torch.linspace(0.1, 0.9, 8), torch.arange(8)
        rows = ops.quantize_per_channel(x, scales, zeros, 1, -20, 20, torch.int8)
        token = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
        tokens = ops.quantize_per_token(x, *token, -128, 127, torch.int8)
        return (
            ops.dequantize_per_tensor(low, 0.1, 3, -5, 6, torch.int8),
            ops.dequantize_per_tensor(own, *found, -127, 127, torch.int8),
            ops.dequantize_per_channel(rows, scales, zeros, 1, -20, 20, torch.int8),
            ops.dequantize_per_token(tokens, *token, -128, 127, torch.int8, torch.float32),
        )


class Odd(nn.Module):
    """Blocks over two axes, and a float of 8 bits, which QuantizeLinear does not make."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ops, one = torch.ops.torchao, torch.ones(2, 2)
        squares = ops.quantize_affine(x, [2, 4], one, torch.zeros(2, 2, dtype=torch.int32), torch.int8)
        return squares, ops.quantize_affine_float8_non_decomposed(x, torch.ones(1, 1), torch.float8_e4m3fn)


def through_pt2e(module: nn.Module, x: torch.Tensor, *, dynamic: bool) -> torch.nn.Module:
    """Prepared, calibrated and converted."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    prepared = prepare_pt2e(
        torch.export.export(module, (x,)).module(), xnnpack.XNNPACKQuantizer().set_global(config)
    )
    prepared(x)
    converted: torch.nn.Module = convert_pt2e(prepared)
    return converted


def packed(folder: Path, name: str, model: Any, **options: Any) -> dict[str, Any]:
    """The bundle of a model, verified: how far off, and what its products multiply."""
    bundle = edgepack.pack(model, "host", folder / name, name=name, **options)
    found = bundle.verify()
    products = [one for one in bundle.inspect()["kernels"] if one["rule"].startswith(("conv2d", "matmul"))]
    return {
        "ok": found.ok,
        "reference": found.reference,
        "error": max(one.max_abs_err / one.max_abs_ref for one in found.outputs),
        "operands": [one["parameters"].get("operands", "") for one in products],
    }


def onnx_beside_eager(folder: Path, name: str, module: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """A module's ONNX model: its operators, and how far ONNX Runtime is off of the module."""
    import onnx

    (folder / name).mkdir()
    found = export(flattened(exported_program(module, x), name), folder / name, name)
    results, eager = run_onnxruntime(found.path, found.inputs), found.eager(found.inputs)
    off = [float(np.abs(a - b).max()) for a, b in zip(results, eager.values(), strict=True)]
    model = onnx.load(str(found.path))
    return {"operators": sorted({node.op_type for node in model.graph.node}), "worst": max(off)}


def quantised(folder: Path) -> dict[str, Any]:
    """Everything, where torchao is installed."""
    if importlib.util.find_spec("torchao") is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torchao.quantization as ao

    per_row = ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int8, weight_granularity=ao.PerAxis(0)
    )
    both = mlp()
    image, rows = torch.randn(2, 3, 12, 12), torch.randn(2, 5, 64)
    ao.quantize_(both, ao.Int8DynamicActivationInt8WeightConfig(), lambda _, name: name == "0")
    ao.quantize_(both, per_row, lambda _, name: name == "2")
    network = nn.Sequential(through_pt2e(Image().eval(), image, dynamic=False), both)
    found: dict[str, Any] = {"network": packed(folder, "network", network, example_inputs=image)}
    kinds: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
        "int4 groups": lambda: (
            _by(ao, ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(16))),
            rows,
        ),
        "int8 channels": lambda: (
            _by(ao, ao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=ao.PerAxis(0))),
            rows[0],
        ),
        "pt2e dynamic": lambda: (through_pt2e(mlp(), rows[0], dynamic=True), rows[0]),
        "bounds": lambda: (Bounds(), torch.randn(3, 8) * 4),
    }
    for name, made in kinds.items():
        found[name] = onnx_beside_eager(folder, name, *made())
    try:
        onnx_beside_eager(folder, "odd", Odd(), torch.randn(4, 8))
    except edgepack.ModelError as error:
        found["odd"] = error.message
    return found


def _by(ao: Any, config: Any) -> nn.Module:
    module = mlp()
    ao.quantize_(module, config)
    return module
