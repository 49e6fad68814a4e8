"""Fits the constants by which a microcontroller's schedules are compared when a model is packed
(``cpu.costs`` in its device's file), and measures what they bring.

    python benchmarks/fit_costs.py FOLDER --device cortex-m4 [--write] [--only-measure]

FOLDER has the .tflite and .onnx files that :data:`FITTED` and :data:`HELD_OUT` name (``../shared/models``);
the others are made here. For each network of the first kind, what a pack would compare is measured: a program
for one candidate of each layer, its instructions counted under qemu. The constants are those by which the
logarithms of predicted and measured ratios are nearest to each other. The least gain of a rule and type is
above every prediction of a gain that was none; one that nothing wins by is not compared at all.

Then each network is packed without and with the constants, those that were held out too: instructions of a
run, flash and RAM of the image (without the recorded data), seconds of a pack's compiler, whether the results
are right. Instructions are no cycles. ``--write`` writes the constants into the device's file and the rows of
this device into the notes; ``--only-measure`` takes the constants that are there.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import note, read_section, read_tables, replace_section, table
from small_networks import drawn

import edgepack
from edgepack import resources
from edgepack.compiler.backends.llvm import compile_alone
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.choose import choose, frontend_of
from edgepack.compiler.graph.lower import lower_with_graphs
from edgepack.compiler.kernels.candidates import plain_schedule
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.predict.counted import Counted, counted, weighted
from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.kernels.schedule import nothing_given
from edgepack.compiler.planner.build import select_kernels
from edgepack.compiler.planner.predicted import compared_layers, compared_schedules, rule_and_type
from edgepack.config.device import Device, load_device
from edgepack.config.device_sections import CostTable
from edgepack.config.tuned import TunedFile, write_tuned
from edgepack.objectfiles.code_size import section_bytes
from edgepack.plan.costs import COMPARED, NEVER, InstructionCosts
from edgepack.plan.tuned import TunedChoice
from workbench.models import vision

HEADING = "Schedules that are taken by prediction"

#: Networks: a file of FOLDER, or a number of a drawn one.
FITTED = ("mlperf_tiny_kws_int8.tflite", "mlperf_tiny_resnet8_int8.tflite", "ds_cnn", "drawn1", "drawn3")
HELD_OUT = (
    *("mlperf_tiny_vww_int8.tflite", "mlperf_tiny_ad_int8.tflite", "micro_speech_int8.tflite"),
    *("micro_kws_qdq.onnx", "mlperf_tiny_vww_float32.tflite", "drawn4", "drawn5", "drawn6"),
)

#: Sections of an image in flash and in RAM, without the recorded data.
FLASH, RAM = (".vectors", ".params", ".kernels", ".runtime", ".text", ".data"), (".arena", ".data", ".bss")

#: A kind of instruction of TIR by the name of its constant.
KINDS = {
    one.name: {"branch": "branches"}.get(one.name, f"{one.name}s" if one.name != "arithmetic" else one.name)
    for one in fields(InstructionCosts)
    if one.name != "least_gain"
}

#: What a prediction has to be better by than the worst one that was wrong, and by how much at least.
BEYOND, LEAST = 0.005, 1.02

#: How much a constant has to explain before it moves away from what it begins with.
DOUBT = 0.03


@dataclass(frozen=True)
class Sample:
    """A schedule that was measured beside the rule's own: what is predicted of both, and the ratio."""

    kind: str
    before: Counted
    after: Counted
    ratio: float

    def predicted(self, costs: InstructionCosts) -> float:
        """The ratio of instructions, after by before."""
        return _instructions(self.after, costs) / _instructions(self.before, costs)

    def gain(self, costs: InstructionCosts) -> float:
        """As a pack takes it: by instructions, or with loads and stores counted twice."""
        before, after = _instructions(self.before, costs), _instructions(self.after, costs)
        cycles = (before + self.before.accesses) / (after + self.after.accesses)
        return min(before / after, cycles)


def _instructions(one: Counted, costs: InstructionCosts) -> float:
    return one.inner_instructions + weighted(one.rest, costs)


def without_costs(device: Device) -> Device:
    """The device, whose rules decide alone."""
    return device.model_copy(update={"cpu": device.cpu.model_copy(update={"costs": CostTable()})})


def samples(model: Path, device: Device) -> Iterator[Sample]:
    """What a pack of a model would compare, measured."""
    target = replace(
        without_costs(device).cpu_target(),
        costs=InstructionCosts(least_gain=tuple((name, 1.0) for name in COMPARED)),
    )
    assert target.costs is not None
    with tempfile.TemporaryDirectory() as folder:
        plain = without_costs(device)
        rules = edgepack.pack(model, plain, Path(folder) / "rules")
        prefix = f"edgepack_{rules.manifest.name}_"
        frontend = frontend_of(choose(model))
        place = Path(folder) / "imported"
        place.mkdir()
        frontend.prepare(model, ImportOptions(), place)
        loaded = frontend.load(place)
        forms = preferred_forms(target)
        lowered = lower_with_graphs(loaded.module, loaded.graphs, forms, loaded.layout)
        program, selector = select_kernels(lowered, loaded.signature, target, symbol_prefix=prefix)
        first = counts(rules, device)
        layers = []
        for calls in compared_layers(program, selector, nothing_given):
            made = calls[0].implementation
            assert made is not None
            compiled = lambda function: compile_alone(function, target)  # noqa: E731
            own = counted(made, target, target.costs, compiled)
            if own is not None:
                layers.append((calls[0], own, compared_schedules(calls[0], own, selector, compiled)))
        for number in range(max((len(some) for _, _, some in layers), default=0)):
            here = [(call, own, some[number]) for call, own, some in layers if number < len(some)]
            chosen = [
                TunedChoice(
                    target.cpu_kind,
                    group_key(call.fused_groups),
                    rule_and_type(call).split(" ")[0],
                    plain_schedule(one.made.schedule),
                    1.0,
                )
                for call, _, one in here
                if one.made.schedule is not None
            ]
            write_tuned(file := Path(folder) / "chosen.json", TunedFile(tuple(chosen)))
            other = edgepack.pack(model, plain, Path(folder) / "other", tuned=[file], force=True)
            then = counts(other, device)
            for call, own, one in here:
                before, after = (sum(found[symbol] for symbol in call.symbols) for found in (first, then))
                yield Sample(rule_and_type(call), own, one.after, after / before)


def counts(bundle: edgepack.Bundle, device: Device) -> dict[str, int]:
    """Instructions of a run by kernel."""
    measurement = bundle.bench(runs=1, device=device)
    assert measurement.instructions is not None
    found: dict[str, int] = {}
    steps = bundle.manifest.code(measurement.variant).steps
    for step, count in zip(steps, measurement.instructions.steps, strict=True):
        found[step.kernel] = found.get(step.kernel, 0) + count
    return found


def fitted(known: Sequence[Sample]) -> InstructionCosts:
    """The constants by which predicted ratios are near to measured ones, far ones counting less."""
    start = InstructionCosts()
    names = list(KINDS)
    prior = np.log([getattr(start, name) for name in names])
    weights = prior.copy()

    def rest(one: Counted) -> Any:
        return np.array([getattr(one.rest, KINDS[name]) for name in names])

    rows = [
        (one.before.inner_instructions, rest(one.before), one.after.inner_instructions, rest(one.after))
        for one in known
    ]
    measured = np.log([one.ratio for one in known])
    for _ in range(40):
        w = np.exp(weights)
        before = np.array([inner + w @ more for inner, more, _, _ in rows])
        after = np.array([inner + w @ more for _, _, inner, more in rows])
        missed = np.log(after / before) - measured
        slope = np.array(
            [w * b / y - w * a / x for (_, a, _, b), x, y in zip(rows, before, after, strict=True)]
        )
        trust = 1 / (1 + np.abs(missed) / 0.1)
        normal = slope.T @ (slope * trust[:, None]) + DOUBT * np.eye(len(names))
        weights -= 0.7 * np.linalg.solve(normal, slope.T @ (missed * trust) + DOUBT * (weights - prior))
        weights = np.clip(weights, log(0.05), log(20))
    costs = {name: round(float(value), 2) for name, value in zip(names, np.exp(weights), strict=True)}
    return with_least_gains(InstructionCosts(**costs), known)


def with_least_gains(costs: InstructionCosts, known: Sequence[Sample]) -> InstructionCosts:
    """The constants with the least gain of each rule and type by which something is gained."""
    gains = []
    for kind in COMPARED:
        here = [(one.gain(costs), one.ratio) for one in known if one.kind == kind]
        wrong = max((said for said, ratio in here if ratio > 1), default=1.0)
        least = max(LEAST, np.ceil((wrong + BEYOND) * 100) / 100)
        if any(said >= least for said, _ in here):
            gains.append((kind, float(least)))
    return replace(costs, least_gain=tuple(gains))


@dataclass(frozen=True)
class Image:
    """An image: instructions of a run, bytes, seconds of the pack, whether its results are right, how many
    kernels are by a predicted schedule."""

    instructions: int
    flash: int
    ram: int
    seconds: float
    right: bool
    predicted: int


def image(model: Path, device: Device) -> Image:
    """The image of a model."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time(), sum(_children())
        bundle = edgepack.pack(model, device, Path(folder) / "bundle", cache=False)
        seconds = time.process_time() - started[0] + sum(_children()) - started[1]
        (elf,) = (bundle.path / "bin").glob("*.elf")
        sizes = section_bytes(elf)
        measurement = bundle.bench(runs=1, device=device)
        assert measurement.instructions is not None
        kernels = bundle.manifest.code(measurement.variant).kernels
        return Image(
            measurement.instructions.run,
            sum(sizes.get(one, 0) for one in FLASH),
            sum(sizes.get(one, 0) for one in RAM),
            seconds,
            bundle.verify(device=device).ok,
            sum("predicted" in kernel.parameters for kernel in kernels),
        )


def _children() -> tuple[float, float]:
    """Seconds of the processors that ended children took."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime, used.ru_stime


def row(name: str, model: Path, device: Device, costs: InstructionCosts, held_out: bool) -> list[str]:
    """Of the table."""
    section = {one.name: getattr(costs, one.name) for one in fields(costs)}
    section["least_gain"] = dict(costs.least_gain)
    cpu = device.cpu.model_copy(update={"costs": CostTable(**section)})
    after_device = device.model_copy(update={"cpu": cpu})
    before, after = image(model, without_costs(device)), image(model, after_device)
    assert after.right, f"{name} on {device.name} computes something else"
    return [
        _short(name),
        device.name,
        "held out" if held_out else "fitted",
        f"{before.instructions / 1e6:.3f}",
        f"{after.instructions / before.instructions:.4f}",
        str(after.predicted),
        f"{after.flash / before.flash:.4f}",
        f"{after.ram / before.ram:.4f}",
        f"{before.seconds:.1f}",
        f"{after.seconds:.1f}",
    ]


def network(name: str, folder: Path, made: Path) -> Path:
    """The file of a network."""
    if (path := folder / name).is_file():
        return path
    path = made / f"{name}.onnx"
    onnx.save(vision.ds_cnn() if name == "ds_cnn" else drawn(int(name.removeprefix("drawn"))), str(path))
    return path


def written(name: str, costs: InstructionCosts) -> None:
    """Writes the constants into a device's file, in the place of those that are there. What the device that
    it extends compares, and this one does not, is turned off."""
    path = Path(resources.DEVICES) / f"{name}.yaml"
    text = re.sub(r"(?m)^  costs:\n(?:    .*\n)*", "", path.read_text(encoding="utf-8"))
    base = re.search(r"(?m)^extends: (\S+)$", text)
    inherited = load_device(base[1]).cpu.costs.least_gain if base else {}
    gains = {**dict.fromkeys(inherited, NEVER), **dict(costs.least_gain)}
    if gains:
        lines = ["  costs:", *(f"    {name}: {getattr(costs, name):g}" for name in KINDS), "    least_gain:"]
        lines += [f"      {name}: {gain:g}" for name, gain in sorted(gains.items())]
        if not re.search(r"(?m)^cpu:\n", text):
            text = text.replace("compilers:\n", "cpu:\ncompilers:\n", 1)
        text = re.sub(r"(?m)^(cpu:\n(?:  .*\n)*)", lambda m: m[1] + "\n".join(lines) + "\n", text, count=1)
    path.write_text(text, encoding="utf-8")


def with_others(rows: list[list[str]]) -> list[list[str]]:
    """These rows, and those of other networks and devices that the notes have, by device."""
    old = read_tables(read_section(HEADING))[0][1:] if note(HEADING).is_file() else []
    found = {(line[1], line[0]): line for line in [*old, *rows]}
    names = [_short(name) for name in (*FITTED, *HELD_OUT)]
    return sorted(found.values(), key=lambda line: (line[1], names.index(line[0])))


def _short(name: str) -> str:
    """A network's name in the table."""
    return Path(name).stem.removeprefix("mlperf_tiny_")


def main() -> None:
    """Fits, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only-measure", action="store_true")
    parser.add_argument("--without", action="append", default=[], help="a network that is left out")
    parser.add_argument("--only", action="append", default=[], help="a network that is measured")
    given = parser.parse_args()
    device = load_device(given.device)
    rows: list[list[str]] = []
    fitted_on = [name for name in FITTED if name not in given.without]
    names = [*fitted_on, *(name for name in HELD_OUT if name not in given.without)]
    with tempfile.TemporaryDirectory() as made:
        files = {name: network(name, given.folder, Path(made)) for name in {*names, *given.only}}
        if given.only_measure:
            found = device.cpu_target().costs
            assert found is not None, f"{device.name} has no constants"
            costs = found
        else:
            known = [one for name in fitted_on for one in samples(files[name], device)]
            costs = fitted(known)
            close = [abs(log(one.predicted(costs) / one.ratio)) for one in known]
            print(f"{len(known)} schedules; off by {exp(float(np.median(close))) - 1:.1%} (median)", costs)
            if given.write:
                written(given.device, costs)
            if not costs.least_gain:
                return
        for name in given.only or names:
            rows.append(row(name, files[name], device, costs, name in HELD_OUT))
            print(" | ".join(rows[-1]), flush=True)
    header = ["network", "device", "", "10^6 instructions", "ratio", "kernels", "flash", "RAM"]
    header += ["pack, s", "with"]
    print(table(header, rows, left=3))
    if given.write:
        replace_section(HEADING, table(header, with_others(rows), left=3), Path(__file__).name)


if __name__ == "__main__":
    main()
