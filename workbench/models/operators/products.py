"""Matrix products and Einsum."""

from __future__ import annotations

import numpy as np

from workbench.models.builder import Graph
from workbench.models.operators.case import case


def _einsum(name: str, equation: str, *shapes: list[int]) -> None:
    @case(name)
    def build(g: Graph) -> None:
        g.op(
            "Einsum",
            *(g.input(f"x{i}", shape) for i, shape in enumerate(shapes)),
            equation=equation,
            name="y",
        )
        g.output("y")


_einsum("einsum_matmul", "bij,bjk->bik", [2, 3, 4], [2, 4, 5])
_einsum("einsum_attention", "bqhd,bkhd->bhqk", [1, 5, 2, 4], [1, 6, 2, 4])
_einsum("einsum_outer", "i,j->ij", [3], [4])
_einsum("einsum_transpose", "ijk->kji", [2, 3, 4])
_einsum("einsum_implicit", "ij,jk", [2, 3], [3, 4])
_einsum("einsum_three", "bi,ij,kj->kb", [2, 3], [3, 4], [5, 4])
_einsum("einsum_sums", "bija,jc->ci", [2, 3, 4, 5], [4, 6])
_einsum("einsum_of_each", "bi,bij->bij", [2, 3], [2, 3, 4])
_einsum("einsum_diagonal", "iij->j", [3, 3, 4])
_einsum("einsum_broadcast", "...ij,jk->k...i", [5, 2, 3, 4], [4, 6])
_einsum("einsum_ellipsis", "...ij,...jk->...ik", [2, 3, 4], [2, 4, 5])


def _matmul(name: str, a: list[int], b: list[int]) -> None:
    @case(name)
    def build(g: Graph) -> None:
        g.op("MatMul", g.input("a", a), g.input("b", b), name="y")
        g.output("y")


_matmul("matmul_2d", [3, 4], [4, 5])
_matmul("matmul_batched", [2, 1, 3, 4], [6, 4, 5])
_matmul("matmul_vector_left", [4], [4, 5])
_matmul("matmul_vector_right", [2, 3, 4], [4])


@case("gemm_all")
def _gemm_all(g: Graph) -> None:
    a, b = g.input("a", [4, 3]), g.input("b", [5, 4])
    g.op("Gemm", a, b, g.const([[0.5], [1.0], [2.0]]), transA=1, transB=1, alpha=0.5, beta=2.0, name="y")
    g.output("y")


@case("gemm_no_bias")
def _gemm_no_bias(g: Graph) -> None:
    g.op("Gemm", g.input("a", [3, 4]), g.weight(4, 5), name="y")
    g.output("y")


@case("matmul_integer")
def _matmul_integer(g: Graph) -> None:
    a, b = g.input("a", [3, 4], "uint8"), g.const(g.rng.integers(-128, 128, (4, 5)).astype("int8"))
    g.op("MatMulInteger", a, b, g.const(np.uint8(120)), g.const(np.int8(3)), name="y")
    g.output("y", "int32")


@case("conv_integer")
def _conv_integer(g: Graph) -> None:
    x, w = g.input("x", [1, 3, 6, 6], "uint8"), g.const(g.rng.integers(0, 255, (4, 3, 3, 3)).astype("uint8"))
    g.op("ConvInteger", x, w, g.const(np.uint8(120)), g.const(np.uint8(128)), pads=[1] * 4, name="y")
    g.output("y", "int32")
