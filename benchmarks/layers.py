"""What bounds each class of layers, network by network: ``python benchmarks/layers.py [NETWORK ...]``.

Each step of a packed network is measured by ``edgepack bench --profile`` and compared with two least times:
its operations (after Winograd) at the machine's peak, and its bytes (each operand once) at the bandwidth of
the level of memory that holds them. A class is a kernel rule. Classes under 3 % of a network's time are left
out of the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import peak
from markdown import replace_section, table
from networks import BENCHMARKS, MORE, known, save

import edgepack
from edgepack.runners.profile import profile_entries

#: By what a rule divides the operations of direct computation: of 3x3, and F(3) of 7x7 with stride 2, where
#: 36 products for each of four phases stand for 49 of each of 9 outputs.
REDUCTION = {"conv2d.winograd2": 2.25, "conv2d.winograd3": 49 * 9 / (36 * 4), "conv2d.winograd4": 4.0}

#: Share of the network's time under which a class is left out.
LEAST_SHARE = 0.03


@dataclass
class Class:
    """Steps of one rule in one network; times in ms."""

    steps: int = 0
    ms: float = 0.0
    flops_ms: float = 0.0
    bytes_ms: float = 0.0
    least_ms: float = 0.0

    @property
    def bound(self) -> str:
        return "operations" if self.flops_ms >= self.bytes_ms else "bytes"


def classes(name: str, folder: Path, machine: peak.Machine, threads: int) -> dict[str, Class]:
    """The network's steps by rule."""
    path = save(name, folder)
    bundle = edgepack.pack(path, "host", folder / f"{path.stem}-bundle", force=True)
    result = bundle.bench(threads=threads, runs=30, profile=True)
    found: dict[str, Class] = defaultdict(Class)
    for entry in profile_entries(bundle.manifest, result.steps_us):
        flops_ms = entry.flops / REDUCTION.get(entry.rule, 1.0) / machine.peak(threads) / 1e6
        bytes_ms = entry.bytes_moved / machine.bandwidth(entry.bytes_moved, threads) / 1e6
        one = found[entry.rule]
        one.steps += entry.last_step - entry.first_step + 1
        one.ms += entry.us / 1e3
        one.flops_ms += flops_ms
        one.bytes_ms += bytes_ms
        one.least_ms += max(flops_ms, bytes_ms)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "networks",
        nargs="*",
        metavar="NETWORK",
        help=f"of {', '.join((*BENCHMARKS, *MORE))}, or as compare.py takes them",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the table into notes/")
    options = parser.parse_args()
    names = options.networks or list(BENCHMARKS)
    if unknown := {name for name in names if not known(name)}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    machine = peak.measure()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            found = classes(name, Path(folder), machine, options.threads)
            total = sum(one.ms for one in found.values())
            for rule, one in sorted(found.items(), key=lambda item: -item[1].ms):
                if one.ms < LEAST_SHARE * total:
                    continue
                rows.append(
                    [
                        name,
                        rule,
                        str(one.steps),
                        f"{one.ms:.3g}",
                        f"{one.ms / total:.0%}",
                        f"{one.flops_ms:.3g}",
                        f"{one.bytes_ms:.3g}",
                        one.bound,
                        f"{one.least_ms / one.ms:.0%}",
                    ]
                )
            print(f"{name}: {total:.3g} ms", flush=True)
    header = ["network", "rule", "steps", "ms", "share", "ms by operations", "ms by bytes", "bound by"]
    text = table([*header, "least / ms"], rows, left=2)
    text += (
        f"\n\n{options.threads} thread{'s' if options.threads > 1 else ''}. By operations: after "
        "Winograd, its transforms not counted, at peak. By bytes: each operand of a step once, from the "
        "level of memory that holds all of the step's. Least: step by step the longer of the two."
    )
    print("\n" + text)
    if options.write:
        replace_section("What bounds each class of layers", text, "layers.py")


if __name__ == "__main__":
    main()
