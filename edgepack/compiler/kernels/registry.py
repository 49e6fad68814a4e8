"""Where kernels are chosen: for each fused group the first rule that serves it.

Rules are tried in order; the last one always serves. A rule that fails is reported, and the next one is
tried: a schedule that does not apply is never a crash and never silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from edgepack.compiler.graph.lower import Group
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.attention.attention import attention
from edgepack.compiler.kernels.cpu.conv.dense import conv2d
from edgepack.compiler.kernels.cpu.conv.fused_depthwise import fused_depthwise_conv2d
from edgepack.compiler.kernels.cpu.conv.grouped_conv import grouped_conv2d
from edgepack.compiler.kernels.cpu.conv.sliding_window import depthwise_conv2d, pool2d
from edgepack.compiler.kernels.cpu.conv.winograd import winograd
from edgepack.compiler.kernels.cpu.generic.elementwise import elementwise
from edgepack.compiler.kernels.cpu.generic.schedules import generic, plain, rows
from edgepack.compiler.kernels.cpu.matmul.activations import batched_matmul
from edgepack.compiler.kernels.cpu.matmul.constant_weights import dense
from edgepack.compiler.kernels.cpu.rows.rowwise import rowwise
from edgepack.plan.target import CpuTarget

__all__ = ["RULES", "Rule", "implement", "implement_both", "with_prefetch"]

#: (group, target, indices of the group's parameters that are constant at every call) -> implementation
Rule = Callable[[Group, CpuTarget, frozenset[int]], Implementation]

#: The rule that serves whatever TVM can lower.
PLAIN = "plain"

#: Rules that heed a group's ``pitch``.
PITCHED = {"conv2d.depthwise", "conv2d.winograd", "conv2d.grouped", "conv2d.igemm", "pool2d"}

#: In order of preference.
RULES: Sequence[tuple[str, Rule]] = (
    ("conv2d.depthwise", depthwise_conv2d),
    ("conv2d.winograd", winograd),
    ("conv2d.grouped", grouped_conv2d),
    ("conv2d.igemm", conv2d),
    ("pool2d", pool2d),
    ("attention", attention),
    ("matmul.packed", dense),
    ("matmul.batched", batched_matmul),
    ("rowwise", rowwise),
    ("elementwise", elementwise),
    ("generic", generic),
    ("rows", rows),
    (PLAIN, plain),
)


def implement(
    group: Group, target: CpuTarget, constants: frozenset[int], warn: Callable[[str], None]
) -> Implementation:
    """The implementation of a group.

    Also for a group with a ``pitch`` the first rule that serves it decides: if that one does not heed the
    pitch, no rule serves the group (RuleError), for a slower rule would cost more than a copy.

    Args:
        constants: indices of the group's parameters that are constant at every call.
        warn: is told in one sentence of a rule that failed in a way that it did not foresee.
    """
    if target.vector_bits and not target.half_vectors and "float16" in str(group.function):
        target = replace(target, vector_bits=0)
    for i, (name, rule) in enumerate(RULES):
        if group.pitch is not None and PITCHED.isdisjoint(later for later, _ in RULES[i:]):
            break
        try:
            found = rule(group, target, constants)
        except RuleError:
            continue
        except Exception as error:  # a defect in a rule costs speed, not the model
            warn(f"kernel {group.name}: rule {name} failed ({_reason(error)}); a slower rule is used")
        else:
            if group.pitch is not None and name not in PITCHED:
                break
            if name == PLAIN:
                warn(f"kernel {group.name}: no schedule serves it; it runs in one thread, not vectorised")
            return found
    raise RuleError(f"no rule serves {group.name}")


def with_prefetch(
    implementation: Implementation, nbytes: int, warn: Callable[[str], None]
) -> Implementation | None:
    """The same, which also fetches bytes for a later call; None if that cannot be."""
    if implementation.with_prefetch is None:
        return None
    try:
        return implementation.with_prefetch(nbytes)
    except Exception as error:  # as above
        warn(f"rule {implementation.rule} cannot fetch ahead ({_reason(error)}); a later kernel may wait")
        return None


def implement_both(
    first: Group,
    second: Group,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    warn: Callable[[str], None],
) -> Implementation:
    """One implementation of a group and of the only one that reads its result, as its first argument.

    Args:
        constants: of each group, the parameters that are constant at every call.
        warn: as for :func:`implement`.

    Raises:
        RuleError: if they are better done one after the other.
    """
    try:
        return fused_depthwise_conv2d(first, second, target, constants)
    except RuleError:
        raise
    except Exception as error:
        warn(f"kernels {first.name} and {second.name}: no kernel for both ({_reason(error)}); they stay two")
        raise RuleError("a defect in a rule") from error


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[-1] if text else type(error).__name__
