"""Products of integers as other CPUs compute them, run under emulators: every sum is exact.

Each of the forms that ``edgepack/compiler/kernels/cpu/micro`` has for products of bytes and of int16, with
operands at both ends of their types, reductions from one element to beyond every unroll, zero points and
padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.options import RunOptions
from edgepack.runners.results import run_samples
from tests.compiler.kernels import test_quantised
from workbench.models import save
from workbench.models.builder import Graph

MULTI = "linux-aarch64-multi-i8mm"

#: By device and CPU that is emulated, "" where none is: how its products of bytes are computed; of a library
#: that takes what the CPU has, those of its kernels for any CPU.
FORMS = {
    ("raspberrypi4", "cortex-a72"): "quads of bytes",
    ("raspberrypi2", "cortex-a7"): "quads of bytes",
    ("linux-aarch64-v8.6", "max"): "eights of bytes",
    ("linux-riscv64-v", "rv64,v=true,vlen=128"): "pairs of int16",
    ("linux-aarch64-v8.2", "cortex-a76"): "quads of bytes",
    ("linux-riscv64-v", "rv64,v=true,vlen=512"): "pairs of int16",
    ("wasm32-wasi", ""): "pairs of int16",
    **{(MULTI, cpu): "quads of bytes" for cpu in ("cortex-a53", "cortex-a76", "max")},
}

#: Rows and columns of products, around the sizes of tiles.
SIZES = ((1, 25), (2, 9), (3, 8), (4, 17), (5, 3), (7, 24), (9, 1), (13, 32))
DEPTHS = (*range(1, 21), 31, 33, 47, 67)


def _sums(depth: int, size: int, ends: tuple[int, int] = (-127, 127)) -> onnx.ModelProto:
    """A product whose sums of int32 are the output, of weights at the ends of what all forms multiply."""
    g = Graph("sums", seed=depth)
    rows, columns = SIZES[size % len(SIZES)]
    weights = g.rng.choice(np.array(ends, np.int8), (depth, columns))
    zero = (0, 128, 255)[depth % 3]
    x = g.input("x", (rows, depth), "uint8")
    g.output(g.op("MatMulInteger", x, g.const(weights), g.const(np.uint8(zero)), name="y"), "int32")
    return g.model()


def _convolution(
    shape: tuple[int, ...],
    out: int,
    window: tuple[int, ...],
    groups: int = 1,
    result: tuple[float, int] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """QLinearConv whose weights are those of 8 bits without -128, both ends among them.

    Args:
        result: its scale and zero point, if not such that it fills 8 bits.
    """
    g = Graph("convolution")
    sizes = out, shape[1] // groups, *window
    weights = g.rng.integers(-127, 128, sizes).astype(np.int8)
    weights.reshape(-1)[: weights.size // 2] = g.rng.choice(np.array([-127, 127]), weights.size // 2)
    scale, zero = result or (0.05 * 0.0015 * 74 * 95 * np.prod(sizes[1:]) ** 0.5 / 60, 117)
    inputs = [
        *(g.input("x", shape, "uint8"), g.const(np.float32(0.05)), g.const(np.uint8(131))),
        *(g.const(weights), g.const(np.float32(0.0015)), g.const(np.int8(0))),
        *(g.const(np.float32(scale)), g.const(np.uint8(zero))),
        g.const(g.rng.integers(-9000, 9000, out).astype(np.int32)),
    ]
    g.output(g.op("QLinearConv", *inputs, name="y", group=groups, **attributes), "uint8")
    return g.model()


#: What is multiplied.
MODELS: dict[str, onnx.ModelProto] = {
    **{f"sums of {depth}": _sums(depth, depth) for depth in DEPTHS},
    **{f"sums of {8 * n} by {n}": _sums(8 * n, n) for n in range(1, 1 + len(SIZES))},
    # 16 bits do not hold two products of -128 by itself.
    "sums of the least": _sums(48, 7, (-128, -128)),
    "groups of 8": _convolution((1, 40, 9, 11), 40, (3, 3), 5, pads=[1] * 4),
    "groups of 4": _convolution((1, 20, 7, 9), 20, (3, 3), 5, pads=[0, 1, 2, 1]),
    "Winograd's form": _convolution((1, 32, 13, 14), 24, (3, 3), pads=[1] * 4),
    "window": _convolution((2, 20, 9, 8), 36, (3, 3), pads=[1, 0, 1, 2]),
    "first layer": _convolution((1, 3, 15, 13), 24, (3, 3), pads=[1] * 4, strides=[2, 2]),
    "signal": _convolution((1, 6, 40), 9, (5,), pads=[4, 4], dilations=[2]),
    "one channel": _convolution((1, 16, 11, 13), 1, (1, 1)),
    "depthwise": _convolution((1, 40, 11, 13), 40, (3, 3), 40, pads=[1] * 4),
    **{name: model for name, model in test_quantised.MODELS.items() if ", " in name},
}


def defined(name: str, x: np.ndarray) -> np.ndarray:
    model = MODELS[name]
    if not name.startswith("sums"):
        return test_quantised.defined(model, x)
    w, zero = (onnx.numpy_helper.to_array(t) for t in model.graph.initializer)
    return ((x.astype(np.int64) - zero) @ w.astype(np.int64)).astype(np.int32)


def joined(models: Mapping[str, onnx.ModelProto]) -> onnx.ModelProto:
    """One model with all of them side by side, whose names begin with a number each."""
    whole = onnx.ModelProto()
    for number, model in enumerate(models.values()):
        named = onnx.compose.add_prefix(model, f"m{number}_")
        if not number:
            whole.CopyFrom(named)
            continue
        for field in ("node", "initializer", "input", "output"):
            getattr(whole.graph, field).extend(getattr(named.graph, field))
    return whole


#: Of firmware, in `make test`: every kind of window, and reductions around a quad.
FEW = ("sums of 5", "sums of 67", "first layer", "window", "signal", "groups of 4")

#: Of emulated CPUs, in `make test`: every kind of window, and depths around the pairs, quads and eights of
#: their instructions and the unrolls of these. Weights of 7 bits have kernels of their own on x86 alone, and
#: pairs of int16 the same around their instruction as this machine's (``test_quantised.py``).
DEPTHS_AROUND = tuple(f"sums of {depth}" for depth in (1, 3, 4, 7, 9, 16, 17, 31))
SOME = {
    ("linux-aarch64-v8.6", "max"): (
        *("sums of 5", "sums of 67", *DEPTHS_AROUND, "sums of 24 by 3", "sums of 48 by 6", "sums of 64 by 8"),
        *(name for name in MODELS if not name.startswith("sums of ") and not name.endswith("s7")),
    ),
    ("linux-riscv64-v", "rv64,v=true,vlen=128"): (
        *(*FEW, *DEPTHS_AROUND, "sums of the least", "groups of 8", "one channel", "depthwise"),
        *("product, u8u8", "window, s8s8", "window in a wide image, u8s8"),
    ),
}


def _behind(first: onnx.ModelProto, second: onnx.ModelProto) -> onnx.ModelProto:
    """Two models, one behind the other, so that what lies between is as the target keeps it."""
    parts = [onnx.compose.add_prefix(model, f"p{i}_") for i, model in enumerate((first, second))]
    return onnx.compose.merge_models(*parts, io_map=[("p0_y", "p1_x")])


def _through(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What a model of quantised operators one behind the other gives."""
    for node in model.graph.node:
        one = onnx.ModelProto()
        one.CopyFrom(model)
        del one.graph.node[:]
        one.graph.node.append(node)
        x = test_quantised.defined(one, x)
    return x


#: Depthwise convolutions of channels last: a number of channels that is no multiple of 4, steps, few columns.
DEPTHWISE = [
    _behind(
        _convolution((1, 8, *size), channels, (1, 1), result=(0.05, 131)),
        _convolution((1, channels, *size), channels, window, channels, **attributes),
    )
    for size, channels, window, attributes in (
        ((9, 11), 18, (3, 3), {"pads": [1] * 4}),
        ((12, 7), 24, (3, 3), {"pads": [0, 0, 1, 1], "strides": [2, 2]}),
        ((3, 8), 5, (3, 5), {"pads": [2, 2, 0, 2]}),
    )
]


#: By device, what its kernels multiply.
FIRMWARE = {
    "cortex-m4": {"quads of bytes", "words of bytes", "pairs of int16"},
    "cortex-m33": {"quads of bytes", "words of bytes", "pairs of int16"},
    "cortex-m55": {"runs of bytes"},
    "esp32-c3": {"bytes"},
    "cortex-m0plus": {"bytes"},
}


@pytest.mark.parametrize(
    ("device", "names"),
    [
        *((one, FEW) for one in ("cortex-m4", "cortex-m55")),
        *(pytest.param(one, tuple(MODELS), marks=pytest.mark.slow) for one in FIRMWARE),
    ],
)
def test_every_sum_is_exact_in_firmware(device: str, names: tuple[str, ...], tmp_path: Path) -> None:
    """The image holds inputs and results: the board reads no files."""
    rng, inputs, expected = np.random.default_rng(7), {}, {}
    models = {name: MODELS[name] for name in names}
    for number, model in enumerate([*models.values(), *DEPTHWISE]):
        (spec,), (result,) = model.graph.input, model.graph.output
        dtype = onnx.helper.tensor_dtype_to_np_dtype(spec.type.tensor_type.elem_type)
        shape = [d.dim_value for d in spec.type.tensor_type.shape.dim]
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        y = defined(names[number], x) if number < len(names) else _through(model, x)
        for known, tensor, value in ((inputs, spec, x), (expected, result, y)):
            path = known[f"m{number}_{tensor.name}"] = tmp_path / f"{number}-{tensor.name}.npy"
            np.save(path, value)
    behind = {str(number): model for number, model in enumerate(DEPTHWISE)}
    path = save(joined({**models, **behind}), tmp_path, "forms.onnx")
    bundle = edgepack.pack(path, device, tmp_path / "bundle", inputs=inputs, expected=expected)
    assert all("no FPU" in text for text in bundle.manifest.warnings)
    kernels = {str(kernel.parameters.get("operands")) for kernel in bundle.manifest.kernels}
    assert kernels >= FIRMWARE[device]
    found = bundle.verify()
    assert found.ok, found


@pytest.mark.parametrize(
    ("device", "cpu", "names"),
    [
        *(pytest.param(*form, names, id="-".join(form)) for form, names in SOME.items()),
        *(pytest.param(*f, tuple(MODELS), id="-".join((*f, "all")), marks=pytest.mark.slow) for f in FORMS),
    ],
)
def test_every_sum_is_exact(device: str, cpu: str, names: tuple[str, ...], tmp_path: Path) -> None:
    models = {name: MODELS[name] for name in names}
    path = save(joined(models), tmp_path, "forms.onnx")
    bundle = edgepack.pack(path, load_device(device), tmp_path / "bundle")
    assert not [text for text in bundle.manifest.warnings if "failed" in text]
    assert any(FORMS[device, cpu] in str(k.parameters) for k in bundle.manifest.kernels)
    emulated = bundle.manifest.device
    if cpu:
        emulated = emulated.model_copy(update={"runner": emulated.runner.model_copy(update={"cpu": cpu})})
    manifest = bundle.manifest.model_copy(update={"device": emulated})
    samples: dict[str, list[np.ndarray]] = {}
    for sample in ("ends", "all"):
        (folder := tmp_path / sample).mkdir()
        samples[sample] = []
        rng = np.random.default_rng(len(sample))
        for number, one in enumerate(models.values()):
            (spec,) = one.graph.input
            info = np.iinfo(onnx.helper.tensor_dtype_to_np_dtype(spec.type.tensor_type.elem_type))
            values = [info.min, info.max] if sample == "ends" else range(info.min, info.max + 1)
            shape = [d.dim_value for d in spec.type.tensor_type.shape.dim]
            x = rng.choice(np.array(values, info.dtype), shape)
            x.tofile(folder / f"input_{number}.bin")
            samples[sample].append(x)
    (place := tmp_path / "results").mkdir()
    run_samples(
        bundle.path,
        manifest,
        [tmp_path / s for s in samples],
        place,
        RunOptions(runner="qemu" if cpu else None),
    )
    for sample, inputs in samples.items():
        for number, (name, x) in enumerate(zip(models, inputs, strict=True)):
            expected = defined(name, x)
            found = np.fromfile(place / sample / f"output_{number}.bin", expected.dtype)
            np.testing.assert_array_equal(found.reshape(expected.shape), expected, err_msg=name)
