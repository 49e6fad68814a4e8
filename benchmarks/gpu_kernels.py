"""What the kernels of a network take of an NVIDIA GPU, counted without one.

    python benchmarks/gpu_kernels.py resnet18 --precision fp16 --capability 90 --multiprocessors 132

For each kernel, most work first: launches, rule, blocks and threads of a launch, blocks for each
multiprocessor, GFLOP and MB of one launch (each tensor once: the least that can be moved), registers, spilled
bytes and shared memory as NVIDIA's assembler reports them, and occupancy: the part of a multiprocessor's
threads that fit at once. "Waves" is how often all multiprocessors are filled; below 1, some have nothing to
do, or less than they could. "Shared reads" are instructions that read shared memory for each that multiplies,
in the text of the PTX: what NVRTC has unrolled counts as often as it stands there. "Requested" are the MB
of global memory that all threads load and store, "sectors" those of the 32-byte sectors that each instruction
of a warp touches, "conflicts" the wavefronts of accesses to shared memory for each that is needed: by the
addresses of a few blocks (``gpu_counts.py``), which takes most of the time: not with ``--no-accesses``. Exit
code 1 if a kernel spills.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu_counts import Counter as AccessCounter
from gpu_counts import Counts
from networks import BENCHMARKS

from edgepack.compiler.backends.cuda import REGISTERS, cuda_source, without_spills
from edgepack.compiler.backends.nvrtc import Nvrtc, Resources
from edgepack.compiler.planner.build import Built
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Launch
from workbench.compiled import plan_of
from workbench.executor import host_target

#: Of a multiprocessor, by compute capability: threads, blocks, and KiB of shared memory (CUDA C++ Programming
#: Guide, technical specifications per compute capability).
MULTIPROCESSOR = {
    **{75: (1024, 16, 64), 80: (2048, 32, 164), 86: (1536, 16, 100), 87: (1536, 16, 164)},
    **{89: (1536, 24, 100), 90: (2048, 32, 228), 120: (1536, 32, 100)},
}

#: Registers are given to a warp by the 256, and a block's shared memory has 1 KiB of the system's own.
WARP, REGISTER_UNIT, RESERVED_SHARED = 32, 256, 1024


@dataclass
class Row:
    """A kernel: one of its launches, how many there are, and what it takes."""

    launch: Launch
    launches: int
    rule: str
    flops: int
    nbytes: int
    taken: Resources
    shared_reads: str
    accesses: Counts | None


def resident(row: Row, capability: int) -> int:
    """Blocks that a multiprocessor runs at once."""
    most_threads, most_blocks, shared = MULTIPROCESSOR[capability]
    threads = prod(row.launch.threads)
    warps = -(-threads // WARP)
    per_warp = -(-row.taken.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    limits = [most_blocks, most_threads // (warps * WARP), REGISTERS // max(per_warp * warps, 1)]
    return min([*limits, shared * 1024 // (row.taken.shared + RESERVED_SHARED)])


def shared_reads(ptx: str) -> dict[str, str]:
    """Instructions that read shared memory for each that multiplies, by kernel; "-" for none."""
    found = {}
    for part in re.split(r"\.visible \.entry ", ptx)[1:]:
        read = len(re.findall(r"\b(?:ld\.shared|ldmatrix)", part))
        products = len(re.findall(r"\bmma\.sync", part)) or len(re.findall(r"\bfma\.rn\.f32", part))
        found[part.partition("(")[0].strip()] = f"{read / products:.2f}" if read and products else "-"
    return found


def rows(built: Built, capability: int, count_accesses: bool) -> list[Row]:
    """A row for each kernel, those with most operations and bytes first."""
    source = cuda_source(built.gpu_kernels)
    taken = without_spills(built.gpu_kernels, capability, Nvrtc())[1]
    reads = shared_reads(Nvrtc().compiled(source, capability, "ptx").decode("ascii"))
    launches = [step for step in built.plan.steps if isinstance(step, Launch)]
    counts = Counter(step.kernel for step in launches)
    kernels = {kernel.symbol: kernel for kernel in built.plan.kernels}
    found = []
    accesses = None
    if count_accesses:
        with tempfile.TemporaryDirectory() as folder:
            accesses = AccessCounter(source, Path(folder))
    for name, count in counts.items():
        step = next(one for one in launches if one.kernel == name)
        nbytes = sum(argument.nbytes for argument in set(step.arguments))
        rule = kernels[name].rule.partition(".")[2]
        sizes = [argument.nbytes for argument in step.arguments]
        counted = accesses and accesses.counts(name, step.groups, step.threads, sizes)
        found.append(Row(step, count, rule, kernels[name].flops, nbytes, taken[name], reads[name], counted))
    return sorted(found, key=lambda row: -row.launches * (row.flops + 100 * row.nbytes))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="+", choices=sorted(BENCHMARKS))
    parser.add_argument("--precision", choices=["fp32", "tf32", "fp16"], default="fp16")
    parser.add_argument("--capability", type=int, choices=sorted(MULTIPROCESSOR), default=90)
    parser.add_argument("--multiprocessors", type=int, default=132)
    parser.add_argument("--groups", type=int, default=96, help="gpu.groups, default as of cuda-desktop")
    parser.add_argument(
        "--no-accesses", action="store_true", help="requested, sectors and conflicts: left out"
    )
    options = parser.parse_args()
    spilling = 0
    for name in options.networks:
        target = GpuTarget(
            "cuda",
            host_target(),
            least_groups=options.groups,
            capabilities=(options.capability,),
            precision=options.precision,
            local_bytes=48 * 1024,
        )
        built = plan_of(BENCHMARKS[name](), "m", target)
        found = rows(built, options.capability, not options.no_accesses)
        spilling += sum(row.taken.spilled > 0 for row in found)
        show(name, found, options)
    return 1 if spilling else 0


def totals(found: list[Row]) -> str:
    """Of all launches: what is requested, in how many sectors, the least, and conflicts."""
    of = [(row.launches, row.accesses) for row in found if row.accesses is not None]
    requested = sum(n * one.requested for n, one in of) / 1e6
    sectors = sum(n * one.sectors for n, one in of) / 1e6
    stored = sum(n * one.stored_sectors for n, one in of) / 1e6
    instructions = sum(n * one.instructions for n, one in of)
    least = sum(row.launches * row.nbytes for row in found) / 1e6
    wavefronts, needed = sum(n * one.wavefronts for n, one in of), sum(n * one.least for n, one in of)
    return (
        f"global memory: {requested:.1f} MB requested, {sectors:.1f} MB of sectors ({stored:.1f} of stores), "
        f"{least:.1f} MB at least, {instructions:,} instructions of warps; "
        f"shared memory: {wavefronts:,} wavefronts, {needed:,} at least"
    )


def show(name: str, found: list[Row], options: argparse.Namespace) -> None:
    """Prints the table of a network."""
    threads = sum(row.launches * prod(row.launch.groups) * prod(row.launch.threads) for row in found)
    launches = sum(row.launches for row in found)
    print(f"\n{name} {options.precision}: {launches} launches of {len(found)} kernels, {threads:,} threads")
    print("" if options.no_accesses else f"{totals(found)}\n")
    head = ["times", "rule", "blocks", "threads", "blocks/SM", "waves", "GFLOP", "least MB"]
    head += [] if options.no_accesses else ["requested MB", "sectors MB", "conflicts"]
    head += ["registers", "spilled", "shared", "shared reads", "occupancy"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in found:
        blocks, threads = prod(row.launch.groups), prod(row.launch.threads)
        at_once = resident(row, options.capability)
        most = MULTIPROCESSOR[options.capability][0]
        cells = [row.launches, row.rule, blocks, threads, f"{blocks / options.multiprocessors:.2f}"]
        cells += [f"{blocks / max(at_once * options.multiprocessors, 1):.2f}", f"{row.flops / 1e9:.3f}"]
        cells.append(f"{row.nbytes / 1e6:.2f}")
        if (counted := row.accesses) is not None:
            cells += [
                f"{counted.requested / 1e6:.2f}",
                f"{counted.sectors / 1e6:.2f}",
                f"{counted.conflicts:.2f}",
            ]
        cells += [row.taken.registers, row.taken.spilled, row.taken.shared, row.shared_reads]
        print("| " + " | ".join(map(str, [*cells, f"{min(1.0, at_once * threads / most):.0%}"])) + " |")


if __name__ == "__main__":
    sys.exit(main())
