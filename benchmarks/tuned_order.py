"""How many programs ``edgepack tune`` needs: schedules in the order of their predicted times, and the nearest
ones first.

    python benchmarks/tuned_order.py MODEL... [--device cortex-m4] [--trials 12] [--json]

Each model (a file, or a network of networks.py) is tuned twice, from nothing. A number says how many times
as fast a run is after so many programs, by the sum of its steps. On a microcontroller under qemu instructions
are counted: exact, whatever else the machine does, but no times. Elsewhere times are measured, and differ
from run to run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import table
from networks import save

from edgepack.commands.tune_device import OnDevice
from edgepack.commands.tune_programs import Programs
from edgepack.commands.tune_search import Bounds, Search
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile
from edgepack.options import PackOptions, RunOptions
from edgepack.system.progress import Stages


class Recorded(Search):
    """A search that notes how fast a run is after each program."""

    def __init__(self, device: OnDevice, path: Path, trials: int, *, by_model: bool) -> None:
        bounds = Bounds(trials=trials)
        super().__init__(device, path, TunedFile(), bounds, Stages(None), by_model=by_model)
        self.after: list[float] = []

    def _save(self) -> None:
        super()._save()
        left = sum(share * (1 - 1 / self.rounds.gain(key)) for key, share in self.shares.items())
        self.after += [round(1 / (1 - left), 4)] * (self.trials - len(self.after))


def gains(model: Path, device: str, trials: int, *, by_model: bool) -> tuple[list[float], str]:
    """How many times as fast a run is after each program, and in what that is measured."""
    profile = load_device(device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Programs(model, profile, PackOptions(), folder) as programs:
            on = OnDevice(programs, RunOptions(device=profile))
            search = Recorded(on, folder / "tuned.json", trials, by_model=by_model)
            found = search.found()
    return search.after, found.unit


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="files of models, or names of networks")
    parser.add_argument("--device", default="cortex-m4")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args()
    shown = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n <= given.trials]
    rows, everything = [], []
    for model in given.models:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(model) if Path(model).exists() else save(model, Path(folder))
            for name, by_model in (("the nearest first", False), ("by predicted time", True)):
                after, unit = gains(path, given.device, given.trials, by_model=by_model)
                everything.append({"model": path.stem, "order": name, "unit": unit, "after": after})
                cells = [f"{after[min(n, len(after)) - 1]:.3f}" if after else "" for n in shown]
                rows.append([path.stem, name, unit, *cells])
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(
        json.dumps(everything, indent=1)
        if given.json
        else table(["network", "order", "in", *map(str, shown)], rows)
    )


if __name__ == "__main__":
    main()
