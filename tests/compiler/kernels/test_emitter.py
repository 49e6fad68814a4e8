"""The emitter owns a kernel's operands: what a pointer is, is said once, where it is declared."""

from __future__ import annotations

import pytest
from tvm import tirx

from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.emit.analysis_cost import LARGEST_COST, analysis_cost
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter


def test_operands_stand_in_the_order_of_their_declaration() -> None:
    e = Emitter(4, dtype="float32")
    e.packed(0, 8)
    e.param(2, 16)
    e.temp(1, 4)
    e.output(0, 16)
    e.prefetched(64)
    e.tasks(lambda _: None)
    stage = e.stage(3)
    kinds = [("packed", 0), ("param", 2), ("temp", 1), ("output", 0), ("prefetch", 0)]
    assert stage.operands == tuple(Operand(kind, number) for kind, number in kinds)  # type: ignore[arg-type]
    assert stage.tasks == 3
    assert [p.name for p in stage.function.params][-2:] == ["lo", "hi"]
    assert len(stage.function.params) == len(stage.operands) + 2


def test_scratch_is_numbered_and_measured_in_bytes_of_its_dtype() -> None:
    e = Emitter(4, dtype="float16")
    e.scratch(10)
    e.scratch(3, "int32")
    e.tasks(lambda _: None)
    assert e.stage(1).operands == (Operand("scratch", 0), Operand("scratch", 1))
    assert e.scratch_bytes == [20, 12]


def test_a_part_of_a_kernel_declares_its_operands_under_other_numbers() -> None:
    e = Emitter(4, dtype="float32")
    e.packed(0, 8)
    with e.renumbered(packed=lambda i: i + 1, param=lambda i: i + 5):
        e.packed(0, 8)
        e.param(1, 8)
        e.output(0, 8)
    e.packed(2, 8)
    numbers = [(operand.kind, operand.index) for operand in e.operands]
    assert numbers == [("packed", 0), ("packed", 1), ("param", 6), ("output", 0), ("packed", 2)]


def test_renumbering_ends_with_an_error_too() -> None:
    e = Emitter(4, dtype="float32")
    with pytest.raises(RuleError), e.renumbered(param=lambda i: i + 5):
        e.param(0, 2**31)
    e.param(0, 4)
    assert e.operands[-1] == Operand("param", 0)


def test_an_operand_that_was_not_declared_as_one_is_found() -> None:
    e = Emitter(4, dtype="float32")
    e.param(0, 4)
    with pytest.raises(AssertionError):
        e.stage(1)  # no tasks, so neither lo nor hi


def test_a_vector_made_of_others_costs_the_analyser_each_of_them() -> None:
    """Twelve shuffles of eight times the vector before are 8^12 of it, where names are replaced by values."""
    x = tirx.Var("x", "int8x4")
    known: dict[str, int] = {}
    for number in range(12):
        name = f"v{number}"
        known[name] = analysis_cost(tirx.Shuffle([x] * 8, list(range(32))), known)
        x = tirx.Var(name, "int8x4")
    assert known["v11"] > LARGEST_COST
