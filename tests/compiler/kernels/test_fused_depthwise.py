"""A convolution and the depthwise one behind it as one kernel, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
import pytest

from edgepack.compiler.kernels import registry
from edgepack.config.device import load_device
from workbench.compiled import SWEPT, Compiled, Library, on_register_files, plan_of, target_with
from workbench.models.builder import Graph

#: The ring fits half of it; what lies between the two convolutions takes more than a quarter of it for each
#: thread.
L2_BYTES = 16 * 1024


def chained(
    shape: tuple[int, int, int, int] = (1, 8, 81, 9),
    channels: int = 20,
    *,
    kernel: int = 1,
    stride: int = 1,
    window: int = 3,
    step: int = 1,
    dilation: int = 1,
    pads: tuple[int, int, int, int] | None = None,
    residual: bool = False,
    also: str = "",
) -> onnx.ModelProto:
    """A convolution (``kernel``, ``stride``) to ``channels``, then a depthwise one (``window``, ``step``).

    Args:
        residual: the second one's tail reads another tensor of its output's shape.
        also: an operator that reads the first one's result too.
    """
    g = Graph("chained", seed=7)
    cin = shape[1]
    x = g.input("x", list(shape))
    between = g.op(
        "Clip", g.conv(x, cin, channels, kernel, stride=stride, bias=True), g.const(0.0), g.const(6.0)
    )
    y = g.conv(
        between,
        channels,
        channels,
        window,
        stride=step,
        groups=channels,
        dilation=dilation,
        pads=pads,
        bias=True,
    )
    if residual:
        y = g.op("Add", y, g.input("r", [shape[0], channels, shape[2], shape[3]]))
    g.op("Relu", y, name="y")
    g.output("y")
    if also:
        g.op(also, between, name="z")
        g.output("z")
    return g.model()


CHAINED = {
    "3x3": chained(),
    "3x3, two images": chained((2, 5, 50, 9)),
    "3x3, stride 2": chained(step=2),
    "3x3, stride 2, even": chained((1, 8, 100, 8), step=2),
    "3x3, no padding": chained(pads=(0, 0, 0, 0)),
    "3x3, below only": chained(step=2, pads=(0, 0, 1, 1)),
    "3x3, above only": chained(step=2, pads=(1, 1, 0, 0)),
    "3x3, stride 3": chained((1, 8, 130, 6), step=3),
    "1x1, stride 2 leaves rows out": chained((1, 8, 80, 10), window=1, step=2, pads=(0, 0, 0, 0)),
    "5x5": chained((1, 4, 90, 7), window=5),
    "5x5, stride 2": chained((1, 4, 120, 6), window=5, step=2),
    "dilated": chained((1, 8, 90, 8), dilation=2),
    "channels left over": chained(channels=27),
    "two blocks of columns": chained((1, 8, 70, 6), channels=40),
    "first layer": chained((1, 3, 131, 25), channels=16, kernel=3, stride=2),
    "first layer, two images": chained((2, 3, 70, 27), channels=16, kernel=3, stride=2, step=2),
    "residual": chained(residual=True),
}


def reshaped() -> onnx.ModelProto:
    """What lies between has another shape for each of the two."""
    g = Graph("reshaped", seed=8)
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 90, 8]), 8, 20, 1, bias=True))
    # Channels last in both forms, so that nothing but the shape changes.
    rows = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 3, 1]), g.const([1, 60, 12, 20]))
    x = g.op("Transpose", rows, perm=[0, 3, 1, 2])
    g.op("Relu", g.conv(x, 20, 20, 3, groups=20, bias=True), name="y")
    g.output("y")
    return g.model()


def skipped() -> onnx.ModelProto:
    """The tail of the second convolution adds what the first one computes, as in ConvMixer."""
    g = Graph("skipped", seed=9)
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 81, 9]), 8, 20, 1, bias=True))
    y = g.op("Relu", g.conv(x, 20, 20, 3, groups=20, bias=True))
    g.op("Add", y, x, name="y")
    g.output("y")
    return g.model()


#: Two kernels, each for a reason.
APART = {
    "reshaped": reshaped(),
    "skipped": skipped(),
    "small": chained((1, 8, 11, 13)),
    "wide": chained((1, 8, 20, 60)),
    "read twice": chained(also="Sigmoid"),
    "3x3 both": chained(kernel=3),
}


TOGETHER = on_register_files(
    CHAINED,
    ("3x3, stride 2", "5x5", "two blocks of columns", "first layer"),
    both=("3x3", "channels left over"),
)
SEPARATE = on_register_files(APART, ("skipped",), both=())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    target = partial(target_with, l2_bytes=L2_BYTES)
    return Library({**CHAINED, **APART}, TOGETHER + SEPARATE, tmp_path_factory.mktemp("chained"), target)


@pytest.mark.parametrize(("registers", "name"), TOGETHER)
def test_one_kernel_is_right(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    assert "conv2d.chained" in [kernel.rule for kernel in compiled.plan(name).kernels]
    for seed in range(3):  # the executor cuts the tasks into other ranges
        compiled.check(name, seed=seed)


@pytest.mark.parametrize(("registers", "name"), SEPARATE)
def test_two_kernels_where_one_is_not_better(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    assert "conv2d.chained" not in [kernel.rule for kernel in compiled.plan(name).kernels]
    compiled.check(name)


@pytest.mark.parametrize("registers", SWEPT)
def test_what_lies_between_is_not_in_the_arena(library: Library, registers: str) -> None:
    arena = library(registers).plan("3x3").arena
    tensors = [buffer for buffer in arena.buffers if not buffer.name.startswith("scratch")]
    # The input and the output in the layout of the kernels: 8 and 20 channels.
    assert sum(buffer.nbytes for buffer in tensors) == 81 * 9 * (8 + 20) * 4


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize(("name", "rows", "most"), [("3x3", 81, 1 / 3), ("first layer", 66, 1 / 10)])
def test_few_rows_are_computed_twice(
    library: Library, registers: str, name: str, rows: int, most: float
) -> None:
    """Each task but the first computes two rows of the first convolution that another one has too: few tasks
    where its reduction is long, as many for each of the three threads everywhere."""
    plan = library(registers).plan(name)
    (kernel,) = (k for k in plan.kernels if k.rule == "conv2d.chained")
    (step,) = (s for s in plan.steps if s.kernel == kernel.symbol)
    assert step.tasks % 3 == 0
    assert 2 * (step.tasks - 1) <= most * rows


def test_what_fits_a_quarter_of_the_caches_stays_apart() -> None:
    """Half of them on a microcontroller."""
    model, between = chained((1, 8, 20, 13)), 20 * 13 * 20 * 4
    board = load_device("cortex-m4").cpu_target()
    for target, parts in ((target_with("128x16", threads=1), 4), (board, 2)):
        for room, rule in ((parts * between, "conv2d.depthwise"), (parts * between - 1, "conv2d.chained")):
            kernels = plan_of(model, target=replace(target, l2_bytes=room)).plan.kernels
            assert rule in {kernel.rule for kernel in kernels}, (target.triple, room)


def test_a_defect_costs_speed_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("not today")

    broken = [replace(rule, apply=fails) for rule in registry.PAIR_RULES]  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "PAIR_RULES", broken)
    compiled = Compiled({"3x3": CHAINED["3x3"]}, tmp_path, target_with("256x16", l2_bytes=L2_BYTES))
    warnings = compiled.plan("3x3").warnings
    assert warnings
    assert all("no kernel for both (not today); they stay two" in warning for warning in warnings)
    compiled.check("3x3")


def test_rows_in_a_loop(tmp_path: Path) -> None:
    """Where the window's rows are a loop, the row of the ring is computed in it."""
    target = target_with("256x16", l2_bytes=L2_BYTES, optimize="size")
    names = ("3x3", "3x3, stride 2", "5x5", "dilated")
    compiled = Compiled({name: CHAINED[name] for name in names}, tmp_path, target)
    for name in names:
        assert "conv2d.chained" in [kernel.rule for kernel in compiled.plan(name).kernels]
        compiled.check(name)
