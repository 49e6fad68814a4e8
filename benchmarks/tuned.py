"""What ``edgepack tune`` gains on this machine.

    python benchmarks/tuned.py [NETWORK ...] [--minutes 3] [--keep FOLDER] [--write]

Each network (those of networks.py, or any ``.onnx`` or ``.tflite`` file) is tuned for so many minutes, and
both versions, by the rules and with what was found, are measured once more in one program, in turns, with
one thread and with two: a ratio is the median over the turns of how many times as long the one by the rules
takes, with its standard error. Where nothing was found both are the same program, whose ratio shows how
good the measurement is. ``--keep`` has the files of tuned schedules, from which a later call goes on.
``--write`` puts the table into docs/tuning.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from networks import known, save

import edgepack
from edgepack.commands.tune_programs import Program, Programs
from edgepack.commands.tune_rounds import Comparison, Speedup
from edgepack.config.device import Device, load_device
from edgepack.config.tuned import read_tuned
from edgepack.errors import EdgepackError
from edgepack.options import PackOptions, RunOptions
from edgepack.plan.tuned import TunedChoice
from edgepack.runners.turns import HowMany, bench_in_turns

#: Twenty of different families, small ones and large ones.
NETWORKS = (
    *("resnet18", "resnet50", "mobilenetv2", "squeezenet", "densenet121", "inception_v1", "bert"),
    *("vit_tiny", "unet", "ds_cnn", "mlp", "mobilenetv1", "mobilenetv3_large", "efficientnet_b0"),
    *("regnety_400mf", "resnext50", "shufflenetv2", "convnext_tiny", "segformer_b0", "hifigan"),
)

THREADS = (1, 2)
TURNS, LONGEST = 61, 20
MILLISECONDS = 30.0


def ratio(program: Program, device: Device, threads: int) -> tuple[float, Speedup]:
    """Milliseconds of a run of a program's first version, and how many times as fast the second one is."""
    where = RunOptions(threads=threads, device=device)
    (first, _) = bench_in_turns(program.root, program.manifest, program.versions, HowMany(3, 3, 60), where)
    runs = max(3, round(MILLISECONDS / statistics.median(first.runs_ms)))
    many = HowMany(TURNS, runs, LONGEST)
    first, second = bench_in_turns(program.root, program.manifest, program.versions, many, where)
    return statistics.median(first.runs_ms), Comparison({}, {}, first.runs_ms, second.runs_ms).whole


def row(name: str, minutes: float, folder: Path, kept: Path) -> list[str]:
    """One network's row."""
    model, device = save(name, folder), load_device("host")
    file = kept / f"{Path(name).stem}.json"
    try:
        found = edgepack.tune(model, device, file, minutes=minutes)
    except EdgepackError as error:
        return [name, f"not tuned: {error.message}"]
    with tempfile.TemporaryDirectory() as place, Programs(model, device, PackOptions(), Path(place)) as made:
        # A choice for a group that no model has makes the same kernels in a version of their own.
        nothing = TunedChoice(made.target.tuned_kinds[0], "none", "conv2d.igemm", {}, 1.0)
        chosen = read_tuned(file).for_cpus(made.target.tuned_kinds) or (nothing,)
        program = made.built([(), chosen])
        cells = []
        for threads in THREADS:
            ms, faster = ratio(program, device, threads)
            cells += [f"{ms:.3g}", f"{faster.ratio:.3f}", f"{100 * faster.error:.1f} %"]
    return [name, str(found.trials), str(len(found.choices)), *cells]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help="names, or .onnx or .tflite files; default twenty")
    parser.add_argument("--minutes", type=float, default=3, help="of tuning, for each")
    parser.add_argument("--keep", type=Path, help="where files of tuned schedules stay")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tuning.md")
    given = parser.parse_args()
    unknown = [name for name in given.networks if not known(name)]
    if unknown:
        parser.error(f"there is no network {unknown[0]}")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = given.keep or folder
        kept.mkdir(parents=True, exist_ok=True)
        for network in given.networks or NETWORKS:
            rows.append(row(network, given.minutes, folder, kept))
            print(" | ".join(rows[-1]), flush=True)
    header = ["network", "versions", "schedules"]
    for threads in THREADS:
        header += [f"ms, {threads} thread{'s' if threads > 1 else ''}", "ratio", "error"]
    measured = [one for one in rows if len(one) == len(header)]
    text = table(header, measured)
    print(text)
    if given.write:
        replace_section(
            "What tuning gained", text, "tuned.py", Path(__file__).parents[1] / "docs" / "tuning.md"
        )


if __name__ == "__main__":
    main()
