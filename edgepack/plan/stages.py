"""What is recorded of a model's way through the compiler (``--keep-stages``): the graph after each group of
passes, and the texts of each kernel. Plain data, ``stages.json`` in the folder of the texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["STAGES_FILE", "GraphStage", "KernelTexts", "StagesRecord"]

#: In the folder of the texts.
STAGES_FILE = "stages.json"


@dataclass(frozen=True)
class GraphStage:
    """The graph after a group of passes.

    Attributes:
        number: its place in the order of all groups, from 1; 1 is the graph as it was imported.
        name: of the group (``fuse``).
        title: what the group does, in a line.
        state: "changed" the graph; "unchanged": the group found nothing to do; "skipped": it does not run at
            this level of optimisation.
        counts: how often each operator, or each function that kernels are made of, is called.
        file: the text of the graph, in the same folder; "" unless it changed.
    """

    number: int
    name: str
    title: str
    state: Literal["changed", "unchanged", "skipped"]
    counts: Mapping[str, int]
    file: str = ""

    @property
    def operators(self) -> int:
        """How many calls of operators, or of functions that kernels are made of, there are."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class KernelTexts:
    """A kernel and its texts.

    Attributes:
        name: of its folder: the symbol without the prefix that all kernels of the model have.
        symbol: in the object file, or in the program for the GPU.
        backend: on what it runs: "cpu", or a GPU's API ("opencl").
        rule: the schedule rule that made it.
        ops: operators that were fused into it, in order.
        nodes: names of the model's nodes that it computes, in all steps that run it.
        steps: numbers of the plan's steps that run it.
        files: paths of its texts, in the same folder, in the order in which one became the next; none where
            the user's C computes it.
    """

    name: str
    symbol: str
    backend: str
    rule: str
    ops: Sequence[str]
    nodes: Sequence[str]
    steps: Sequence[int]
    files: Sequence[str]


@dataclass(frozen=True)
class StagesRecord:
    """What a model became on its way to a target.

    Attributes:
        model: its name.
        target: what it was compiled for, in words.
        graph: in the order in which the groups of passes run.
        kernels: in the order of the plan.
        common: texts that belong to all kernels of a GPU.
    """

    model: str
    target: str
    graph: Sequence[GraphStage]
    kernels: Sequence[KernelTexts]
    common: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; each stage of the graph has its number of operators too."""
        stages = [{**asdict(stage), "operators": stage.operators} for stage in self.graph]
        return {**asdict(self), "graph": stages}

    @classmethod
    def from_json(cls, text: str) -> StagesRecord:
        """Inverse of :meth:`to_json`, as text."""
        data = json.loads(text)
        graph = [
            GraphStage(**{key: value for key, value in stage.items() if key != "operators"})
            for stage in data["graph"]
        ]
        kernels = [KernelTexts(**kernel) for kernel in data["kernels"]]
        return cls(**{**data, "graph": graph, "kernels": kernels})
