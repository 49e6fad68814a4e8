"""The texts of a model's stages: they say what is compiled, and how many operators each stage leaves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import lief
import onnx
import pytest

from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.backends.opencl import opencl_source
from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.planner.build import build_plan
from edgepack.compiler.planner.build_gpu import build_gpu_plan
from edgepack.compiler.stages.recorder import StagesRecorder
from edgepack.config.device import load_device
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.stages import STAGES_FILE, StagesRecord
from edgepack.plan.targets import Target
from edgepack.plan.types import Plan
from workbench.models.builder import Graph

PREFIX = "m_"


def residual_block() -> onnx.ModelProto:
    """Two convolutions, a sum, a softmax whose constants lie in memory beside the code."""
    g = Graph("block")
    x = g.input("x", [1, 8, 12, 12])
    first = g.op("Relu", g.op("Conv", x, g.weight(8, 8, 3, 3), g.weight(8), pads=[1, 1, 1, 1]))
    second = g.op("Conv", first, g.weight(8, 8, 3, 3), g.weight(8), pads=[1, 1, 1, 1])
    pooled = g.op("GlobalAveragePool", g.op("Add", second, x))
    g.op("Softmax", g.op("Flatten", pooled), name="y")
    g.output("y")
    return g.model()


def recorded(target: Target, folder: Path) -> tuple[StagesRecord, Plan]:
    """The stages of the block in ``folder / "stages"``, beside the object file."""
    imported = import_model(residual_block())
    recorder = StagesRecorder(folder / "stages", imported.signature.nodes)
    recorder.imported(imported.module)
    lowered = lower(imported.module, preferred_forms(target), observe=recorder.observe)
    names = {"name": "m", "symbol_prefix": PREFIX}
    if isinstance(target, GpuTarget):
        built, host = build_gpu_plan(lowered, imported.signature, target, **names), target.host
        (folder / "kernels.cl").write_text(opencl_source(built.gpu_kernels))
    else:
        built, host = build_plan(lowered, imported.signature, target, **names), target
    code = compile_object(built.functions, host, folder / "kernels.o")
    recorder.finish(built, code, target, name="m", prefix=PREFIX)
    return StagesRecord.from_json((folder / "stages" / STAGES_FILE).read_text()), built.plan


class Recorded(NamedTuple):
    """The stages of the block for a CPU of another architecture, and where they lie; not to be changed."""

    record: StagesRecord
    plan: Plan
    folder: Path

    def text(self, file: str) -> str:
        return (self.folder / "stages" / file).read_text()


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    return Recorded(*recorded(load_device("raspberrypi4").cpu_target(), folder), folder)


def test_the_assembly_of_a_kernel_is_that_of_the_object_that_is_linked(
    block: Recorded, tmp_path: Path
) -> None:
    assert [kernel.symbol for kernel in block.record.kernels] == [one.symbol for one in block.plan.kernels]
    linked = lief.ELF.parse(block.folder / "kernels.o")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu", "-c"]
    for kernel in block.record.kernels:
        folder = block.folder / "stages" / "kernels" / kernel.name
        subprocess.run([*zig, folder / "assembly.s", "-o", tmp_path / "a.o"], check=True, capture_output=True)
        code = function_bytes(linked, kernel.symbol)
        assembled = lief.ELF.parse(tmp_path / "a.o").get_section(".text").content
        assert code
        assert code == bytes(assembled)[: len(code)]
        assert re.findall(r"^define .*@(\w+)\(", (folder / "llvm.ll").read_text(), re.M) == [kernel.symbol]
        assert kernel.symbol in (folder / "tir.txt").read_text()


def function_bytes(binary: lief.ELF.Binary, symbol: str) -> bytes:
    """The machine code of a function of an object file."""
    found = next(one for one in binary.symbols if one.name == symbol)
    section = binary.sections[found.shndx]
    return bytes(section.content)[found.value : found.value + found.size]


def test_each_stage_is_counted_and_what_changed_is_written(block: Recorded) -> None:
    record, plan = block.record, block.plan
    stages = {stage.name: stage for stage in record.graph}
    assert [stage.number for stage in record.graph] == list(range(1, len(record.graph) + 1))
    assert stages["imported"].counts["nn.conv2d"] == 2
    assert stages["legalize"].counts["conv2d"] == 2
    assert stages["imported"].operators > stages["simplify"].operators > stages["fuse"].operators
    assert stages["fuse"].counts["fused_conv2d_add_relu"] == 1
    assert stages["attention"].state == "unchanged"
    for stage in record.graph:
        assert (stage.state == "changed") == bool(stage.file)
        assert not stage.file or stage.title in block.text(stage.file)
    nodes = {kernel.name: kernel.nodes for kernel in record.kernels}
    fused = next(kernel for kernel in record.kernels if tuple(kernel.ops) == ("conv2d", "add", "relu"))
    assert nodes[fused.name] == ["Conv_0", "Relu_1"]
    every = {node for named in nodes.values() for node in named}
    assert every == set(import_model(residual_block()).signature.nodes) - {"Flatten_5"}  # a view
    assert all(set(step.nodes) <= set(nodes[step.kernel.removeprefix(PREFIX)]) for step in plan.steps)


def test_graphs_name_the_nodes_and_abbreviate_constants(block: Recorded) -> None:
    first = block.text("01-imported.txt")
    weights = 8 * 8 * 3 * 3 * 4
    assert re.search(
        rf"const0: R.Tensor\(\(8, 8, 3, 3\), .*# {weights} bytes: -?[\d.e-]+ .* \.\.\.$", first, re.M
    )
    assert "metadata" not in first
    fused = block.text("14-fuse.txt")
    main = fused[fused.index("def main") :]
    line = next(i for i, line in enumerate(main.splitlines()) if "fused_conv2d_add_relu(" in line)
    assert main.splitlines()[line - 1].strip() == "# Conv_0, Relu_1"


def test_texts_of_two_compilations_are_the_same(block: Recorded, tmp_path: Path) -> None:
    recorded(load_device("raspberrypi4").cpu_target(), tmp_path)
    files = [file for file in sorted((tmp_path / "stages").rglob("*")) if file.is_file()]
    assert len(files) > len(block.record.kernels)
    for file in files:
        assert file.read_text() == block.text(str(file.relative_to(tmp_path / "stages")))


def test_a_kernel_of_a_gpu_has_the_source_that_its_driver_compiles(tmp_path: Path) -> None:
    device = load_device("opencl-generic")
    target = device.gpu_target(device.cpu_target())
    assert target is not None
    record, _ = recorded(target, tmp_path)
    ours = [kernel for kernel in record.kernels if kernel.backend == "opencl"]
    assert ours
    common = (tmp_path / "stages" / record.common[0]).read_text()
    texts = {kernel.symbol: (tmp_path / "stages" / kernel.files[0]).read_text() for kernel in ours}
    assert [Path(kernel.files[0]).name for kernel in ours] == ["kernel.cl"] * len(ours)
    compiled = (tmp_path / "kernels.cl").read_text()
    assert compiled == "\n".join([common, *(texts[symbol] for symbol in sorted(texts))])
    assert all(symbol in text for symbol, text in texts.items())
