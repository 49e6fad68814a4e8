"""Isolate what many parts of a concatenation share: it is computed once, not anew for each part.

A recurrence that an exporter unrolled ends with a concatenation of its steps' results. TVM fuses all of it,
and a fused group computes each element of each part from the group's inputs: the work, and the kernel's code,
grow with the square of the number of steps. A view ends a group, so the pass puts two that cancel each other
behind the values that several operators read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import Rewriter, op_name, shape_of

__all__ = ["isolate_shared"]

#: The largest TVM pattern of an operator that computes each element from given elements of others.
INJECTIVE = 2

#: Values are isolated where the parts together compute this many times what they need, and where what that
#: saves is this many operations for each step that it adds, or as much code: operators, each time counted.
LEAST_REPEATED, LEAST_SAVED, MOST_CODE = 4, 4000, 2000


@dataclass
class _Cones:
    """The fusable operators that each value is computed by, as bits of a number.

    Attributes:
        values: by number, the value and how many elements it has.
        cones: by value.
        readers: by value, the operators among these that read it.
    """

    values: list[tuple[relax.Var, int]] = field(default_factory=list)
    cones: dict[relax.Var, int] = field(default_factory=dict)
    readers: dict[relax.Var, int] = field(default_factory=dict)

    def add(self, result: relax.Var, operands: list[relax.Var]) -> None:
        """A fusable operator."""
        bit = 1 << len(self.values)
        self.values.append((result, prod(shape_of(result))))
        cone = bit
        for operand in operands:
            cone |= self.cones.get(operand, 0)
            self.readers[operand] = self.readers.get(operand, 0) | bit
        self.cones[result] = cone

    def shared(self, parts: list[relax.Var]) -> list[relax.Var]:
        """What to isolate of the parts of a concatenation."""
        union = code = work = 0
        for part in parts:
            cone = self.cones.get(part, 0)
            union |= cone
            code += cone.bit_count()
            work += cone.bit_count() * prod(shape_of(part))
        inside = [self.values[i] for i, bit in enumerate(reversed(bin(union)[2:])) if bit == "1"]
        once = sum(elements for _, elements in inside)
        found = [value for value, _ in inside if (self.readers.get(value, 0) & union).bit_count() > 1]
        found += [p for p in parts if p in self.cones and self.readers.get(p, 0) & union and p not in found]
        repeated = code > MOST_CODE or work - once > LEAST_SAVED * len(found)
        return found if repeated and work > LEAST_REPEATED * once else []


def _to_isolate(module: IRModule) -> set[relax.Var]:
    cones, found = _Cones(), set()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if op_name(call) != "relax.call_tir" or not isinstance(call.ty, relax.TensorType):
                continue
            callee, operands = call.args[0], [x for x in call.args[1].fields if isinstance(x, relax.Var)]
            if int(module[callee].attrs.get("op_pattern", INJECTIVE + 1)) > INJECTIVE:
                continue
            if str(callee.name_hint).startswith("concatenate"):
                found |= set(cones.shared(operands))
            cones.add(binding.var, operands)
    return found


class _IsolateShared(Rewriter):
    def __init__(self, module: IRModule, shared: set[relax.Var]) -> None:
        super().__init__(module)
        self.shared = shared

    def visit_binding(self, binding: relax.Binding) -> None:
        super().visit_binding(binding)
        if binding.var in self.shared:
            self.bind(binding.var, self.isolated(self.env[binding.var]))


def isolate_shared(module: IRModule) -> IRModule:
    """Ends fused groups behind what the parts of a concatenation would compute again and again.

    Args:
        module: legalised, with TVM's operator patterns annotated (``AnnotateTIROpPattern``).
    """
    shared = _to_isolate(module)
    return _IsolateShared(module, shared).run() if shared else module
