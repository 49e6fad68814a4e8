"""Weights that earlier kernels fetch: which, by whom, how much, and that all of it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import tirx
from tvm.tirx import PrimFunc

from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.weight_prefetch import CACHE_PART, LEAST_BYTES
from edgepack.plan.types import Argument
from workbench import executor
from workbench.compiled import Compiled, plan_of, target_with
from workbench.executor import Executor
from workbench.models.builder import Graph

L3 = 8 * 1024 * 1024


def classifier(kernel: int, size: int = 14, channels: int = 256) -> onnx.ModelProto:
    """A convolution that multiplies for long, and a fully connected layer that waits for its weights."""
    g = Graph("net")
    x = g.input("x", [1, 64, size, size])
    x = g.op("Relu", g.conv(x, 64, channels, kernel, bias=True))
    x = g.op("Relu", g.conv(x, channels, channels, kernel, bias=True))
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    g.op("Identity", g.gemm(x, channels, 1000), name="y")
    g.output("y")
    return g.model()


def target(registers: str = "512x32", **options: Any) -> Any:
    return target_with(registers, **{"l2_bytes": 128 * 1024, "l3_bytes": L3, **options})


def fetched(built: Built) -> list[tuple[int, Argument, int]]:
    """(step, argument, bytes) of what is fetched ahead."""
    found = []
    for number, step in enumerate(built.plan.steps):
        nbytes = int(built.plan.kernel(step.kernel).parameters.get("ahead", 0))
        if nbytes and step.tasks and step.arguments[-1].kind == "constant":
            found.append((number, step.arguments[-1], nbytes))
    return found


@pytest.mark.parametrize(
    ("kernel", "size", "registers"),
    [
        *((*shape, "512x32") for shape in ((1, 14), (3, 26), (3, 28), (5, 9))),
        (1, 14, "128x16"),
        (3, 26, "128x16"),
    ],
)
def test_results_stay(kernel: int, size: int, registers: str, tmp_path: Path) -> None:
    compiled = Compiled({"net": classifier(kernel, size)}, tmp_path, target(registers, threads=2))
    assert fetched(compiled.built("net"))
    compiled.check("net")


@pytest.mark.parametrize("kernel", [1, 3])
def test_what_is_fetched_is_read_later_and_is_there(kernel: int) -> None:
    built = plan_of(classifier(kernel, 28, 512), target=target())
    seen: dict[int, list[tuple[int, int]]] = {}
    for number, argument, nbytes in fetched(built):
        constant = built.plan.constants[argument.index]
        assert nbytes >= LEAST_BYTES
        assert argument.offset % 64 == nbytes % 64 == 0
        assert argument.offset + nbytes <= constant.nbytes
        readers = [
            i
            for i, step in enumerate(built.plan.steps)
            if any(a.kind == "constant" and a.index == argument.index for a in step.arguments[:-1])
        ]
        assert min(readers) > number
        seen.setdefault(argument.index, []).append((argument.offset, nbytes))
    assert seen
    for parts in seen.values():
        parts.sort()
        assert all(a + n <= b for (a, n), (b, _) in pairwise(parts)), "fetched twice"
    assert sum(n for parts in seen.values() for _, n in parts) <= L3 // CACHE_PART


@pytest.mark.parametrize("options", [{"l3_bytes": 0}, {"optimize": "size"}, {"l2_bytes": 64 * 1024 * 1024}])
def test_nothing_is_fetched_where_it_would_not_help(options: dict[str, Any]) -> None:
    """No shared cache that is known; the fewest bytes asked for; weights that stay in the core's cache."""
    assert not fetched(plan_of(classifier(1), target=target(**options)))


def test_nothing_is_fetched_that_would_be_pushed_out() -> None:
    """Behind a layer whose weights fill the cache's part, the next one's are not fetched before it."""
    g = Graph("net")
    x = g.op("Relu", g.conv(g.input("x", [1, 256, 28, 28]), 256, 512, 1, bias=True))
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    x = g.op("Relu", g.gemm(x, 512, 2048))
    g.op("Identity", g.gemm(x, 2048, 900), name="y")
    g.output("y")
    built = plan_of(g.model(), target=target())
    shapes = {built.plan.constants[argument.index].nbytes // 4 for _, argument, _ in fetched(built)}
    assert len(shapes) == 1
    assert 512 * 2048 <= shapes.pop() < 2048 * 900


def test_kernels_that_fetch_nothing_are_shared() -> None:
    """Of the two parts of a convolution that fetches, the transform is that of one that does not."""
    built = plan_of(classifier(3, 28, 512), target=target(threads=1))
    assert len(fetched(built)) >= 1
    symbols = [step.kernel for step in built.plan.steps]
    without = plan_of(classifier(3, 28, 512), target=target(threads=1, l3_bytes=0))
    transforms = [s for s in symbols if "winograd" in s and not built.plan.kernel(s).flops]
    assert len(built.plan.kernels) <= len(without.plan.kernels) + len(fetched(built))
    assert len(set(transforms)) == len(
        {
            s.kernel
            for s in without.plan.steps
            if "winograd" in s.kernel and not without.plan.kernel(s.kernel).flops
        }
    )


def rewritten(stmt: Any, change: Callable[[Any], Any]) -> Any:
    """A statement with ``change`` of each that holds no others in its place."""
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([rewritten(one, change) for one in stmt.seq])
    if isinstance(stmt, tirx.For):
        return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, rewritten(stmt.body, change))
    if isinstance(stmt, tirx.IfThenElse):
        otherwise = stmt.else_case and rewritten(stmt.else_case, change)
        return tirx.IfThenElse(stmt.condition, rewritten(stmt.then_case, change), otherwise)
    return change(stmt)


def counted(function: PrimFunc) -> tuple[PrimFunc, list[int]]:
    """A kernel that counts, in the constants of a later call, which shares of them its products fetch.

    Returns:
        The kernel, and the elements of the shares: each begins at a multiple of so many.
    """
    buffers: dict[str, Any] = {}  # by the name of the variable that says where a share begins
    shares: list[int] = []

    def find(stmt: Any) -> Any:
        if isinstance(stmt, tirx.Evaluate) and "llvm.prefetch" in str(stmt):
            *_, address, _, locality, _ = stmt.value.args
            load = address.args[0]
            start = load.indices[0]
            while isinstance(start, tirx.Add):
                start = start.a
            if int(locality) == 1:
                buffers[start.name] = load.source
        return stmt

    def count(stmt: Any) -> Any:
        if not isinstance(stmt, tirx.Bind) or stmt.var.name not in buffers:
            return stmt
        share, buffer = int(stmt.value.b), buffers[stmt.var.name]
        shares.append(share)
        at = tirx.truncdiv(stmt.var, tirx.IntImm("int32", share))
        more = tirx.BufferLoad(buffer, [at]) + tirx.FloatImm("float32", 1.0)
        return tirx.SeqStmt([stmt, tirx.BufferStore(buffer, more, [at])])

    rewritten(function.body, find)
    return function.with_body(rewritten(function.body, count)), shares


#: Of a kernel and size: how much of its weights is asked for at least.
SHARES = [(1, 14, 1.0), (1, 9, 0.85), (3, 28, 1.0), (3, 26, 0.6), (5, 12, 1.0)]


@pytest.mark.parametrize(
    ("kernel", "size", "least", "threads"),
    [
        pytest.param(
            *share, threads, marks=() if threads == 3 or share[0] == threads == 1 else pytest.mark.slow
        )
        for share in SHARES
        for threads in (1, 2, 3)
    ],
)
def test_each_share_is_asked_for_once(
    kernel: int, size: int, least: float, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each product also counts its share: in the constant itself, at the number of the share.

    Less than all of it where tiles of one or two rows, or positions of cut tiles, fetch nothing.
    """
    made: list[dict[str, Any]] = []
    memories = executor.memories

    def remembering(*arguments: Any, **how: Any) -> dict[str, Any]:
        made.append(memories(*arguments, **how))
        for memory in made[-1]["constant"]:
            memory.bytes[:] = 0
        return made[-1]

    monkeypatch.setattr(executor, "memories", remembering)
    built = plan_of(classifier(kernel, size), target=target(threads=threads))
    counting = {symbol: counted(function) for symbol, function in built.functions.items()}
    shares = [share for _, found in counting.values() for share in found]
    built = replace(built, functions={symbol: function for symbol, (function, _) in counting.items()})
    runs = Executor({"m": built}, tmp_path, target(threads=threads))
    x = np.zeros((1, 64, size, size), np.float32)
    with pytest.raises(AssertionError, match="wrote to constant"):
        runs.run("m", [x])
    assert shares
    for _, argument, nbytes in fetched(built):
        turns = -(-nbytes // (4 * min(shares)))
        counts = made[0]["constant"][argument.index].bytes[argument.offset :].view(np.float32)[:turns]
        assert counts.max() == 1
        assert (counts == 1).sum() * max(shares) * 4 >= least * nbytes
