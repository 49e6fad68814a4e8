"""Reductions over every axis, softmax, norms, cumulative sums, argmax, top k."""

from __future__ import annotations

import numpy as np

from workbench.models.builder import Graph
from workbench.models.realistic.row import IMAGE, TOKENS, between, one, row

#: Name of the axes, axes.
_AXES = {"last": [-1], "first": [0], "middle": [1], "all": None}

for _op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd"):
    for _name, _axes in _AXES.items():
        _others = [] if _axes is None else [np.int64(_axes)]
        one(f"{_op.lower()} {_name}", _op, [32, 128, 192], *_others, opset=18, draw=between(0.9, 1.1))
for _op in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"):
    one(f"{_op.lower()} last", _op, [32, 128, 192], np.int64([-1]), opset=18, draw=between(0.9, 1.1))
one("reducelogsumexp middle", "ReduceLogSumExp", [32, 128, 192], np.int64([1]), opset=18)
one("reducemean two outer", "ReduceMean", [32, 128, 192], np.int64([0, 2]), opset=18)
one("reducesum int64", "ReduceSum", [32, 128, 192], np.int64([-1]), opset=13, dtype="int64")
one("reducemax int32", "ReduceMax", [32, 128, 192], np.int64([1]), opset=18, dtype="int32")
one("reducesum float64", "ReduceSum", [32, 128, 192], np.int64([-1]), opset=18, dtype="float64")

for _op in ("ArgMax", "ArgMin"):
    one(f"{_op.lower()} last", _op, [256, 1000], axis=-1, to="int64")
    one(f"{_op.lower()} channels", _op, [1, 21, 128, 128], axis=1, keepdims=0, to="int64")
one("argmax of one row", "ArgMax", [1, 32000], axis=-1, to="int64")
one("hardmax", "Hardmax", [256, 1000], axis=-1)

one("softmax last", "Softmax", [12, 128, 128], axis=-1)
one("softmax channels", "Softmax", [1, 21, 128, 128], axis=1)
one("softmax middle", "Softmax", [16, 64, 64], axis=1)
one("softmax long", "Softmax", [4, 32000], axis=-1)
one("logsoftmax last", "LogSoftmax", [128, 1000], axis=-1)
one("logsoftmax channels", "LogSoftmax", [1, 21, 128, 128], axis=1)

one("cumsum last", "CumSum", [256, 1000], np.int64(-1))
one("cumsum first", "CumSum", [1000, 256], np.int64(0))
one("cumsum exclusive", "CumSum", [256, 1000], np.int64(-1), exclusive=1)
one("cumsum reverse", "CumSum", [64, 32, 128], np.int64(1), reverse=1)
one("cumsum int64", "CumSum", [64, 1024], np.int64(1), dtype="int64")
one("cumsum of one row", "CumSum", [100000], np.int64(0))


def _top_k(name: str, shape: list[int], k: int, axis: int) -> None:
    @row(name)
    def build(g: Graph) -> None:
        values, indices = g.ops("TopK", g.input("x", shape), g.const([k]), outputs=2, axis=axis)
        g.output(values)
        g.output(indices, "int64")


_top_k("topk 5 of 1000", [64, 1000], 5, -1)
_top_k("topk 300 of 8400", [1, 8400], 300, -1)
_top_k("topk channels", [1, 80, 56, 56], 3, 1)


def _norm(
    name: str, op: str, shape: list[int], size: int, *, bias: bool = True, opset: int = 17, **attributes: int
) -> None:
    @row(name, opset=opset)
    def build(g: Graph) -> None:
        weights = [g.uniform(size, low=0.7, high=1.3)] + ([g.weight(size, std=0.1)] if bias else [])
        g.output(g.op(op, g.input("x", shape), *weights, **attributes))


_norm("layernormalization", "LayerNormalization", TOKENS, 768, axis=-1)
_norm("layernormalization short", "LayerNormalization", [1, 3136, 96], 96, axis=-1)
_norm("rmsnormalization", "RMSNormalization", TOKENS, 768, bias=False, opset=23, axis=-1)
_norm("instancenormalization", "InstanceNormalization", IMAGE, 64)
_norm("instancenormalization signal", "InstanceNormalization", [1, 32, 8000], 32)
_norm("groupnormalization", "GroupNormalization", IMAGE, 64, opset=21, num_groups=8)
one("lpnormalization", "LpNormalization", [128, 768], axis=-1, p=2)
one("meanvariancenormalization", "MeanVarianceNormalization", [4, 32, 56, 56], axes=[0, 2, 3])
one("lrn", "LRN", [1, 96, 55, 55], size=5)


@row("rms norm of its parts")
def _rms(g: Graph) -> None:
    x = g.input("x", TOKENS)
    mean = g.op("ReduceMean", g.op("Mul", x, x), axes=[-1])
    scale = g.op("Sqrt", g.op("Add", mean, g.const(np.float32(1e-6))))
    g.output(g.op("Mul", g.op("Div", x, scale), g.uniform(768, low=0.7, high=1.3)))


@row("batchnormalization")
def _batch_norm(g: Graph) -> None:
    g.output(g.batch_norm(g.input("x", IMAGE), 64))


@row("softmax with a mask")
def _masked(g: Graph) -> None:
    x, mask = g.input("x", [1, 12, 128, 128]), g.input("m", [1, 1, 1, 128])
    g.output(g.op("Softmax", g.op("Add", g.op("Mul", x, g.const(np.float32(0.125))), mask), axis=-1))


@row("det")
def _det(g: Graph) -> None:
    g.output(g.op("Det", g.input("x", [4096, 4, 4])), shape=[4096])
