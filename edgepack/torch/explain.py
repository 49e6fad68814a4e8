"""What becomes of a model under ``torch.compile(model, backend="edgepack")``, as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edgepack.config.option_checks import check_whole
from edgepack.torch.options import compile_options
from edgepack.torch.subgraph import Subgraph

__all__ = ["ExplainedSubgraph", "Explanation", "explain"]


@dataclass(frozen=True)
class ExplainedSubgraph:
    """One subgraph.

    Attributes:
        operators: how many there are of each.
        compiled: whether edgepack runs it.
        reason: why it stays eager; "" where it is compiled.
        seconds: of a run, the least of several.
        share: of the time of the whole model, 0 to 1.
    """

    operators: dict[str, int]
    compiled: bool
    reason: str
    seconds: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """All subgraphs of a model, in the order in which they run; printed, it is a table.

    Attributes:
        subgraphs: each of them.
        seconds: of a run of the whole model, the least of several. What the subgraphs do not take is
            Python's: what stands between them, and what finds them.
    """

    subgraphs: tuple[ExplainedSubgraph, ...]
    seconds: float

    def __str__(self) -> str:
        lines = ["subgraph  runs in       ms  share  operators"]
        for number, one in enumerate(self.subgraphs, 1):
            where = "edgepack" if one.compiled else "eager"
            most = sorted(one.operators.items(), key=lambda pair: -pair[1])[:4]
            listed = ", ".join(f"{count} {name}" for name, count in most)
            more = len(one.operators) - len(most)
            listed += f" and {more} more" if more > 0 else ""
            lines.append(
                f"{number:8d}  {where:8s} {one.seconds * 1e3:8.3f}  {one.share:5.0%}  {listed or 'none'}"
            )
            if one.reason:
                lines.append(f"          {one.reason}")
        rest = max(self.seconds - sum(one.seconds for one in self.subgraphs), 0.0)
        share = rest / self.seconds if self.seconds else 0.0
        lines.append(f"{'Python':>8s}  {'':8s} {rest * 1e3:8.3f}  {share:5.0%}")
        return "\n".join(lines)


class _Timed:
    """A subgraph that notes how long each call takes."""

    def __init__(self, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self.subgraph(*args)
        finally:
            self.seconds += time.perf_counter() - begin


def explain(
    model: Callable[..., Any], *inputs: Any, options: Any = None, runs: int = 5, **keywords: Any
) -> Explanation:
    """Compile a model for inputs, run it under ``torch.no_grad()``, and print what became of it.

    Args:
        model: a module or a function; of one that ``torch.compile`` returned, what it was made of.
        inputs, keywords: what it is called with.
        options: as for ``torch.compile``.
        runs: how many are timed.

    Returns:
        the table, as an object.

    Raises:
        ConfigError: there is no such option.
    """
    chosen = compile_options(options)
    check_whole("runs", runs, least=1)
    found: list[_Timed] = []

    def collect(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> _Timed:
        found.append(_Timed(Subgraph(gm, example_inputs, chosen)))
        return found[-1]

    compiled = torch.compile(getattr(model, "_orig_mod", model), backend=collect)
    best: tuple[float, list[float]] | None = None
    with torch.no_grad():
        compiled(*inputs, **keywords)
        for _ in range(runs):
            for one in found:
                one.seconds = 0.0
            begin = time.perf_counter()
            compiled(*inputs, **keywords)
            whole = time.perf_counter() - begin
            if best is None or whole < best[0]:
                best = whole, [one.seconds for one in found]
    assert best is not None
    whole, parts = best
    parts += [0.0] * (len(found) - len(parts))
    rows = tuple(
        ExplainedSubgraph(
            dict(one.subgraph.operators),
            one.subgraph.compiles > 0 and not one.subgraph.reason,
            one.subgraph.reason,
            seconds,
            seconds / whole,
        )
        for one, seconds in zip(found, parts, strict=True)
    )
    result = Explanation(rows, whole)
    print(result)
    return result
