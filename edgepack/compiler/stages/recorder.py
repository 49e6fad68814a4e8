"""Writes what a model becomes on its way to a target: the graph after each group of passes, then of each
kernel its TIR and the texts of the back end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.backends.cuda import cuda_source
from edgepack.compiler.backends.llvm import MachineCode
from edgepack.compiler.backends.metal import metal_source
from edgepack.compiler.backends.opencl import opencl_source
from edgepack.compiler.graph.pass_groups import PASS_GROUPS, PassGroup
from edgepack.compiler.planner.built import Built
from edgepack.compiler.stages.graph_text import FusedFunction, fused_functions, module_text, operator_counts
from edgepack.compiler.stages.machine_text import split_assembly, split_ir
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.stages import STAGES_FILE, GraphStage, KernelTexts, StagesRecord
from edgepack.plan.targets import Target
from edgepack.plan.types import Copy, Kernel, Plan

__all__ = ["StagesRecorder"]

#: Of each GPU's API: the suffix of its sources, and what writes them.
_SOURCES: Mapping[str, tuple[str, Callable[[Mapping[str, str]], str]]] = {
    "opencl": ("cl", opencl_source),
    "cuda": ("cu", cuda_source),
    "metal": ("metal", metal_source),
}

#: The graph that the frontend makes: it comes before all groups of passes.
_IMPORTED = "imported", "the model as the frontend reads it, in Relax"


@dataclass
class StagesRecorder:
    """Writes texts into a folder, and at last ``stages.json``, which lists them.

    Attributes:
        folder: where the texts go; made with the first of them.
        nodes: names of the model's nodes, by the index that a module's variables carry.
    """

    folder: Path
    nodes: tuple[str, ...]
    _graph: dict[str, GraphStage] = field(default_factory=dict)
    _functions: dict[str, FusedFunction] = field(default_factory=dict)
    _last: IRModule | None = None

    def imported(self, module: IRModule) -> None:
        """Takes the graph as the frontend made it."""
        self._add(1, *_IMPORTED, module)

    def observe(self, group: PassGroup, module: IRModule) -> None:
        """Takes the graph as it is after a group of passes."""
        self._add(PASS_GROUPS.index(group) + 2, group.name, group.title, module)

    def finish(self, built: Built, code: MachineCode, target: Target, *, name: str, prefix: str) -> None:
        """Writes the texts of the kernels, and the list of all texts.

        Args:
            built: the plan and what its kernels were compiled from.
            code: the machine code of the CPU's kernels, as it is linked.
            target: what they are for.
            name: the model's.
            prefix: of every kernel's symbol.
        """
        self._last = None
        for number, group in enumerate(PASS_GROUPS, 2):
            if group.name not in self._graph:  # it does not run at this level of optimisation
                counts = next(s.counts for s in reversed(self._in_order()) if s.number < number)
                self._graph[group.name] = GraphStage(number, group.name, group.title, "skipped", counts)
        common = self._common(built)
        texts = _texts_of_cpu(built, code) | self._texts_of_gpu(built)
        kernels = [self._kernel(kernel, built.plan, texts, prefix) for kernel in built.plan.kernels]
        record = StagesRecord(name, _words(target), self._in_order(), kernels, common)
        text = json.dumps(record.to_json(), indent=1, ensure_ascii=False)
        (self.folder / STAGES_FILE).write_text(text + "\n", encoding="utf-8", newline="\n")

    def _in_order(self) -> list[GraphStage]:
        return sorted(self._graph.values(), key=lambda stage: stage.number)

    def _add(self, number: int, name: str, title: str, module: IRModule) -> None:
        counts = operator_counts(module)
        before, self._last = self._last, module
        if before is not None and tvm_ffi.structural_equal(_plain(before), _plain(module)):
            self._graph[name] = GraphStage(number, name, title, "unchanged", counts)
            return
        known = _unchanged(before, module)
        stage = GraphStage(number, name, title, "changed", counts, f"{number:02}-{name}.txt")
        head = [f"# {number:02} {name}: {title}.", f"# Calls in main: {stage.operators}"]
        if known:
            head.append(f"# As in the stage before, and left out: {', '.join(known)}")
        self._functions |= fused_functions(module, before)
        text = module_text(module, self.nodes, known, self._functions)
        self._write(stage.file, "\n".join(head) + "\n\n" + text)
        self._graph[name] = stage

    def _common(self, built: Built) -> list[str]:
        """What stands in front of all kernels of a GPU."""
        if not built.gpu_kernels:
            return []
        suffix, source = _SOURCES[built.plan.gpu_api]
        file = f"kernels/common.{suffix}"
        self._write(file, source({}))
        return [file]

    def _texts_of_gpu(self, built: Built) -> dict[str, dict[str, str]]:
        if not built.gpu_kernels:
            return {}
        suffix, _ = _SOURCES[built.plan.gpu_api]
        return {symbol: {f"kernel.{suffix}": text} for symbol, text in built.gpu_kernels.items()}

    def _kernel(
        self, kernel: Kernel, plan: Plan, texts: Mapping[str, Mapping[str, str]], prefix: str
    ) -> KernelTexts:
        name = kernel.symbol.removeprefix(prefix)
        steps = [i for i, s in enumerate(plan.steps) if not isinstance(s, Copy) and s.kernel == kernel.symbol]
        nodes = self._nodes(kernel, [node for i in steps for node in plan.steps[i].nodes])  # type: ignore[union-attr]
        files = []
        for file, text in texts.get(kernel.function or kernel.symbol, {}).items():
            files.append(f"kernels/{name}/{file}")
            self._write(files[-1], text)
        return KernelTexts(name, kernel.symbol, kernel.backend, kernel.rule, kernel.ops, nodes, steps, files)

    def _nodes(self, kernel: Kernel, named: Sequence[str]) -> tuple[str, ...]:
        """The nodes of a kernel in the model's order: those that the plan names, and that of the result of
        each function that was fused for it, which it does not."""
        indices = {index for index, node in enumerate(self.nodes) if node in set(named)}
        for function in self._functions.values():
            inner, result = function.nodes[:-1], function.nodes[-1:]
            if inner and indices.issuperset(inner) and _holds(kernel.ops, function.operators):
                indices.update(result)
        return tuple(self.nodes[index] for index in sorted(indices))

    def _write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _plain(module: IRModule) -> IRModule:
    """The module without second names of values, and without how many inputs the frontend counts: neither
    changes what is computed."""
    module = relax.transform.CanonicalizeBindings()(module)
    main = module["main"].without_attr("num_input")
    return IRModule({**module.functions, module.get_global_var("main"): main})


def _holds(texts: Sequence[str], some: Sequence[str]) -> bool:
    """Whether ``some`` are in ``texts``, one behind the other."""
    count = len(some)
    return any(tuple(texts[i : i + count]) == tuple(some) for i in range(len(texts) - count + 1))


def _unchanged(before: IRModule | None, module: IRModule) -> list[str]:
    """Names of the functions of loops that are as they were in the module before."""
    if before is None:
        return []
    old: dict[str, Any] = {gvar.name_hint: function for gvar, function in before.functions.items()}
    return sorted(
        gvar.name_hint
        for gvar, function in module.functions.items()
        if gvar.name_hint != "main"
        and gvar.name_hint in old
        and tvm_ffi.structural_equal(old[gvar.name_hint], function)
    )


def _texts_of_cpu(built: Built, code: MachineCode) -> dict[str, dict[str, str]]:
    symbols = list(built.functions)
    ir, assembly = split_ir(code.ir(), symbols), split_assembly(code.assembly(), symbols)
    return {
        symbol: {
            "tir.txt": function.with_attr("global_symbol", symbol).script() + "\n",
            "llvm.ll": ir[symbol],
            "assembly.s": assembly[symbol],
        }
        for symbol, function in built.functions.items()
    }


def _words(target: Target) -> str:
    """What a target is, on a line."""
    if isinstance(target, GpuTarget):
        return f"{target.api}, beside {_words(target.host)}"
    return " ".join([target.triple, *([target.cpu] if target.cpu else []), *target.features])
