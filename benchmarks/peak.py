"""What this machine can do at most: float32 multiply-adds per second and bytes read per second from each
level of memory, on one CPU and on two: ``python benchmarks/peak.py``.

The bounds that ``compare.py`` prints come from here.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgepack.system.paths import find_program

SOURCE = Path(__file__).with_name("peak.c")

#: (flag of /proc/cpuinfo, name, compiler flags, floats in a vector), widest first.
VECTORS = (
    ("avx512f", "AVX-512", ("-march=native",), 16),
    ("fma", "AVX2", ("-mavx2", "-mfma"), 8),
    ("asimd", "NEON", ("-march=native",), 4),
    ("", "SSE2", (), 4),
)


@dataclass(frozen=True)
class Level:
    """A level of memory, its size in bytes, and how much of it the measurement reads per CPU."""

    name: str
    nbytes: int
    read: int


@dataclass(frozen=True)
class Machine:
    """The CPU and its peaks; lists are for one CPU, two CPUs, ...

    Attributes:
        gflops: by instruction set, 1e9 float32 operations per second (a multiply-add is two).
        gbs: by level of memory, 1e9 bytes read per second.
    """

    cpu: str
    cpus: int
    caches: dict[str, int]
    gflops: dict[str, list[float]]
    gbs: dict[str, list[float]]

    def peak(self, threads: int) -> float:
        """GFLOPS of the widest instruction set."""
        return max(rates[threads - 1] for rates in self.gflops.values())

    def bandwidth(self, nbytes: int, threads: int) -> float:
        """GB/s at which data of this size can be read again and again."""
        for level in ("L2", "L3"):
            share = threads if level == "L2" else 1
            if nbytes <= self.caches.get(level, 0) * share and level in self.gbs:
                return self.gbs[level][threads - 1]
        return self.gbs["DRAM"][threads - 1]


def _cpuinfo() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return found


def _caches() -> dict[str, int]:
    """Sizes in bytes of the first CPU's data caches."""
    sizes = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / n).read_text().strip() for n in ("level", "type", "size"))
        if kind != "Instruction":
            sizes[f"L{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
    return sizes


def _levels(caches: dict[str, int]) -> list[Level]:
    """Well inside of each cache and well outside of the one before it."""
    l1, l2, l3 = (caches.get(name, 0) for name in ("L1", "L2", "L3"))
    levels = [Level("L1", l1, l1 // 2)] if l1 else []
    if l2:
        levels.append(Level("L2", l2, l2 // 2))
    if l3:
        levels.append(Level("L3", l3, min(8 * l2, l3 // 4)))
    return [*levels, Level("DRAM", 0, min(1 << 30, max(256 << 20, 2 * l3)))]


def _compiler() -> list[str]:
    for name in ("gcc", "clang", "cc"):
        if find_program(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"]


@functools.cache
def measure(threads: int = 2, seconds: float = 0.2, rounds: int = 5) -> Machine:
    """The best of some rounds, for 1 to ``threads`` CPUs; takes about 20 s."""
    info, caches = _cpuinfo(), _caches()
    flags = info.get("flags", info.get("Features", "")).split()
    vectors = [v for v in VECTORS if not v[0] or v[0] in flags]
    cpus = sorted(os.sched_getaffinity(0))[-threads:][::-1]
    gflops: dict[str, list[float]] = {}
    gbs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _, name, options, lanes in vectors[: 2 if vectors[0][1] == "AVX-512" else 1]:
            program = Path(folder) / f"peak_{lanes}"
            command = [*_compiler(), "-O2", "-ffp-contract=fast", *options, f"-DLANES={lanes}"]
            subprocess.run([*command, str(SOURCE), "-o", str(program), "-lpthread"], check=True)
            gflops[name] = _best(program, ["fma", str(seconds)], cpus, rounds)
            if not gbs:
                for level in _levels(caches):
                    arguments = ["read", str(seconds), str(level.read)]
                    gbs[level.name] = _best(program, arguments, cpus, rounds)
    name = info.get("model name", info.get("CPU part", "unknown"))
    return Machine(name, os.cpu_count() or 1, caches, gflops, gbs)


def _best(program: Path, arguments: Sequence[str], cpus: Sequence[int], rounds: int) -> list[float]:
    """The best of the rounds for the first CPU, the first two, ..."""
    rates = []
    for count in range(1, len(cpus) + 1):
        command = [str(program), *arguments, *map(str, cpus[:count])]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(rounds)]
        rates.append(max(float(run.stdout) for run in runs))
    return rates


def describe(machine: Machine) -> str:
    """A paragraph and a table in Markdown."""
    sizes = {
        name: f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        for name, size in machine.caches.items()
    }
    columns = len(next(iter(machine.gbs.values())))
    lines = [
        f"{machine.cpu}, {machine.cpus} CPUs, {', '.join(f'{n} {s}' for n, s in sizes.items())}.",
        "",
        "| at most | " + " | ".join(f"{n} CPU{'s' if n > 1 else ''}" for n in range(1, columns + 1)) + " |",
        "|---" + "|---:" * columns + "|",
    ]
    for name, rates in machine.gflops.items():
        lines.append(f"| {name} GFLOPS | " + " | ".join(f"{r:.0f}" for r in rates) + " |")
    for name, rates in machine.gbs.items():
        lines.append(f"| read {name} GB/s | " + " | ".join(f"{r:.0f}" for r in rates) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="CPUs at most (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = measure(options.threads)
    print(json.dumps(asdict(machine), indent=1) if options.json else describe(machine))


if __name__ == "__main__":
    main()
