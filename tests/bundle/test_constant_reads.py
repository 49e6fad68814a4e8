"""How often a run reads each byte of a constant, by the multiply-adds of the kernels that read it."""

from __future__ import annotations

from typing import Any

from edgepack.plan.constant_reads import constant_reads
from edgepack.plan.types import Arena, Argument, Constant, Kernel, Plan, Step


def _constant(nbytes: int, dtype: str = "int8") -> Constant:
    return Constant("w", dtype, (nbytes,), nbytes, "0" * 64, 0)


def _plan(constants: list[Constant], steps: list[tuple[int, dict[str, Any], tuple[int, ...]]]) -> Plan:
    kernels = tuple(
        Kernel(f"k{i}", len(used), flops=flops, parameters=parameters)
        for i, (flops, parameters, used) in enumerate(steps)
    )
    made = tuple(
        Step(f"k{i}", 1, tuple(Argument("constant", index) for index in used))
        for i, (_, _, used) in enumerate(steps)
    )
    return Plan("net", (), (), tuple(constants), 0, Arena(), made, kernels)


def test_weights_of_a_convolution_are_read_for_each_tile_of_pixels() -> None:
    """100 pixels, 16 channels of 8: weights for each two pixels, and the epilogue's numbers with them."""
    convolution = (2 * 100 * 16 * 8, {"tile": "2x4", "operands": "runs of bytes"}, (0, 1))
    connected = (2 * 64 * 10, {"tile": "1x4", "operands": "quads of bytes"}, (2,))
    plan = _plan(
        [_constant(128), _constant(64, "int32"), _constant(640, "int32"), _constant(8)],
        [convolution, connected, (0, {}, (3,))],
    )
    assert constant_reads(plan) == [50.0, 50.0, 1.0, 1.0]


def test_floats_have_four_bytes_and_what_two_steps_read_counts_twice() -> None:
    step = (2 * 30 * 32, {}, (0,))
    assert constant_reads(_plan([_constant(128, "float32")], [step, step])) == [60.0]


def test_a_constant_that_nothing_reads_is_not_read() -> None:
    assert constant_reads(_plan([_constant(8)], [])) == [0.0]
