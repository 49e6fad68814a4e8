"""The matrices of Winograd's F(m x m, 3 x 3): of weights in numpy, of inputs and outputs as vector TIR.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016 (points 0, 1, -1, 2, -2 for m = 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgepack.kernels.contract import Array
from edgepack.kernels.emit import Emitter

__all__ = ["Vector", "input_transform", "output_transform", "transform_weights"]

Expr = Any
Vector = list[Expr]

#: G of F(m, 3), by m.
G = {
    2: np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    4: np.array(
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ]
    ),
}


def transform_weights(weights: Array, m: int, columns: int) -> Array:
    """HWIO (3, 3, IC, OC) to U [block of columns][a * a][IC][columns]; the last block has what is left."""
    u = np.einsum("ik,klco,jl->ijco", G[m], weights.astype(np.float64), G[m]).astype(np.float32)
    a2 = (m + 2) ** 2
    u = u.reshape(a2, *weights.shape[2:])
    blocks = [u[..., at : at + columns] for at in range(0, weights.shape[3], columns)]
    return np.concatenate([np.ascontiguousarray(b).reshape(-1) for b in blocks])


def input_transform(e: Emitter, m: int, d: Vector, lanes: int) -> Vector:
    """B^T d for one line of a tile."""

    def c(x: float) -> Expr:
        return e.f32(x, lanes)

    if m == 2:
        return [e.let(d[0] - d[2]), e.let(d[1] + d[2]), e.let(d[2] - d[1]), e.let(d[1] - d[3])]
    t0, t1 = e.let(d[4] - d[2] * c(4)), e.let(d[3] - d[1] * c(4))
    t2, t3 = e.let(d[4] - d[2]), e.let((d[3] - d[1]) * c(2))
    return [
        e.let(d[4] + (d[0] * c(4) - d[2] * c(5))),
        e.let(t0 + t1),
        e.let(t0 - t1),
        e.let(t2 + t3),
        e.let(t2 - t3),
        e.let(d[5] + (d[1] * c(4) - d[3] * c(5))),
    ]


def output_transform(e: Emitter, m: int, x: Vector, lanes: int) -> Vector:
    """A^T x for one line of a tile."""

    def c(v: float) -> Expr:
        return e.f32(v, lanes)

    if m == 2:
        return [e.let(x[0] + x[1] + x[2]), e.let(x[1] - x[2] - x[3])]
    a, b, g, h = e.let(x[1] + x[2]), e.let(x[1] - x[2]), e.let(x[3] + x[4]), e.let(x[3] - x[4])
    return [e.let(x[0] + a + g), e.let(b + h * c(2)), e.let(a + g * c(4)), e.let(b + h * c(8) + x[5])]
