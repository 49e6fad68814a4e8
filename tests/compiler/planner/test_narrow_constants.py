"""Numbers of each channel are stored as narrow as they are where flash is short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgepack.compiler.kernels.narrow_integers import NARROW, as_narrow, as_words, least_beside
from edgepack.compiler.planner.narrow_constants import needed_type
from edgepack.config.device import load_device
from edgepack.plan.target import Optimize
from tests.targets.test_short_code import network
from workbench.compiled import plan_of

#: Output channels of the network's layers.
DENSE, DEPTHWISE = 20 + 26 + 14 + 7, 20 + 26


def bytes_by_dtype(device: str, optimize: Optimize) -> dict[str, int]:
    """Of the numbers of each channel of all layers."""
    target = replace(load_device(device).cpu_target(), optimize=optimize)
    found: dict[str, int] = {}
    for constant in plan_of(network(), target=target).plan.constants:
        if constant.shape in {(n,) for n in (20, 26, 14, 7)} | {(3 * n,) for n in (20, 26, 14, 7)}:
            found[constant.dtype] = found.get(constant.dtype, 0) + constant.nbytes
    return found


def test_biases_and_shifts_take_the_bytes_that_they_need() -> None:
    every = DENSE + DEPTHWISE
    assert bytes_by_dtype("cortex-m4", "size") == {
        "int16": 2 * DEPTHWISE,
        "uint8": 3 * DENSE,
        "uint32": 4 * every,  # multipliers, and in two bits of each its shift
    }
    assert bytes_by_dtype("cortex-m4", "latency") == {
        "int8": every,
        "int16": 2 * DEPTHWISE,
        "int32": 4 * (every + DENSE),
    }


def test_they_are_as_wide_as_ever_where_flash_is_not_short() -> None:
    assert bytes_by_dtype("raspberrypi4", "latency") == {"int32": 12 * (DENSE + DEPTHWISE)}


def test_numbers_of_24_bits_are_a_plane_of_16_and_one_of_8() -> None:
    values = np.array([-(1 << 23), -65_537, -65_536, -1, 0, 65_535, (1 << 23) - 1], np.int32)
    stored = as_narrow(values, "int24")
    low, high = stored[: 2 * len(values)].view("<u2"), stored[2 * len(values) :].view(np.int8)
    np.testing.assert_array_equal((high.astype(np.int32) << 16) | low, values)
    assert stored.nbytes * 8 == NARROW["int24"] * len(values)


def test_words_have_factors_and_others_that_differ_by_three() -> None:
    factors = np.array([1 << 30, (1 << 31) - 1, 0x5555_5555], np.int32)
    others = np.array([-8, -5, -6], np.int32)
    assert least_beside(factors, others) == range(-8, -7)
    words = as_words(factors, others, -8)
    np.testing.assert_array_equal((words >> 2) | (1 << 30), factors)
    np.testing.assert_array_equal((words & 3).astype(np.int32) - 8, others)
    assert not least_beside(factors, np.array([-8, -4, -6], np.int32))
    assert not least_beside(factors // 2, others)


def test_the_narrowest_type_has_the_least_and_the_largest_number() -> None:
    for dtype, bits in NARROW.items():
        ends = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        for number in ends:
            assert needed_type(np.array([0, number], np.int64)) == dtype
        if dtype != "int32":
            for number in (ends[0] - 1, ends[1] + 1):
                assert needed_type(np.array([0, number], np.int64)) != dtype
