"""Loops that are there to be shared, and are not: where kernels of one form share a function, one that runs
once or never has a number of iterations in some of them, and has code. Where it is the same in all, or nobody
shares the kernel, what runs once needs no loop, and what never runs needs no code: LLVM does not see it, for
such a loop's counter is hidden from it (:meth:`Emitter.no_unroll_loop`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Evaluate, IntImm, PrimFunc, SeqStmt, While

from edgepack.compiler.planner.built import Built

__all__ = ["without_single_iterations"]


def without_single_iterations(built: Built) -> Built:
    """The same plan; functions without loops of a constant number of iterations that is 0 or 1."""
    functions = {symbol: _straight(function) for symbol, function in built.functions.items()}
    return replace(built, functions=functions)


def _straight(function: PrimFunc) -> PrimFunc:
    return function.with_body(tvm_ffi.structural_map(function.body, (While, _iterations)))


def _iterations(loop: While) -> Any:
    """A loop whose condition is ``(counter & everything) < count``; the counter is 0 before it. Loops that
    the data end have other conditions."""
    if not isinstance(loop.condition, tirx.LT) or not isinstance(loop.condition.a, tirx.BitwiseAnd):
        return loop
    count = loop.condition.b
    if not isinstance(count, IntImm) or int(count.value) > 1:
        return loop
    if int(count.value) <= 0:
        return Evaluate(IntImm("int32", 0))
    body = loop.body
    return SeqStmt([s for s in body.seq if not _only_for_llvm(s)]) if isinstance(body, SeqStmt) else body


def _only_for_llvm(statement: Any) -> bool:
    """Whether it is what has LLVM not unroll the loop."""
    call = statement.value if isinstance(statement, Evaluate) else None
    return isinstance(call, Call) and "llvm.fake.use" in str(call)
