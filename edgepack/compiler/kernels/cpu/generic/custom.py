"""Rule ``custom``: a step that calls a user's function, in one task; no machine code is made for it."""

from __future__ import annotations

import ast

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.opaque import CUSTOM
from edgepack.compiler.kernels.contract import Implementation, Operand, RuleError, Stage
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.custom import CFunction
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["custom"]


def custom(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    del target, constants
    if fused.anchor is None or fused.anchor.kind != CUSTOM:
        raise RuleError("another operator")
    dtypes = [str(buffer.dtype) for buffer in fused.function.params]
    inputs = len(dtypes) - fused.outputs
    about = {key: str(fused.anchor.attributes[key]) for key in ("symbol", "source", "numbers")}
    function = CFunction(
        about["symbol"],
        about["source"],
        tuple(dtypes[:inputs]),
        tuple(dtypes[inputs:]),
        ast.literal_eval(f"({about['numbers']},)") if about["numbers"] else (),
    )
    operands = [Operand("param", i) for i in range(inputs)]
    operands += [Operand("output", i) for i in range(fused.outputs)]
    stage = Stage(fused.function, 1, tuple(operands))
    parameters = {"function": function.symbol, "source": function.source}
    return Implementation("custom", (stage,), parameters=parameters, c_function=function)


RULE = Rule("custom", order=660, dtypes=EVERY_DTYPE, apply=custom, level=PLAIN)
