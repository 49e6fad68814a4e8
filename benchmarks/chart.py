"""The charts and the table of docs/performance.md: ``python benchmarks/chart.py``.

They show what ``compare.py --write``, without and with ``--int8``, measured and put into notes/, and
nothing else: for each network the time of the fastest other engine, relative to edgepack's. ``compare.py
--write`` draws them anew.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import note, read_section, read_tables, replace_section, table

from tools.svg import IMAGES, THEMES, Svg, Theme

PERFORMANCE = Path(__file__).parents[1] / "docs" / "performance.md"

#: Sections of notes/ in the table for users.
SECTIONS = ("Side by side", "More networks")

#: Charts: the name of the picture, and the section of notes/ that it shows.
CHARTS = {"performance": "Side by side", "performance-int8": "Quantised networks"}

#: Names that the tables write another way.
NAMES = {
    **{
        "resnet18": "ResNet-18",
        "resnet50": "ResNet-50",
        "mobilenetv2": "MobileNetV2",
        "squeezenet": "SqueezeNet",
    },
    **{
        "densenet121": "DenseNet-121",
        "inception_v1": "Inception v1",
        "vgg19": "VGG-19",
        "bert": "BERT (MiniLM-L6)",
    },
    **{"vit_tiny": "ViT-Ti/16", "unet": "U-Net, 256x256", "ds_cnn": "DS-CNN", "mlp": "MLP"},
    **{
        "mobilenetv1": "MobileNetV1",
        "mobilenetv3_large": "MobileNetV3 large",
        "efficientnet_b0": "EfficientNet-B0",
        "efficientnet_lite0": "EfficientNet-Lite0",
    },
    **{
        "regnety_400mf": "RegNetY-400MF",
        "regnety_040": "RegNetY-4GF",
        "yolo": "YOLO-like, 320x320",
        "resnext50": "ResNeXt-50",
        "shufflenetv2": "ShuffleNetV2",
    },
    **{"convnext_tiny": "ConvNeXt-T", "deit_small": "DeiT-S", "distilbert": "DistilBERT"},
    **{"segformer_b0": "SegFormer-B0, 256x256"},
    **{"lstm_text": "LSTM 2x96, 40 steps", "lstm_text_step": "LSTM 2x96, a step"},
    **{"gru_tagger": "GRU 2x64 both ways, 50 steps", "gru_tagger_step": "GRU 2x64, a step"},
    **{"lstm_speech": "LSTM 3x512, 100 steps", "lstm_speech_step": "LSTM 3x512, a step"},
    **{"tcn": "TCN"},
    **{"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "torch": "PyTorch", "tvm": "TVM"},
}


@dataclass(frozen=True)
class Time:
    """Medians in ms of edgepack and of the fastest other engine, and their ratio, as the table has them."""

    edgepack: str
    peer: str
    engine: str
    ratio: str


@dataclass(frozen=True)
class Comparison:
    """One section of what ``compare.py`` wrote.

    Attributes:
        times: by number of threads, by network.
        means: geometric mean of the ratios, by number of threads.
        engines: the others.
        numbers: type of the networks' numbers: "float32" or "int8".
        date, machine: when and where.
    """

    times: dict[int, dict[str, Time]]
    means: dict[int, str]
    engines: tuple[str, ...]
    numbers: str
    date: str
    machine: str

    @property
    def shown(self) -> list[int]:
        """Numbers of threads that are shown: the least and the most that were measured."""
        return sorted({min(self.times), max(self.times)})

    @property
    def networks(self) -> list[str]:
        """Networks that another engine runs as well."""
        return [name for name in self.times[self.shown[0]] if name in self.times[self.shown[-1]]]


def read(section: str, document: Path | None = None) -> Comparison:
    """What ``compare.py`` wrote."""
    text = read_section(section, document or note(section))
    times: dict[int, dict[str, Time]] = {}
    means: dict[int, str] = {}
    engines: list[str] = []
    for threads, part in re.findall(r"^## (\d+) threads?\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        (header, *rows), *_ = read_tables(part)
        engines = [engine for engine in header[2:-1] if not engine.startswith("edgepack")]
        for network, *cells, last in rows:
            if network == "geometric mean":
                means[int(threads)] = last
                continue
            ratio, engine = last.rstrip(")").split(" (")
            if engine:  # of a network that no other engine can run there is nothing to say
                time = Time(cells[0], cells[header.index(engine) - 1], engine, ratio)
                times.setdefault(int(threads), {})[network] = time
    (numbers,) = re.findall(r"^Measured on .*?, batch 1, (\w+)", text)
    (date,) = re.findall(r"^Measured on (\S+):", text)
    (machine,) = re.findall(r"^(.+?), L1 ", text, re.MULTILINE)
    return Comparison(times, means, tuple(engines), numbers, date, machine)


def summary(comparisons: Sequence[Comparison]) -> str:
    """The table for users, and what was compared."""
    counts = comparisons[0].shown
    header = ["median ms"]
    for threads in counts:
        header += [f"edgepack, {_threads(threads)}", "fastest other", "ratio"]
    rows = []
    for comparison in comparisons:
        for network in comparison.networks:
            cells = [_name(network)]
            for threads in counts:
                time = comparison.times[threads][network]
                cells += [time.edgepack, f"{time.peer} ({_name(time.engine)})", f"**{time.ratio}**"]
            rows.append(cells)
        mean = [cell for threads in counts for cell in ("", "", f"**{comparison.means[threads]}**")]
        rows.append(["*geometric mean*", *mean])
    notes = [
        f"{where}: {one.machine}, {one.date}, against {_list(one.engines)}."
        for where, one in zip(("Upper part", "Lower part"), comparisons, strict=True)
    ]
    return "\n\n".join([table(header, rows), " ".join(notes) + " Ratio: the other's time by edgepack's."])


def chart(comparison: Comparison, theme: Theme) -> str:
    """Bars of the ratios, one for each number of threads."""
    counts = comparison.shown
    networks = comparison.networks
    colours = dict(zip(reversed(counts), (theme.strong, theme.soft), strict=False))
    left, right, top, pitch, bar = 150, 640, 78, 32, 11
    longest = max(float(t.ratio) for times in comparison.times.values() for t in times.values())
    ticks = math.ceil(longest)
    scale = (right - left) / ticks
    bottom = top + pitch * len(networks)
    picture = Svg(
        780, bottom + 62, theme, "Time of the fastest other engine relative to edgepack's, by network"
    )
    title = "How many times as long the fastest other engine takes"
    if comparison.numbers != "float32":
        title += f", {comparison.numbers}"
    picture.text(left, 20, title, size=16, weight=600)
    x = left
    for threads in counts:
        mean = f"{_threads(threads)}: geometric mean {comparison.means[threads]}"
        picture.box(x, 34, 12, 12, fill=colours[threads], radius=2)
        picture.text(x + 18, 44, mean, fill=theme.muted)
        x += 230
    for i in range(ticks + 1):
        picture.line((left + i * scale, top - 8), (left + i * scale, bottom), stroke=theme.line)
        picture.text(left + i * scale, bottom + 16, str(i), size=11, anchor="middle", fill=theme.muted)
    for row, network in enumerate(networks):
        y = top + pitch * row + (pitch - 2 * bar - 1) / 2
        picture.text(left - 10, y + bar + 5, _name(network), size=13, anchor="end")
        for threads in counts:
            time = comparison.times[threads][network]
            width = float(time.ratio) * scale
            picture.box(left, y, width, bar, fill=colours[threads], radius=1)
            text = f"{time.ratio}  {_name(time.engine)}"
            picture.text(left + width + 6, y + bar - 2, text, size=10, fill=theme.muted)
            y += bar + 1
    picture.line((left + scale, top - 8), (left + scale, bottom), stroke=theme.text)
    picture.text(left + scale, top - 13, "edgepack", size=11, anchor="middle", fill=theme.text)
    picture.text(left, bottom + 38, f"Against {_list(comparison.engines)}.", size=11, fill=theme.muted)
    where = f"Batch 1, {comparison.numbers}. {comparison.machine}, {comparison.date}."
    picture.text(left, bottom + 54, where, size=11, fill=theme.muted)
    return str(picture)


def write() -> None:
    """The table and the charts, from what notes/ has now."""
    comparisons = [read(section) for section in SECTIONS]
    replace_section("Against other engines", summary(comparisons), "chart.py", PERFORMANCE)
    IMAGES.mkdir(exist_ok=True)
    for picture, section in CHARTS.items():
        comparison = read(section)
        for name, theme in THEMES.items():
            path = IMAGES / f"{picture}-{name}.svg"
            path.write_text(chart(comparison, theme), encoding="utf-8", newline="\n")


def _threads(count: int) -> str:
    return f"{count} thread" + ("s" if count > 1 else "")


def _name(name: str) -> str:
    return NAMES.get(name, name)


def _list(engines: Sequence[str]) -> str:
    names = [_name(engine) for engine in engines]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write()
