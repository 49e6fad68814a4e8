"""Operators as firmware: the functions of a library that they need are there, and the results right.

A sample is in one image; every small model has its own in the sweep:
``pytest -m slow tests/targets/test_cortex_m_operators.py``, or some of it: ``-k resize``.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import compose

import edgepack
from workbench.models import save
from workbench.models.counted import CHAINS, CHOICES
from workbench.models.odd import ODD
from workbench.models.operators import CASES

SMALL = {**CASES, **ODD}

#: One of each kind: sorting, indices, 64-bit integers, division, tables, half precision, libm, a convolution.
SAMPLE = (
    *("topk", "topk_smallest", "argmax_last_index", "cumsum_int_exclusive", "gather_input_indices"),
    *("gather_elements", "scatter_nd", "div_int64", "mod_int32", "cast_float64", "cast_int8"),
    *("onehot_constant_depth", "resize_cubic_half_pixel", "hardmax", "isnan", "round", "pow_float32"),
    *("conv_dilated", "convtranspose_pads", "maxpool_uint8", "layernorm", "logsoftmax", "where_broadcast"),
)


def side_by_side(names: tuple[str, ...]) -> onnx.ModelProto:
    """One model that has all of these models in it, none connected with another; its operators mean the same
    in opsets 17 and 18."""
    whole: onnx.ModelProto | None = None
    for name in names:
        part = compose.add_prefix(SMALL[name](), f"{name}/")
        (opset,) = part.opset_import
        assert opset.version in {17, 18}, name
        opset.version = 18
        whole = part if whole is None else compose.merge_models(whole, part, io_map=[])
    assert whole is not None
    return whole


def test_a_sample_of_the_operators_is_right_on_a_microcontroller(tmp_path: Path) -> None:
    model = save(side_by_side(SAMPLE), tmp_path)
    result = edgepack.pack(model, "cortex-m4", tmp_path / "out").verify()
    assert result.ok, result
    assert len(result.outputs) >= len(SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_operator_is_right_on_a_microcontroller(name: str, tmp_path: Path) -> None:
    bundle = edgepack.pack(save(SMALL[name](), tmp_path), "cortex-m4", tmp_path / "out")
    result = bundle.verify()
    assert result.ok, result


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHAINS, *CHOICES])
def test_results_of_varying_size_are_right_on_a_microcontroller(name: str, tmp_path: Path) -> None:
    if name in CHAINS:
        build, maxima = CHAINS[name]
        model = build()
    else:
        model, most = CHOICES[name]
        maxima = {"y": most}
    bundle = edgepack.pack(save(model, tmp_path), "cortex-m4", tmp_path / "out", maxima=maxima)
    result = bundle.verify()
    assert result.ok, result
