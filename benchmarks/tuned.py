"""What ``edgepack tune`` gains on this machine.

    python benchmarks/tuned.py [NETWORK ...] [--minutes 1.5] [--keep FOLDER] [--write]

Each network (those of networks.py, or any ``.onnx`` file) is tuned for so many minutes and packed with and
without what was found. Both programs take turns (A B B A), with one thread and with two: a ratio is the
median over the turns of how many times as long the one by the rules takes, and ``noise`` how far apart the
fastest and the slowest of the turns' ratios between the two runs of one program are. ``--keep`` has the files
of tuned schedules, from which a later call goes on. ``--write`` puts the table into docs/tuning.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from networks import BENCHMARKS, MORE, save

import edgepack
from edgepack.errors import EdgepackError

#: Twenty of different families, small ones and large ones.
NETWORKS = (
    *("resnet18", "resnet50", "mobilenetv2", "squeezenet", "densenet121", "inception_v1", "bert"),
    *("vit_tiny", "unet", "ds_cnn", "mlp", "mobilenetv1", "mobilenetv3_large", "efficientnet_b0"),
    *("regnety_400mf", "resnext50", "shufflenetv2", "convnext_tiny", "segformer_b0", "hifigan"),
)

THREADS = (1, 2)
TURNS = 12
SECONDS = 0.4


def ratios(plain: edgepack.Bundle, tuned: edgepack.Bundle, threads: int) -> tuple[float, float, float]:
    """Milliseconds of a run by the rules, how many times as long as tuned that is, and the noise of that."""
    once = plain.bench(threads=threads, runs=5, warmup=2).summary["median_ms"]
    runs = max(3, round(1e3 * SECONDS / once))

    def measure(bundle: edgepack.Bundle) -> float:
        return bundle.bench(threads=threads, runs=runs, warmup=1).summary["median_ms"]

    found, noise, times = [], [], []
    for _ in range(TURNS):
        a, b, c, d = (measure(one) for one in (plain, tuned, tuned, plain))
        found.append((a + d) / (b + c))
        noise += [a / d, b / c]
        times += [a, d]
    return statistics.median(times), statistics.median(found), max(noise) / min(noise) - 1


def row(name: str, minutes: float, folder: Path, kept: Path) -> list[str]:
    """One network's row."""
    model = save(name, folder)
    file = kept / f"{Path(name).stem}.json"
    try:
        edgepack.tune(model, "host", file, minutes=minutes)
    except EdgepackError as error:
        return [name, f"not tuned: {error.message}"]
    plain = edgepack.pack(model, "host", folder / "plain", force=True)
    tuned = edgepack.pack(model, "host", folder / "tuned", force=True, tuned=[file])
    cells = []
    for threads in THREADS:
        ms, ratio, noise = ratios(plain, tuned, threads)
        cells += [f"{ms:.3g}", f"{ratio:.3f}", f"{100 * noise:.0f} %"]
    chosen = sum("tuned" in kernel.parameters for kernel in tuned.manifest.kernels)
    return [name, str(chosen), *cells]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help="names, or .onnx files; default twenty")
    parser.add_argument("--minutes", type=float, default=1.5, help="of tuning, for each")
    parser.add_argument("--keep", type=Path, help="where files of tuned schedules stay")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tuning.md")
    given = parser.parse_args()
    unknown = [n for n in given.networks if n not in {**BENCHMARKS, **MORE} and not n.endswith(".onnx")]
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
    header = ["network", "kernels"]
    for threads in THREADS:
        header += [f"ms, {threads} thread{'s' if threads > 1 else ''}", "ratio", "noise"]
    measured = [one for one in rows if len(one) == len(header)]
    text = table(header, measured)
    print(text)
    if given.write:
        replace_section(
            "What tuning gained", text, "tuned.py", Path(__file__).parents[1] / "docs" / "tuning.md"
        )


if __name__ == "__main__":
    main()
