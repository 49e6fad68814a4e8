"""A network of ``gpu.py pack`` in JAX, jitted as a whole: no ONNX is needed. Constants of integers are
NumPy's, so that shapes are known when it is traced; weights are arguments, which XLA does not fold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

__all__ = ["inputs_of", "network_of", "time_jax", "weights_of"]

Array = Any
Attributes = Mapping[str, Any]


def _pads(x: Array, a: Attributes) -> list[tuple[int, int]]:
    """Padding of each spatial axis, before and behind."""
    if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or a.get("ceil_mode", 0):
        raise NotImplementedError("padding that is not written out")
    spatial = x.ndim - 2
    pads = a.get("pads", [0] * (2 * spatial))
    return list(zip(pads[:spatial], pads[spatial:], strict=True))


def _strides(x: Array, a: Attributes, name: str = "strides") -> list[int]:
    return list(a.get(name, [1] * (x.ndim - 2)))


def _with_bias(y: Array, b: Array | None) -> Array:
    return y if b is None else y + b.reshape(1, -1, *[1] * (y.ndim - 2))


def _conv(a: Attributes, x: Array, w: Array, b: Array | None = None) -> Array:
    y = lax.conv_general_dilated(
        x,
        w,
        _strides(x, a),
        _pads(x, a),
        rhs_dilation=_strides(x, a, "dilations"),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        feature_group_count=a.get("group", 1),
    )
    return _with_bias(y, b)


def _conv_transpose(a: Attributes, x: Array, w: Array, b: Array | None = None) -> Array:
    """As a convolution of x with zeros between its elements, by the weights turned round."""
    if a.get("group", 1) != 1 or any(d != 1 for d in _strides(x, a, "dilations")) or "output_shape" in a:
        raise NotImplementedError("a transposed convolution of groups, with dilations or of a given shape")
    more = a.get("output_padding", [0] * (x.ndim - 2))
    sizes = zip(w.shape[2:], _pads(x, a), more, strict=True)
    y = lax.conv_general_dilated(
        x,
        jnp.flip(w, (2, 3)),
        [1] * (x.ndim - 2),
        [(k - 1 - low, k - 1 - high + extra) for k, (low, high), extra in sizes],
        lhs_dilation=_strides(x, a),
        dimension_numbers=("NCHW", "IOHW", "NCHW"),
    )
    return _with_bias(y, b)


def _windows(a: Attributes, x: Array, start: float, function: Callable[..., Array]) -> Array:
    window, strides = (1, 1, *a["kernel_shape"]), (1, 1, *_strides(x, a))
    return lax.reduce_window(
        x, np.asarray(start, x.dtype), function, window, strides, [(0, 0), (0, 0), *_pads(x, a)]
    )


def _average_pool(a: Attributes, x: Array) -> Array:
    total = _windows(a, x, 0.0, lax.add)
    if a.get("count_include_pad", 0):
        return total / np.prod(a["kernel_shape"]).astype(x.dtype)
    return total / _windows(a, jnp.ones_like(x), 0.0, lax.add)


def _gemm(a: Attributes, x: Array, y: Array, c: Array | None = None) -> Array:
    product = a.get("alpha", 1.0) * jnp.matmul(x.T if a.get("transA") else x, y.T if a.get("transB") else y)
    return product if c is None else product + a.get("beta", 1.0) * c


def _clip(a: Attributes, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    low = low if low is None else jnp.asarray(low, x.dtype)
    return jnp.clip(x, low, high if high is None else jnp.asarray(high, x.dtype))


def _reshape(a: Attributes, x: Array, shape: np.ndarray) -> Array:
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def _softmax(a: Attributes, x: Array) -> Array:
    """Summed up in float32, as PyTorch does."""
    wide = x.astype(jnp.float32)
    if a["opset"] < 13:  # over all axes from the given one
        axis = a.get("axis", 1)
        flat = wide.reshape(*x.shape[:axis], -1)
        return jax.nn.softmax(flat, -1).reshape(x.shape).astype(x.dtype)
    return jax.nn.softmax(wide, a.get("axis", -1)).astype(x.dtype)


def _unsqueeze(a: Attributes, x: Array, axes: np.ndarray | None = None) -> Array:
    return jnp.expand_dims(x, tuple(int(i) for i in (a["axes"] if axes is None else axes)))


def _flatten(a: Attributes, x: Array) -> Array:
    return x.reshape(int(np.prod(x.shape[: a.get("axis", 1)])), -1)


def _layer_norm(a: Attributes, x: Array, w: Array, b: Array | None = None) -> Array:
    """Mean and variance in float32."""
    axes = tuple(range(a.get("axis", -1) % x.ndim, x.ndim))
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(axes, keepdims=True)
    scale = lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + a.get("epsilon", 1e-5))
    y = (centred * scale).astype(x.dtype) * w
    return y if b is None else y + b


def _reduce_mean(a: Attributes, x: Array) -> Array:
    return x.mean(tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1)))


OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "Clip": _clip,
    "Concat": lambda a, *x: jnp.concatenate(x, a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": lambda a, x, y: x / y,
    "Erf": lambda a, x: lax.erf(x),
    "Flatten": _flatten,
    "Gather": lambda a, x, indices: jnp.take(x, indices, a.get("axis", 0)),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdims=True),
    "Identity": lambda a, x: x,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda a, x, y: jnp.matmul(x, y),
    "MaxPool": lambda a, x: _windows(a, x, -np.inf, lax.max),
    "Mul": lambda a, x, y: x * y,
    "Pow": lambda a, x, y: jnp.power(x, y),
    "ReduceMean": _reduce_mean,
    "Relu": lambda a, x: jax.nn.relu(x),
    "Reshape": _reshape,
    "Sigmoid": lambda a, x: jax.nn.sigmoid(x),
    "Softmax": _softmax,
    "Sqrt": lambda a, x: jnp.sqrt(x),
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: jnp.tanh(x),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Unsqueeze": _unsqueeze,
}


def network_of(described: dict[str, Any], dtype: Any) -> Callable[..., list[Array]]:
    """The network as a jitted function of its weights, by name, and its inputs, in order.

    Float32 is multiplied as float32, not as TF32.

    Args:
        described: what ``graph_of`` of ``gpu_graph.py`` returns.
        dtype: of weights and activations.
    """
    known = {
        name: np.asarray(constant["values"], constant["dtype"]).reshape(constant["shape"])
        for name, constant in described["constants"].items()
        if not constant["dtype"].startswith("float")
    }

    def run(weights: Mapping[str, Array], *inputs: Array) -> list[Array]:
        names = (one["name"] for one in described["inputs"])
        values: dict[str, Any] = {"": None, **known, **weights, **dict(zip(names, inputs, strict=True))}
        for kind, names, results, attributes in described["nodes"]:
            arguments = [values[name] for name in names]
            if kind == "Cast":
                floating = np.issubdtype(np.dtype(attributes["to"]), np.floating)
                values[results[0]] = arguments[0].astype(dtype if floating else attributes["to"])
            else:
                given = {**attributes, "opset": described["opset"]}
                values[results[0]] = OPERATORS[kind](given, *arguments)
        return [values[name] for name in described["outputs"]]

    def precise(weights: Mapping[str, Array], *inputs: Array) -> list[Array]:
        with jax.default_matmul_precision("highest"):
            return run(weights, *inputs)

    return jax.jit(precise if dtype == np.float32 else run)


def weights_of(described: dict[str, Any], dtype: Any) -> dict[str, np.ndarray]:
    """Weights by name: drawn at random from a seed, but for a few numbers, which are the model's."""
    random = np.random.default_rng(0)
    drawn = {}
    for name, constant in described["constants"].items():
        if constant["dtype"].startswith("float"):
            values = constant.get("values")
            if values is None:
                values = 0.02 * random.standard_normal(constant["shape"], np.float32)
            drawn[name] = np.asarray(values, np.float32).reshape(constant["shape"]).astype(dtype)
    return drawn


def inputs_of(described: dict[str, Any], dtype: Any) -> list[np.ndarray]:
    """Random inputs; integers, of 32 bits as JAX has them, are 1."""
    random = np.random.default_rng(1)
    return [
        np.ones(one["shape"], np.int32)
        if one["integer"]
        else random.standard_normal(one["shape"], np.float32).astype(dtype)
        for one in described["inputs"]
    ]


def time_jax(
    graph: Path, precision: str, options: Any, timed: Callable[[Any, Any, Any], float]
) -> dict[str, float]:
    """JAX's jit; float16 in all tensors where that is the precision.

    Args:
        timed: the function of ``gpu.py``.
    """
    if jax.default_backend() != "gpu":
        raise NotImplementedError("this JAX has no CUDA")
    described = json.loads(graph.read_text(encoding="utf-8"))
    dtype = np.float16 if precision == "fp16" else np.float32
    function = network_of(described, dtype)
    weights = jax.device_put(weights_of(described, dtype))
    on_host = inputs_of(described, dtype)
    on_gpu = jax.device_put(on_host)
    last: list[Any] = []

    def device_to_device() -> None:
        last[:] = function(weights, *on_gpu)

    def host_to_host() -> None:
        for output in function(weights, *on_host):
            np.asarray(output)

    return {
        "device_us": timed(device_to_device, lambda: jax.block_until_ready(last), options),
        "host_us": timed(host_to_host, lambda: None, options),
    }
