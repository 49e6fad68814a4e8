"""Names of operators in tables."""

from __future__ import annotations

from edgepack.text.operators import plain_operators


def test_tables_have_no_names_of_tvm() -> None:
    names = ["conv2d", "tir_sigmoid", "tir_clip", "multiply_fixed_point", "rounding_divide"]
    assert plain_operators(names) == ("conv2d", "sigmoid", "clip", "requantize", "divide")
