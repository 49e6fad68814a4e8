"""What LLVM made of a kernel's innermost loop: read from the assembly, on CPUs whose kernels are short."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["InnerLoop", "inner_loop"]

#: Instructions that multiply and add, or multiply where a sum is added by another one: ARM's for words, pairs
#: of halves, floats and vectors; RISC-V's ``mul``.
_PRODUCT = re.compile(r"^(v?fn?m[as]|vml|sml[as]|smu[as]|mla|mls|muls?\b|vmul)")

#: Loads and stores, with the registers that one of several moves.
_ACCESS = re.compile(r"^(v?(ldr|str|ldm|stm)|vld|vst|push|pop|l[bhw]u?\s|s[bhw]\s|fl[wd]|fs[wd]\s|c\.)")
_SEVERAL = re.compile(r"^(v?(ldm|stm)|v?push|v?pop)")

#: A branch, with the label that it goes to.
_BRANCH = re.compile(r"^(?:b|cb|le|j)[\w.]*\s+(?:.*[\s,])?(\.L\w+)$")


@dataclass(frozen=True)
class InnerLoop:
    """The innermost loop with the most multiplications.

    Attributes:
        instructions: of one iteration.
        products: multiplications among them.
        accesses: loads and stores among them, those of the stack too.
    """

    instructions: int
    products: int
    accesses: int


def inner_loop(assembly: str) -> InnerLoop | None:
    """That of a function; None where no loop multiplies."""
    lines = _lines(assembly)
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    loops = _loops(lines, labels)
    found: InnerLoop | None = None
    for begin, end in loops:
        if any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in loops):
            continue
        body = [line for line in lines[begin : end + 1] if not line.endswith(":")]
        products = sum(bool(_PRODUCT.match(line)) for line in body)
        if products and (found is None or products > found.products):
            found = InnerLoop(len(body), products, sum(map(_accesses, body)))
    return found


def _lines(assembly: str) -> list[str]:
    """Instructions and labels, without comments: ARM's begin with @, others with # and a space, for ARM's
    numbers begin with #."""
    found = []
    for written in assembly.splitlines():
        line = written.partition("@")[0].partition("# ")[0].strip()
        if line.endswith(":") or (line and line[0] not in ".#"):
            found.append(line.replace("\t", " "))
    return found


def _loops(lines: Sequence[str], labels: Mapping[str, int]) -> list[tuple[int, int]]:
    """From a label to the last branch back to it."""
    spans: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(lines):
        branch = _BRANCH.match(line)
        if branch and labels.get(branch[1], number + 1) <= number:
            spans[branch[1]] = (labels[branch[1]], number)
    return list(spans.values())


def _accesses(line: str) -> int:
    """Registers that an instruction loads or stores."""
    if not _ACCESS.match(line):
        return 0
    if not _SEVERAL.match(line):
        return 2 if re.match(r"^(ldrd|strd)", line) else 1
    registers = re.search(r"\{(.*)\}", line)
    return registers[1].count(",") + 1 if registers else 1
