"""Reads assembly text: the innermost loops of a kernel, and what their instructions are.

Used by ``benchmarks/assembly.py``, which counts and predicts, and by the tests, which keep the hot loops off
the stack, also on CPUs that are not at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget

__all__ = [
    "AARCH64",
    "ARM",
    "RISCV",
    "WASM",
    "X86",
    "Loop",
    "Machine",
    "Syntax",
    "arithmetic",
    "hot_loops",
    "loops_of",
    "loops_with",
    "machines",
]


@dataclass(frozen=True)
class Syntax:
    """Regular expressions for the instructions of one architecture (the whole line, without comments)."""

    fma: str
    multiply: str
    load: str
    broadcast: str
    stack: str
    branch: str
    #: What begins a comment, and how the frame pointer, where a function has one, is set and used.
    comment: str = "#"
    frame: tuple[str, str] = ("", "")


X86 = Syntax(
    fma=r"^vfn?m(add|sub)\w*ps\b",
    multiply=r"^v?mulps\b",
    load=r"^v?mov[ua]ps\s+[^%]*\(|^vf\w+ps\s+[^%]*\([^)]*\)(?!\{1to)|^v?(mul|add)ps\s+[^%]*\(",
    broadcast=r"^vbroadcastss|\{1to|^shufps|^v?movss\s+[^%]*\(|^vpermilps",
    stack=r"\(%rsp[,)]",
    branch=r"^j\w+\s+(\.L\w+)",
    frame=(r"^movq\s+%rsp, %rbp", r"\(%rbp[,)]"),
)
AARCH64 = Syntax(
    fma=r"^fml[as]\s+v\d+\.4s|^fml[as]\.4s",
    multiply=r"^fmul\s+v\d+\.4s|^fmul\.4s",
    load=r"^ld(r|ur|p)\s+q|^ld1\s+\{\s*v\d+\.4s",
    broadcast=r"^ld1r|^dup\s+v|^ld(r|ur|p)\s+s",
    stack=r"\[sp\b|^add\s+\w+, sp,",
    branch=r"^(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+,[^,]*,|b)\s+(\.L\w+)",
    comment="//",
    frame=(r"^(mov|add)\s+x29, sp", r"\[x29\b"),
)
ARM = Syntax(
    fma=r"^vfm[as]\.f32\s+q|^vml[as]\.f32\s+q",
    multiply=r"^vmul\.f32\s+q",
    load=r"^vld1\.\d+\s+\{d\d+(, d\d+)*\}|^vldmia",
    broadcast=r"^vld1\.32\s+\{d\d+\[\]|^vdup|^vldr?\s+s",
    stack=r"\bsp\b",
    branch=r"^b\w*\s+(\.L\w+)",
    comment="@",
    frame=(r"^(mov|add)\s+r11, sp", r"\[r11\b"),
)
RISCV = Syntax(
    fma=r"^vfn?m(acc|add|sac|sub)\.v",
    multiply=r"^vfmul\.v",
    load=r"^vle32|^vl\d+re32",
    broadcast=r"^flw|^vlse32|^vfmv\.v\.f",
    stack=r"\bsp\b|^vs\d+r\.v|^vl\d+r\.v",
    branch=r"^b\w+\s+.*?(\.L\w+)$",
    frame=(r"^addi\s+s0, sp", r"\(s0\)"),
)
WASM = Syntax(
    fma=r"^f32x4\.relaxed_n?madd",
    multiply=r"^f32x4\.mul",
    load=r"^v128\.load\s",
    broadcast=r"^v128\.load32_splat|^f32x4\.splat",
    stack=r"__stack_pointer",
    branch=r"^br(?:_if)?\s+(\d+)",
)


@dataclass(frozen=True)
class Machine:
    """A target; ``model`` is llvm-mca's (triple, CPU), empty where it has none."""

    name: str
    target: CpuTarget
    syntax: Syntax
    model: tuple[str, str] = ("", "")
    #: an independent multiply-add of this machine with {i} for one of its registers
    independent: str = ""
    #: a second model (triple, CPU) whose prediction stands beside the first one's
    second: tuple[str, str] = ("", "")


def machines() -> Iterator[Machine]:
    """All targets of the table."""

    def of(device: str, **changes: object) -> CpuTarget:
        return replace(load_device(device).cpu_target(), **changes)  # type: ignore[arg-type]

    x86, arm64, arm = "x86_64-linux-gnu", "aarch64-linux-gnu", "armv7a-linux-gnueabihf"
    sse = "mulps %xmm15, %xmm{i}\naddps %xmm14, %xmm{i}"
    yield Machine("x86-64 (SSE2)", of("linux-x86_64"), X86, (x86, "sandybridge"), sse)
    avx2 = "vfmadd231ps %ymm15, %ymm14, %ymm{i}"
    yield Machine("x86-64-v3 (AVX2)", of("linux-x86_64-v3"), X86, (x86, "znver3"), avx2)
    avx512 = "vfmadd231ps %zmm15, %zmm14, %zmm{i}"
    yield Machine("x86-64-v4 (AVX-512)", of("linux-x86_64-v4"), X86, (x86, "sapphirerapids"), avx512)
    # LLVM has no scheduling model of Cortex-A7 that llvm-mca can use.
    vfma = "vfma.f32 q{i}, q14, q15"
    yield Machine("raspberrypi2 (ARMv7)", of("raspberrypi2"), ARM, (arm, "cortex-a57"), vfma)
    neon = "fmla v{i}.4s, v30.4s, v31.s[0]"
    yield Machine("raspberrypi4 (cortex-a72)", of("raspberrypi4"), AARCH64, (arm64, "cortex-a72"), neon)
    # llvm-mca commits the results of cores in order in order, so that by its model of Cortex-A53 a load waits
    # for the multiply-adds before it; by that of A55 multiply-adds may be overtaken.
    a53 = of("raspberrypi4", cpu="cortex-a53")
    yield Machine("cortex-a53", a53, AARCH64, (arm64, "cortex-a53"), neon, (arm64, "cortex-a55"))
    for cpu in ("cortex-a76", "apple-m1"):
        yield Machine(cpu, of("raspberrypi4", cpu=cpu), AARCH64, (arm64, cpu), neon)
    riscv = CpuTarget(
        "riscv64-unknown-linux-gnu",
        "generic-rv64",
        ("+m", "+a", "+f", "+d", "+c", "+v"),
        "lp64d",
        128,
        32,
        True,
    )
    vector = "vfmacc.vf v{i}, fa0, v31"
    yield Machine("riscv64 V (128 bit)", riscv, RISCV, ("riscv64", "spacemit-x60"), vector)
    wasm = CpuTarget("wasm32-unknown-unknown-wasm", "", ("+simd128",), "", 128, 16, False)
    yield Machine("wasm32 simd128", wasm, WASM)


@dataclass(frozen=True)
class Loop:
    """The instructions of an innermost loop.

    Attributes:
        setting: of the vector unit when the loop begins (RISC-V).
        framed: whether the function has a frame pointer.
    """

    lines: tuple[str, ...]
    setting: str = ""
    framed: bool = False

    def count(self, pattern: str) -> int:
        """How many instructions match."""
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def spills(self, syntax: Syntax) -> int:
        """How many instructions touch the stack."""
        frame = syntax.frame[1] if self.framed else ""
        return self.count(f"{syntax.stack}|{frame}" if frame else syntax.stack)

    def vectors(self, pattern: str) -> int:
        """How many vector registers matching instructions compute: with LMUL 2 each of them does two."""
        total, each = 0, 1
        for line in (self.setting, *self.lines):
            found = re.match(r"vset\w+\s.*\bm([1248])\b", line)
            each = int(found[1]) if found else each
            total += each * bool(re.search(pattern, line))
        return total


def _instructions(text: str, comment: str) -> list[str]:
    """Instructions and labels of a function, comments and directives removed."""
    found = []
    for written in text.splitlines():
        line = written.split(comment)[0].strip().replace("\t", " ")
        is_label = re.match(r"^[\w.$]+:$", line)
        if line and (is_label or not line.startswith(".")) and not line.startswith(".Ltmp"):
            found.append(line)
    return found


def _native_loops(lines: Sequence[str], syntax: Syntax) -> Iterator[Loop]:
    """From a label to the last branch back to it, if no other loop lies between."""
    framed = bool(syntax.frame[0]) and any(re.match(syntax.frame[0], line) for line in lines)
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    spans: dict[str, tuple[int, int]] = {}
    for i, line in enumerate(lines):
        match = re.match(syntax.branch, line)
        if match and labels.get(match[1], i + 1) <= i:
            spans[match[1]] = (labels[match[1]], i)
    for begin, end in spans.values():
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in spans.values()):
            body = tuple(line for line in lines[begin : end + 1] if not line.endswith(":"))
            setting = next((line for line in reversed(lines[:begin]) if line.startswith("vset")), "")
            yield Loop(body, setting, framed)


def _wasm_loops(lines: Sequence[str]) -> Iterator[Loop]:
    """Between "loop" and its "end_loop"."""
    begin = -1
    for i, line in enumerate(lines):
        if line.split()[0] == "loop":
            begin = i
        elif line.startswith("end_loop") and begin >= 0:
            yield Loop(tuple(line for line in lines[begin + 1 : i] if not line.endswith(":")))
            begin = -1


def loops_of(assembly: str, symbol: str, machine: Machine) -> list[Loop]:
    """The function's innermost loops that compute."""
    return loops_with(assembly, symbol, machine, lambda loop: arithmetic(loop, machine))


def loops_with(assembly: str, symbol: str, machine: Machine, counted: Callable[[Loop], int]) -> list[Loop]:
    """The function's innermost loops in which something is counted."""
    begin = re.search(rf"^{re.escape(symbol)}:", assembly, re.MULTILINE)
    if begin is None:
        raise ValueError(f"{symbol} is not in the assembly")
    text = assembly[begin.end() :]
    ends = re.search(r"^\s*(\.size|end_function)\b|^\.Lfunc_end", text, re.MULTILINE)
    lines = _instructions(text[: ends.start()] if ends else text, machine.syntax.comment)
    loops = _wasm_loops(lines) if machine.syntax is WASM else _native_loops(lines, machine.syntax)
    return [loop for loop in loops if counted(loop)]


def arithmetic(loop: Loop, machine: Machine) -> int:
    """Multiply-adds of vectors, fused or not."""
    return loop.vectors(machine.syntax.fma) + loop.vectors(machine.syntax.multiply)


def hot_loops(loops: Sequence[Loop], machine: Machine, rule: str) -> list[tuple[str, Loop]]:
    """[(what it is, loop)]: the densest of the loops with most arithmetic (sparser ones are for borders).

    Of Winograd the product, and the transform that is worst: of those that touch the stack most, the longest.
    """
    if not loops:
        return []
    most = max(arithmetic(loop, machine) for loop in loops)
    least = 8 if rule.startswith("conv2d.winograd") else most // 2
    large = [loop for loop in loops if arithmetic(loop, machine) >= least] or list(loops)
    product = max(large, key=lambda loop: arithmetic(loop, machine) / len(loop.lines))
    if not rule.startswith("conv2d.winograd"):
        return [("", product)]
    others = (loop for loop in loops if loop is not product)
    transform = max(others, key=lambda loop: (loop.spills(machine.syntax), len(loop.lines)))
    return [(", product", product), (", transform", transform)]
