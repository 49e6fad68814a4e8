"""The inner loops of the hot kernels on targets that are not at hand: ``python benchmarks/assembly.py``.

For each target and rule a representative kernel is compiled, the innermost loop with the most
multiply-adds is found in the assembly text, and its instructions are counted: vector multiply-adds (or pairs
of multiplication and addition), vector loads, broadcasts, and accesses to the stack (spills).
llvm-mca then predicts the cycles of an iteration; the fraction of peak compares them with what the same
model needs for the multiply-adds alone, independent of each other.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from tests.models.builder import Graph
from tests.support.compiled import plan_of

# Targets --------------------------------------------------------------------------------------------------


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


# Kernels --------------------------------------------------------------------------------------------------


def _conv(cin: int, cout: int, size: int, kernel: int, **options: int) -> onnx.ModelProto:
    g = Graph("kernel")
    x = g.conv(g.input("x", [1, cin, size, size]), cin, cout, kernel, bias=True, **options)
    g.op("Relu", x, name="y")
    g.output("y")
    return g.model()


def _matmul(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    g = Graph("kernel")
    g.op("Identity", g.linear(g.input("x", [rows, depth]), depth, columns), name="y")
    g.output("y")
    return g.model()


def _before_classifier(cin: int, cout: int, kernel: int, size: int = 14) -> onnx.ModelProto:
    """A convolution that fetches the weights of the layer behind it."""
    g = Graph("kernel")
    x = g.op("Relu", g.conv(g.input("x", [1, cin, size, size]), cin, cout, kernel, bias=True))
    g.op("Identity", g.gemm(g.op("Flatten", g.op("GlobalAveragePool", x)), cout, 1000), name="y")
    g.output("y")
    return g.model()


def _attention() -> onnx.ModelProto:
    g = Graph("kernel")
    g.op("MatMul", g.input("x", [1, 3, 197, 64]), g.input("z", [1, 3, 64, 197]), name="y")
    g.output("y")
    return g.model()


#: What stands in the table, and the model that has only this kernel (and copies).
KERNELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "1x1, 64 to 128": lambda: _conv(64, 128, 28, 1),
    "3x3 stride 2, 64 to 128": lambda: _conv(64, 128, 28, 3, stride=2),
    "3x3 stride 1, 64 to 64": lambda: _conv(64, 64, 56, 3),
    "3x3 stride 1, 256 to 256, cut tiles": lambda: _conv(256, 256, 14, 3),
    "7x7 stride 2, 3 to 64": lambda: _conv(3, 64, 112, 7, stride=2),
    "grouped 3x3, 16 per group": lambda: _conv(64, 64, 28, 3, groups=4),
    "grouped 3x3, 8 per group": lambda: _conv(256, 256, 28, 3, groups=32),
    "depthwise 3x3, 96": lambda: _conv(96, 96, 28, 3, groups=96),
    "depthwise 3x3 stride 2, 96": lambda: _conv(96, 96, 28, 3, groups=96, stride=2),
    "depthwise 5x5, 72": lambda: _conv(72, 72, 28, 5, groups=72),
    "depthwise 7x7, 96": lambda: _conv(96, 96, 28, 7, groups=96),
    "matmul 128x384x1536": lambda: _matmul(128, 384, 1536),
    "matmul 1x512x1000": lambda: _matmul(1, 512, 1000),
    "q k of attention": _attention,
    "1x1 that fetches, 320 to 960": lambda: _before_classifier(320, 960, 1),
    "3x3 that fetches, 256 to 256": lambda: _before_classifier(256, 256, 3, 28),
}


# Reading assembly -----------------------------------------------------------------------------------------


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
    begin = re.search(rf"^{re.escape(symbol)}:", assembly, re.MULTILINE)
    if begin is None:
        raise ValueError(f"{symbol} is not in the assembly")
    text = assembly[begin.end() :]
    ends = re.search(r"^\s*(\.size|end_function)\b|^\.Lfunc_end", text, re.MULTILINE)
    lines = _instructions(text[: ends.start()] if ends else text, machine.syntax.comment)
    loops = _wasm_loops(lines) if machine.syntax is WASM else _native_loops(lines, machine.syntax)
    return [loop for loop in loops if arithmetic(loop, machine)]


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


# Prediction -----------------------------------------------------------------------------------------------


def _mca() -> str | None:
    """The newest llvm-mca."""
    found = [shutil.which(f"llvm-mca-{version}") for version in range(30, 13, -1)]
    return next((name for name in (*found, shutil.which("llvm-mca")) if name), None)


def _cycles(lines: Sequence[str], machine: Machine, setting: str = "") -> float | None:
    """llvm-mca's cycles of one iteration; None if it does not know an instruction or the CPU."""
    program = _mca()
    if program is None or not machine.model[0]:
        return None
    triple, cpu = machine.model
    features = ",".join(machine.target.features)
    prefix = f"{setting or 'vsetvli zero, zero, e32, m1, ta, ma'}\n" if machine.syntax is RISCV else ""
    if machine.syntax is ARM:
        prefix = ".fpu neon-vfpv4\n"
    command = [program, f"-mtriple={triple}", f"-mcpu={cpu}", f"-mattr={features}", "-iterations=200"]
    command += ["-instruction-info=0", "-resource-pressure=0"]
    # A branch's target lies outside of the text.
    body = [re.sub(machine.syntax.branch, lambda m: m[0].replace(m[1], "0b"), line) for line in lines]
    text = prefix + "0:\n" + "\n".join(body) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    return int(total[1]) / 200 if total and done.returncode == 0 else None


def fraction_of_peak(loop: Loop, machine: Machine) -> float | None:
    """Cycles that the multiply-adds alone would take, by the cycles of the loop."""
    chains = 12 if machine.target.vector_registers < 32 or machine.syntax is X86 else 24
    alone = _cycles("\n".join(machine.independent.format(i=i) for i in range(chains)).splitlines(), machine)
    cycles = _cycles(loop.lines, machine, loop.setting)
    if cycles is None or alone is None:
        return None
    return arithmetic(loop, machine) * alone / chains / cycles


def prediction(loop: Loop, machine: Machine) -> str:
    """The fraction of peak by the machine's model, and by the second one if it has one."""
    fraction = fraction_of_peak(loop, machine)
    text = "" if fraction is None else f"{fraction:.0%}"
    if machine.second[1]:
        other = fraction_of_peak(loop, replace(machine, model=machine.second, second=("", "")))
        text += "" if other is None else f" ({other:.0%})"
    return text


# Table ----------------------------------------------------------------------------------------------------


def rows_for(machine: Machine, verbose: bool) -> Iterator[list[str]]:
    """A row for each kernel."""
    s = machine.syntax
    for name, model in KERNELS.items():
        fetches = "fetches" in name
        if fetches and machine.target.arch not in {"x86_64", "aarch64"}:
            continue  # no device has a cache for it
        target = replace(machine.target, l2_bytes=128 * 1024, l3_bytes=8 << 20) if fetches else machine.target
        built = plan_of(model(), target=target)
        rule, tile = max(
            ((k.rule, str(k.parameters.get("tile", ""))) for k in built.plan.kernels if k.flops),
            key=lambda found: found[0].startswith("conv2d") * 2 + found[0].startswith("matmul"),
        )
        if fetches and not any(k.rule == rule and "ahead" in k.parameters for k in built.plan.kernels):
            raise AssertionError(f"{machine.name}: {name} does not fetch")
        symbols = [k.symbol for k in built.plan.kernels if k.rule == rule]
        assembly = compile_assembly(built.functions, machine.target)
        loops = [loop for symbol in symbols for loop in loops_of(assembly, symbol, machine)]
        for part, loop in hot_loops(loops, machine, rule):
            if verbose:
                print(f"--- {machine.name}: {name}{part}\n" + "\n".join(loop.lines))
            loads = loop.vectors(s.load) + loop.count(s.broadcast)
            yield [
                machine.name,
                name + part,
                f"{rule} {tile}".strip(),
                str(len(loop.lines)),
                *(str(loop.vectors(pattern)) for pattern in (s.fma, s.multiply, s.load)),
                str(loop.count(s.broadcast)),
                f"{arithmetic(loop, machine) / loads:.1f}" if loads else "",
                str(loop.spills(s) if part else max(each.spills(s) for each in loops)),
                prediction(loop, machine),
            ]


HEADER = [
    "target",
    "kernel",
    "rule, tile",
    "instructions",
    "FMAs",
    "mul + add",
    "vector loads",
    "broadcasts",
    "FMAs per load",
    "stack",
    "of peak",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="those whose names contain one of these")
    parser.add_argument("--kernels", default="", help="only kernels whose names contain this")
    parser.add_argument("--verbose", action="store_true", help="print the loops")
    parser.add_argument("--write", action="store_true", help="put the table into docs/lab-book.md")
    options = parser.parse_args()
    for name in [name for name in KERNELS if options.kernels not in name]:
        del KERNELS[name]
    chosen = [m for m in machines() if not options.targets or any(t in m.name for t in options.targets)]
    rows = []
    for machine in chosen:
        for row in rows_for(machine, options.verbose):
            rows.append(row)
            print(" | ".join(row), flush=True)
    program = _mca()
    version = ""
    if program is not None:
        out = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.sub(r".*LLVM version ", "llvm-mca ", out.splitlines()[0])
    models = ", ".join(f"{m.name}: {m.model[1] or 'none'}" for m in chosen)
    text = (
        f"{table(HEADER, rows, left=3)}\n\n"
        "One iteration of the innermost loop. Stack: instructions that touch the stack (spills), in that of "
        "a kernel's inner loops, for whole and other tiles, which has most. FMAs per load: multiply-adds, "
        "fused or not, by vector loads and broadcasts; a depthwise tap that x86 takes "
        "from memory is a load too. On RISC-V vector instructions of LMUL 2 count twice. Of a Winograd "
        "convolution's transforms, the one that touches the stack most, or is longest. Of peak: "
        f"{version}, models: {models}; loads hit L1. (LLVM models Cortex-A72 as A57, Cortex-A76 as Neoverse "
        "N1 and Apple's cores as Cyclone; Cortex-A7 has no model, A57 stands for it. llvm-mca commits the "
        "results of in-order cores in order: by its models of Cortex-A53 and SpacemiT X60 a load waits for "
        "the multiply-adds before it. In brackets for Cortex-A53: the same loop by the model of Cortex-A55, "
        "of that model's peak, two multiply-adds in a cycle. Neither was compared with hardware. A loop of "
        "WebAssembly has many instructions because each operand is fetched (`local.get`) and each address "
        "added by instructions of their own.)"
    )
    print("\n" + text)
    if options.write:
        replace_section("Inner loops", text, "assembly.py")


if __name__ == "__main__":
    main()
