"""Small models around one integer operator each, of ONNX and of ONNX Runtime's own domain (com.microsoft), as
its quantiser writes them: ``QUANTISED[name]()`` gives a seeded model with static shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["QUANTISED"]

#: An input of the model: its shape, and its dtype last; an array or a number of NumPy is a constant, "" an
#: input that is left out.
Given = tuple[Any, ...] | np.ndarray | np.generic | str

QUANTISED: dict[str, Callable[[], onnx.ModelProto]] = {}

RNG = np.random.default_rng(33)
MS = "com.microsoft"


def case(
    name: str,
    op: str,
    inputs: Sequence[Given],
    outputs: Sequence[str] = ("uint8",),
    *,
    domain: str = MS,
    of: int = 17,
    **attributes: Any,
) -> None:
    """Registers a model of one node, of the opset ``of``; ``outputs`` are the dtypes of what it gives."""

    def make() -> onnx.ModelProto:
        g = Graph(name, opset=of, ir_version=10 if of > 20 else 8)
        names = []
        for index, one in enumerate(inputs):
            if isinstance(one, tuple):
                names.append(g.input(f"input_{index}", one[:-1], one[-1]))
            else:
                names.append("" if isinstance(one, str) else g.const(one))
        results = [f"y{index}" for index in range(len(outputs))]
        g.nodes.append(onnx.helper.make_node(op, names, results, name="node", domain=domain, **attributes))
        for result, dtype in zip(results, outputs, strict=True):
            g.outputs.append(onnx.ValueInfoProto(name=result))
            element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            g.outputs[-1].type.tensor_type.elem_type = element
        return g.model()

    assert name not in QUANTISED, name
    QUANTISED[name] = make


def scale(value: float) -> np.float32:
    return np.float32(value)


def whole(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(max(limits.min, -500), min(int(limits.max), 500) + 1, shape).astype(dtype)


# elements ---------------------------------------------------------------------------------------------------

SHAPE = (2, 3, 5, 4)
for kind, zero in (("uint8", np.uint8(131)), ("int8", np.int8(-3))):
    a, b = (
        [(*SHAPE, kind), scale(0.021), zero],
        [(3, 1, 4, kind), scale(0.043), np.dtype(kind).type(7)],
    )
    out = [scale(0.05), np.dtype(kind).type(100)]
    case(f"q_add_{kind}", "QLinearAdd", [*a, *b, *out], (kind,))
    case(f"q_mul_{kind}", "QLinearMul", [*a, *b, *out], (kind,))
    case(f"q_sigmoid_{kind}", "QLinearSigmoid", [*a, scale(1 / 256), np.dtype(kind).type(0)], (kind,))
    case(f"q_leaky_{kind}", "QLinearLeakyRelu", [*a, *out], (kind,), alpha=0.2)
    lowest = np.iinfo(kind).min
    case(f"q_softmax_{kind}", "QLinearSoftmax", [*a, scale(1 / 256), np.dtype(kind).type(lowest)], (kind,),
         axis=-1, opset=13)  # fmt: skip
    case(f"q_where_{kind}", "QLinearWhere", [(5, 4, "bool"), *a, *b, *out], (kind,))
    case(f"q_concat_{kind}", "QLinearConcat", [*out, *a, (2, 2, 5, 4, kind), scale(0.1), zero, *a], (kind,),
         axis=1)  # fmt: skip
    case(f"q_pool_{kind}", "QLinearAveragePool", [*a, *out], (kind,), kernel_shape=[3, 3], pads=[1] * 4)
    case(f"q_global_pool_{kind}", "QLinearGlobalAveragePool", [*a, scale(0.006), zero], (kind,))
case("q_add_constant", "QLinearAdd", [(2, 3, "uint8"), scale(0.1), np.uint8(3), whole("uint8", 3), scale(0.2),
     np.uint8(0), scale(0.4), np.uint8(0)])  # fmt: skip
case("q_add_scales", "QLinearAdd", [(2, 3, "uint8"), ("float32",), ("uint8",), (3, "uint8"), scale(0.2),
     np.uint8(0), scale(0.4), np.uint8(0)])  # fmt: skip
case("q_softmax_rows", "QLinearSoftmax", [(2, 3, 40, "uint8"), scale(0.05), np.uint8(40), scale(1 / 255),
     np.uint8(0)], axis=1, opset=12)  # fmt: skip
IMAGE = [(1, 9, 8, 4, "uint8"), scale(0.02), np.uint8(120), scale(0.03), np.uint8(90)]
case("q_pool_last", "QLinearAveragePool", IMAGE, kernel_shape=[2, 3], strides=[2, 1], channels_last=1)
case("q_pool_counted", "QLinearAveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
     count_include_pad=1, ceil_mode=1)  # fmt: skip
case("q_pool_behind", "QLinearAveragePool", [(1, 2, 8, 8, "uint8"), scale(0.02), np.uint8(120), scale(0.031),
     np.uint8(90)], kernel_shape=[2, 2], strides=[3, 3], pads=[1] * 4, count_include_pad=1,
     ceil_mode=1)  # fmt: skip
case("q_global_pool_last", "QLinearGlobalAveragePool", IMAGE, channels_last=1)

# products ---------------------------------------------------------------------------------------------------

for kind, zero in (("uint8", np.uint8(131)), ("int8", np.int8(-3))):
    x = [(1, 4, 9, 8, kind), scale(0.02), zero]
    for weights in ("uint8", "int8") if kind == "uint8" else ("int8",):
        columns = np.float32([0.002, 0.003, 0.001, 0.002, 0.004, 0.001])
        zeros = whole(weights, 6) if weights == "uint8" else np.zeros(6, weights)
        w = [whole(weights, 6, 4, 3, 3), columns, np.zeros(6, "int8") if weights == "int8" else zeros]
        w[2] = np.full(6, 131, "uint8") if weights == "uint8" else w[2]
        y, bias = [scale(0.05), zero], whole("int32", 6)
        name = f"{kind}_{weights}"
        case(f"q_conv_{name}", "QLinearConv", [*x, *w, *y, bias], (kind,), domain="", pads=[1] * 4)
        grouped = [whole(weights, 6, 2, 3, 3), scale(0.002), w[2][0]]
        case(f"q_conv_groups_{name}", "QLinearConv", [*x, *grouped, *y], (kind,), domain="", group=2,
             strides=[2, 1], pads=[0, 1, 1, 0])  # fmt: skip
        a, matrix = [(2, 5, 8, kind), scale(0.02), zero], [whole(weights, 8, 6), columns, w[2]]
        case(f"q_matmul_{name}", "QLinearMatMul", [*a, *matrix, scale(0.01), zero], (kind,), domain="")
        ends = [matrix[0], scale(0.02), columns, zero, w[2], np.float32(columns * 9)]
        case(f"q_to_float_{name}", "MatMulIntegerToFloat", [a[0], *ends], ("float32",))
        flat = [(5, 8, kind), scale(0.02), zero]
        case(f"q_gemm_{name}", "QGemm", [*flat, *matrix, bias, scale(0.01), zero], (kind,), alpha=0.7)
        turned = [whole(weights, 6, 8), columns, w[2]]
        case(f"q_gemm_turned_{name}", "QGemm", [(8, 5, kind), *flat[1:], *turned, "", "", ""], ("float32",),
             transA=1, transB=1)  # fmt: skip
        case(f"q_conv_integer_{name}", "ConvInteger", [x[0], w[0], zero, w[2][0]], ("int32",), domain="",
             pads=[1] * 4)  # fmt: skip
        case(
            f"q_matmul_integer_{name}", "MatMulInteger", [a[0], matrix[0], zero, w[2]], ("int32",), domain=""
        )
        case(f"q_dynamic_matmul_{name}", "DynamicQuantizeMatMul",
             [(2, 5, 8, "float32"), *matrix, np.float32(columns * 9)], ("float32",))  # fmt: skip
NHWC = [(1, 9, 8, 4, "uint8"), scale(0.02), np.uint8(131)]
case("q_conv_last", "QLinearConv", [*NHWC, whole("int8", 6, 4, 3, 3), scale(0.002), np.int8(0), scale(0.05),
     np.uint8(100), whole("int32", 6)], channels_last=1, pads=[1] * 4)  # fmt: skip
case("q_conv_scales", "QLinearConv", [(1, 4, 5, 5, "uint8"), (1, "float32"), np.uint8([3]),
     whole("int8", 6, 4, 1, 1), (6, "float32"), np.zeros(6, "int8"), scale(0.5), np.uint8(9),
     whole("int32", 6)], domain="")  # fmt: skip
case("q_conv_1d", "QLinearConv", [(1, 4, 30, "uint8"), scale(0.02), np.uint8(9), whole("int8", 4, 1, 5),
     scale(0.01), np.int8(0), scale(0.05), np.uint8(100)], domain="", group=4, dilations=[2])  # fmt: skip
case("q_matmul_batch", "QLinearMatMul", [(2, 3, 5, 8, "uint8"), scale(0.02), np.uint8(3), (3, 8, 7, "int8"),
     scale(0.02), np.int8(0), scale(0.02), np.uint8(128)], domain="")  # fmt: skip
case("q_to_float_scales", "MatMulIntegerToFloat", [(2, 5, 8, "uint8"), whole("int8", 8, 6), (1, "float32"),
     np.float32([0.1] * 6), (1, "uint8"), np.zeros(6, "int8")], ("float32",))  # fmt: skip
for bits, block in ((4, 16), (8, 32), (2, 16), (4, 64)):
    blocks = -(-40 // block)
    packed = [whole("uint8", 6, blocks, block * bits // 8), RNG.uniform(0.01, 0.1, (6, blocks)).astype("f4")]
    points = whole("uint8", 6, -(-blocks * bits // 8))
    case(f"q_nbits_{bits}_{block}", "MatMulNBits", [(2, 5, 40, "float32"), *packed], ("float32",), K=40, N=6,
         bits=bits, block_size=block)  # fmt: skip
    case(f"q_nbits_zeros_{bits}_{block}", "MatMulNBits", [(5, 40, "float32"), *packed, points], ("float32",),
         K=40, N=6, bits=bits, block_size=block)  # fmt: skip

# transformers -----------------------------------------------------------------------------------------------

ROWS, WIDTH = (2, 6, 16), 16
QKV, MADE = whole("int8", WIDTH, 3 * WIDTH), RNG.standard_normal(3 * WIDTH).astype("f4")
FACTORS = [scale(0.02), scale(0.004)]
case("q_attention", "QAttention", [(*ROWS, "uint8"), QKV, MADE, *FACTORS, "", np.uint8(128), np.int8(0)],
     ("float32",), num_heads=4)  # fmt: skip
case("q_attention_mask", "QAttention", [(*ROWS, "uint8"), QKV, MADE, (1, "float32"),
     np.full(3 * WIDTH, 0.004, "f4"), np.int32([4, 6]), (1, "uint8"), np.zeros(3 * WIDTH, "int8")],
     ("float32",), num_heads=4, unidirectional=1)  # fmt: skip
case("q_attention_past", "QAttention", [(*ROWS, "uint8"), QKV, MADE, *FACTORS, "", np.uint8(128), np.int8(0),
     (2, 2, 4, 5, 4, "float32")], ("float32", "float32"), num_heads=4, unidirectional=1)  # fmt: skip
IDS = np.int32([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
for kind, zero in (("uint8", np.uint8(131)), ("int8", np.int8(-3))):
    tables = [whole(kind, rows, WIDTH) for rows in (11, 8, 2)]
    norm = [whole(kind, WIDTH), whole(kind, WIDTH)]
    points = [*map(scale, (0.02, 0.01, 0.03, 0.008, 0.004)), *[zero] * 5]
    mask = np.int32([[1] * 6, [1, 1, 1, 0, 0, 0]])
    case(f"q_embed_{kind}", "QEmbedLayerNormalization", [(2, 6, "int32"), IDS % 2, *tables, *norm, mask,
         *points], ("float32", "int32"))  # fmt: skip

# recurrent layers -------------------------------------------------------------------------------------------

for directions, kind, columns in ((1, "int8", False), (2, "uint8", True)):
    factor = [np.full((directions, 20) if columns else directions, f, "f4") for f in (0.004, 0.003)]
    point = np.full((directions, 20) if columns else directions, 131 if kind == "uint8" else 0, kind)
    recurrent = [whole(kind, directions, 8, 20), whole(kind, directions, 5, 20)]
    bias = RNG.standard_normal((directions, 40)).astype("f4")
    case(f"q_lstm_{directions}", "DynamicQuantizeLSTM",
         [(4, 2, 8, "float32"), *recurrent, bias, "", "", "", "", factor[0], point, factor[1], point],
         ("float32", "float32", "float32"), hidden_size=5,
         direction="forward" if directions == 1 else "bidirectional")  # fmt: skip
    state = (directions, 2, 5, "float32")
    peepholes = RNG.standard_normal((directions, 15)).astype("f4")
    case(f"q_lstm_states_{directions}", "DynamicQuantizeLSTM",
         [(3, 2, 8, "float32"), *recurrent, "", "", state, state, peepholes, factor[0], point, factor[1],
          point], ("float32", "float32", "float32"), hidden_size=5,
         direction="reverse" if directions == 1 else "bidirectional")  # fmt: skip

# quantise, dequantise ---------------------------------------------------------------------------------------

for kind in ("uint8", "int8", "uint16", "int16"):
    point = np.dtype(kind).type(100)
    step = scale(0.0001 if "16" in kind else 0.02)
    for domain, tag, opset in (("", "", 21), (MS, "_ms", 17)):
        case(f"q_quantize_{kind}{tag}", "QuantizeLinear", [(2, 3, 5, "float32"), step, point], (kind,),
             domain=domain, of=opset)  # fmt: skip
        case(f"q_dequantize_{kind}{tag}", "DequantizeLinear", [(2, 3, 5, kind), step, point], ("float32",),
             domain=domain, of=opset)  # fmt: skip
for kind in (ml_dtypes.int4, ml_dtypes.uint4):
    name = np.dtype(kind).name
    nibbles = RNG.integers(0, 8, (4, 6)).astype(kind)
    case(f"q_dequantize_{name}", "DequantizeLinear", [nibbles, np.float32([0.1, 0.2, 0.3, 0.4]),
         np.arange(4).astype(kind)], ("float32",), domain="", of=21, axis=0)  # fmt: skip
    case(
        f"q_dequantize_{name}_ms", "DequantizeLinear", [nibbles, scale(0.1), np.ones((), kind)], ("float32",)
    )
    case(f"q_dequantize_{name}_blocks", "DequantizeLinear", [nibbles,
         RNG.uniform(0.1, 1, (4, 3)).astype("f4")], ("float32",), domain="", of=21, axis=1,
         block_size=2)  # fmt: skip
case("q_quantize_axis", "QuantizeLinear", [(2, 3, 5, "float32"), np.float32([0.01, 0.02, 0.03]),
     np.uint8([1, 128, 255])], domain="", axis=-2)  # fmt: skip
case("q_quantize_axis_ms", "QuantizeLinear", [(2, 3, 5, "float32"), np.float32([0.01, 0.02, 0.03]),
     np.uint16([1, 128, 255])], ("uint16",), axis=1)  # fmt: skip
case("q_quantize_blocks", "QuantizeLinear", [(2, 6, "float32"), np.float32([[0.01, 0.02, 0.03]] * 2)],
     ("int8",), domain="", of=21, axis=1, block_size=2, output_dtype=3)  # fmt: skip
case("q_quantize_output_dtype", "QuantizeLinear", [(2, 6, "float32"), scale(0.001)], ("int16",), domain="",
     of=21, output_dtype=5)  # fmt: skip
case("q_quantize_run_time", "QuantizeLinear", [(2, 6, "float32"), (1, "float32"), (1, "uint8")],
     domain="")  # fmt: skip
case("q_dynamic", "DynamicQuantizeLinear", [(2, 3, 8, "float32")], ("uint8", "float32", "uint8"), domain="")
case("q_dequantize_blocks_signs", "DequantizeLinear", [RNG.integers(-8, 8, (4, 6)).astype(ml_dtypes.int4),
     np.float32([[-0.2, 0.1, 0], [0.3, -0.1, 0.2]] * 2)], ("float32",), domain="", of=21, axis=1,
     block_size=2)  # fmt: skip

# forms that may be left out ---------------------------------------------------------------------------------

case("q_nbits_bits_left_out", "MatMulNBits", [(5, 32, "float32"), whole("uint8", 6, 2, 8),
     np.float32([[0.1, -0.2], [0, 0.1], [0.3, 0.2]] * 2)], ("float32",), K=32, N=6,
     block_size=16)  # fmt: skip
for name, factor in (("", scale(0.02)), ("_run_time", (1, "float32"))):
    case(f"q_to_float_one_zero{name}", "MatMulIntegerToFloat", [(5, 8, "uint8"), whole("uint8", 8, 6), factor,
         np.float32([0.1, 0.2, 0.3] * 2), np.uint8(3), np.uint8(131)], ("float32",))  # fmt: skip
