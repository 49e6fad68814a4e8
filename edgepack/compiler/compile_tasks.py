"""What the worker does with a prepared model: its kernels for a target, or what they could be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tvm.ir import IRModule

from edgepack.compiler.backends.llvm import compile_object, llvm_version
from edgepack.compiler.frontend.base import Float16Weights, ImportedModel
from edgepack.compiler.frontend.choose import frontend_of
from edgepack.compiler.graph.forms import Forms
from edgepack.compiler.graph.lower import Lowered, lower_with_graphs
from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.params_data import write_params_data
from edgepack.compiler.plan_for import plan_for, write_choices_for
from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.tuning import Asked
from edgepack.compiler.reporter import Reporter
from edgepack.compiler.stages.recorder import StagesRecorder
from edgepack.plan.binary import Binary, write_binaries
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget
from edgepack.plan.targets import Target, target_from_json

__all__ = ["compile_model", "list_choices", "with_weights"]


@lru_cache(maxsize=1)
def _lowered(frontend: str, imported: str, forms: Forms) -> tuple[ImportedModel, Lowered]:
    """A prepared model, but for its module, and its fused operators, in which a target has no other part: the
    variants of a library share them."""
    modules, about = _loaded(frontend, imported)
    return about, lower_with_graphs(*modules.pop(), forms, about.layout)


def _loaded(
    frontend: str, imported: str
) -> tuple[list[tuple[IRModule, Mapping[str, IRModule]]], ImportedModel]:
    """A prepared model and, in a list, its module and those of its Ifs and loops: taken out of it, nobody
    else keeps the weights in memory while the passes make others of them."""
    loaded = frontend_of(frontend).load(Path(imported))
    return [(loaded.module, loaded.graphs)], replace(loaded, module=None, graphs={})


def _recorded(job: dict[str, Any], forms: Forms) -> tuple[ImportedModel, Lowered, StagesRecorder]:
    """As :func:`_lowered`, and what has recorded how the graph changed."""
    modules, about = _loaded(job["frontend"], job["imported"])
    recorder = StagesRecorder(Path(job["stages"]), about.signature.nodes)
    recorder.imported(modules[0][0])
    return about, lower_with_graphs(*modules.pop(), forms, about.layout, recorder.observe), recorder


def with_weights(target: Target, stored: Float16Weights) -> Target:
    """The target that stores weights as float16 where the model's are to be stored so. WebAssembly has no
    instruction that converts them, and one file for all CPUs: rounded weights are stored as float32, of which
    what compresses a download makes little more than half."""
    if isinstance(target, GpuTarget):
        return replace(target, float16_weights=stored != "never")
    fast = stored == "where it is fast" and target.converts_float16
    always = stored == "always" and target.arch != "wasm32"
    return replace(target, float16_weights=fast or always)


def _target(job: dict[str, Any], imported: ImportedModel) -> Target:
    """The job's, storing weights as the model wants it."""
    return with_weights(target_from_json(job["target"]), imported.float16_weights)


def compile_model(job: dict[str, Any], folder: Path, events: Reporter) -> None:
    """The kernels of a :class:`edgepack.pipeline.job.CompileJob`, as JSON, in its folder."""
    events.stage("optimise")
    forms, recorder = preferred_forms(target_from_json(job["target"])), None
    if job["stages"]:
        imported, lowered, recorder = _recorded(job, forms)
    else:
        imported, lowered = _lowered(job["frontend"], job["imported"], forms)
    target = _target(job, imported)
    events.stage("kernels")
    named = {"name": job["name"], "symbol_prefix": job["symbol_prefix"]}
    built = plan_for(target, lowered, imported, events, named, tuned=job["tuned"])
    events.stage("llvm")
    host = target if isinstance(target, CpuTarget) else target.host
    code = compile_object(built.functions, host, folder / "kernels.o")
    binaries = [Binary("kernels.o", "llvm", "object", version=llvm_version())]
    if isinstance(target, GpuTarget):
        events.stage(target.api)
        binaries += _gpu_binaries(built, target, folder, events)
    write_binaries(folder, binaries)
    write_params_data(built.plan, built.constants, folder / "params.bin")
    (folder / "plan.json").write_text(built.plan.to_json(), encoding="utf-8", newline="\n")
    if recorder is not None:
        events.stage("stages")
        recorder.finish(built, code, target, name=job["name"], prefix=job["symbol_prefix"])


def list_choices(job: dict[str, Any], folder: Path, events: Reporter) -> None:
    """By which schedules a model's kernels are computed, and what else may be tried: what a
    :class:`edgepack.pipeline.job.ChoicesJob`, as JSON, asks for, in its folder."""
    events.stage("optimise")
    forms = preferred_forms(target_from_json(job["target"]))
    imported, lowered = _lowered(job["frontend"], job["imported"], forms)
    events.stage("kernels")
    asked = Asked(
        path=folder / "choices.json",
        wanted=tuple(job["wanted"]),
        seconds=job["seconds"],
        part=job["part"],
        parts=job["parts"],
        tried=job["tried"],
    )
    target, prefix = _target(job, imported), job["symbol_prefix"]
    write_choices_for(target, lowered, imported, events, prefix, asked, tuned=job["tuned"])


def _gpu_binaries(built: Built, target: GpuTarget, folder: Path, events: Reporter) -> list[Binary]:
    """What the GPU's kernels become."""
    if target.api == "cuda":
        from edgepack.compiler.backends.cuda import write_cuda

        return write_cuda(built.gpu_kernels, target.capabilities, folder, target.cuda)
    if target.api == "metal":
        from edgepack.compiler.backends.metal import write_metal

        return write_metal(built.gpu_kernels, target.host.triple, folder, events.warning)
    from edgepack.compiler.backends.opencl import write_opencl

    return write_opencl(built.gpu_kernels, folder)
