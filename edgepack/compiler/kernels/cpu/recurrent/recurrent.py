"""Rule ``recurrent``: the steps of an RNN, a GRU or an LSTM, see ``step.py`` for one of them.

Two forms. "sequence": a task does all steps of some sequences of the batch in one direction, so nobody waits
for anybody. "steps": each step of the sequence is a step of the plan, whose tasks are blocks of hidden units,
so that threads share the weights out, where these are large; all steps run the same kernel.
"""

from __future__ import annotations

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.recurrent import Recurrence
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.emit.vector_parts import MATH_DTYPE
from edgepack.compiler.kernels.cpu.recurrent.cells import phases_of
from edgepack.compiler.kernels.cpu.recurrent.sequence import SequenceKernel
from edgepack.compiler.kernels.cpu.recurrent.steps import StepsKernel
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.opt_level import PLAIN, TILED
from edgepack.plan.target import CpuTarget

__all__ = ["recurrent"]

#: Bytes of a step's weights from which it is worth the threads' meeting behind it.
SHARED_BYTES = 256 * 1024

#: Most steps of the plan that a layer may become.
MOST_STEPS = 1024


def recurrent(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    if fused.anchor is None or fused.anchor.kind != "recurrent":
        raise RuleError("another operator")
    form = Recurrence.of(fused.anchor.attributes)
    packed = 1 in constants and target.opt_level >= TILED
    sequence = SequenceKernel(fused, form, target, packed=packed)
    if _worth_sharing(form, target, sequence.pieces):
        return StepsKernel(fused, form, target, packed=packed).build()
    return sequence.build()


def _worth_sharing(form: Recurrence, target: CpuTarget, pieces: int) -> bool:
    """Whether threads share the steps out, and not the sequences alone, of which there are ``pieces``."""
    weights = DTYPE_BYTES[MATH_DTYPE] * form.directions * form.gates * form.size**2
    return (
        target.threads > form.directions * pieces
        and weights >= SHARED_BYTES
        and form.steps * len(phases_of(form)) <= MOST_STEPS
    )


RULE = Rule("recurrent", order=650, dtypes=FLOAT32 | {"int32"}, apply=recurrent, level=PLAIN)
