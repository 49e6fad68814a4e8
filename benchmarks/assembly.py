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
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.system.paths import find_program
from tools.inner_loops import ARM, RISCV, X86, Loop, Machine, arithmetic, hot_loops, loops_of, machines
from workbench.compiled import plan_of
from workbench.models.hot import KERNELS

# Prediction -----------------------------------------------------------------------------------------------


def _mca() -> str | None:
    """The newest llvm-mca."""
    found = [find_program(f"llvm-mca-{version}") for version in range(30, 13, -1)]
    return next((name for name in (*found, find_program("llvm-mca")) if name), None)


def cycles_of(lines: Sequence[str], machine: Machine, setting: str = "") -> float | None:
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
    alone = cycles_of("\n".join(machine.independent.format(i=i) for i in range(chains)).splitlines(), machine)
    cycles = cycles_of(loop.lines, machine, loop.setting)
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


def arguments(description: str | None) -> argparse.Namespace:
    """The command line of a table of loops."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="those whose names contain one of these")
    parser.add_argument("--kernels", default="", help="only kernels whose names contain this")
    parser.add_argument("--verbose", action="store_true", help="print the loops")
    parser.add_argument("--write", action="store_true", help="put the table into notes/")
    return parser.parse_args()


def chosen(of: Iterable[Machine], options: argparse.Namespace) -> list[Machine]:
    """The machines that the command line names; all where it names none."""
    return [m for m in of if not options.targets or any(target in m.name for target in options.targets)]


def finish(heading: str, text: str, script: str, options: argparse.Namespace) -> None:
    """Prints what was found, and puts it into notes/ where that was asked for."""
    print("\n" + text)
    if options.write:
        replace_section(heading, text, script)


def main() -> None:
    options = arguments(__doc__)
    for name in [name for name in KERNELS if options.kernels not in name]:
        del KERNELS[name]
    taken = chosen(machines(), options)
    rows = []
    for machine in taken:
        for row in rows_for(machine, options.verbose):
            rows.append(row)
            print(" | ".join(row), flush=True)
    program = _mca()
    version = ""
    if program is not None:
        out = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.sub(r".*LLVM version ", "llvm-mca ", out.splitlines()[0])
    models = ", ".join(f"{m.name}: {m.model[1] or 'none'}" for m in taken)
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
    finish("Inner loops", text, "assembly.py", options)


if __name__ == "__main__":
    main()
