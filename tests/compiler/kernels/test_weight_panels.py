"""Weights that kernels for several register files read: the results, and that the bytes are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.commands.compiled_targets import targets_of, variants_of
from edgepack.compiler.kernels.cpu.conv.agreed_forms import agreed_forms
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.schedule import Given
from edgepack.config.device import load_device
from edgepack.options import PackOptions
from edgepack.plan.target import CpuTarget
from workbench.compiled import Compiled, plan_of, target_with
from workbench.models.builder import Graph
from workbench.models.single import conv, silu

#: The kinds of CPU of linux-x86_64-multi: SSE2, AVX2, AVX-512.
KINDS = ("128x16", "256x16", "512x32")

PADS = (1, 1, 1, 1)


def _matmul(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    g = Graph("matmul", seed=2)
    y = g.linear(g.input("x", [rows, depth]), depth, columns)
    g.op("Relu", g.op("Add", y, g.input("r", [rows, columns])), name="y")
    g.output("y")
    return g.model()


#: Products whose columns are whole panels, one, some and less than one, and whose tiles are no part of one: 3
#: rows have tiles of 12 columns on SSE2, of 24 on AVX2.
CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "one row": lambda: _matmul(1, 40, 300),
    "one row, less than a panel": lambda: _matmul(1, 40, 10),
    "3 rows": lambda: _matmul(3, 33, 120),
    "50 rows in slices": lambda: _matmul(50, 768, 200),
    "50 rows, one block in slices": lambda: _matmul(37, 512, 24),
    "50 rows, 60 columns": lambda: _matmul(50, 32, 60),
    "1x1, half vectors": lambda: conv((1, 24, 9, 9), 72, (1, 1), activation=silu),
    "1x1, half a vector": lambda: conv((1, 16, 9, 9), 40, (1, 1)),
    "3x3 stride 2": lambda: conv((1, 7, 15, 15), 35, (3, 3), strides=(2, 2), pads=PADS),
    "3x3 stride 2 in slices": lambda: conv((1, 64, 9, 9), 72, (3, 3), strides=(2, 2), pads=PADS),
    "5x5 of groups": lambda: conv((1, 96, 7, 7), 120, (5, 5), strides=(2, 2), pads=(2, 2, 2, 2), group=3),
}

#: Winograd's form, forced, and its columns: less than a stripe, two of 64 and a rest, 48, groups; several row
#: panels, or so few that a block is a stripe.
WINOGRAD: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int, int], str]] = {
    "4, 20 columns": (lambda: conv((1, 12, 13, 13), 20, (3, 3), pads=PADS), (4, 4), "split"),
    "4, 56 columns": (lambda: conv((1, 12, 21, 21), 56, (3, 3), pads=PADS), (4, 4), "fused"),
    "2, 140 columns": (lambda: conv((1, 9, 7, 7), 140, (3, 3), pads=PADS), (2, 2), "split"),
    "2, 256 columns": (lambda: conv((1, 16, 4, 4), 256, (3, 3), pads=PADS), (2, 2), "split"),
    "4, 96 columns": (lambda: conv((1, 8, 9, 9), 96, (3, 3), pads=PADS), (4, 4), "fused"),
    "groups": (lambda: conv((1, 24, 9, 9), 72, (3, 3), pads=PADS, group=2), (4, 4), "split"),
    "phases of 7x7": (
        lambda: conv((1, 3, 22, 22), 40, (7, 7), strides=(2, 2), pads=(3,) * 4),
        (3, 3),
        "fused",
    ),
    "lines": (lambda: conv((1, 10, 40), 36, (3,), pads=(1, 1)), (1, 4), "split"),
    "lines of several filters": (lambda: conv((1, 10, 70), 72, (7,), pads=(3, 3)), (1, 4), "fused"),
}

#: Cases whose panels others have too.
SLOW = (
    *("50 rows, one block in slices", "1x1, half a vector", "3x3 stride 2", "3x3 stride 2 in slices"),
    *("2, 140 columns", "2, 256 columns", "4, 96 columns", "lines"),
)


def kind(registers: str, **options: object) -> CpuTarget:
    """A kind of CPU of a library for all of them, of small caches."""
    bits = (512, 256, 128)
    return target_with(registers, threads=1, l2_bytes=64 * 1024, library_vector_bits=bits, **options)


def given() -> dict[str, Given]:
    """The schedules of Winograd's cases."""
    return {
        name: {"conv2d.winograd": WinogradSchedule(outputs=outputs, form=form)}  # type: ignore[arg-type]
        for name, (_, outputs, form) in WINOGRAD.items()
    }


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, Compiled]]:
    """The libraries that have a case, by kind of CPU."""

    @cache
    def made(slow: bool) -> Mapping[str, Compiled]:
        folder = tmp_path_factory.mktemp("panels")
        models = {name: make() for name, make in CASES.items() if (name in SLOW) == slow}
        models |= {name: make() for name, (make, _, _) in WINOGRAD.items() if (name in SLOW) == slow}
        return {one: Compiled(models, folder / one, kind(one), given=given()) for one in KINDS}

    return lambda case: made(case in SLOW)


def marked(cases: Iterable[str]) -> list[Any]:
    """Names of cases, as parameters of a test."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in cases]


@pytest.mark.parametrize("case", marked([*CASES, *WINOGRAD]))
def test_all_kinds_read_the_same_weights(
    compiled: Callable[[str], Mapping[str, Compiled]], case: str
) -> None:
    """And compute with them what ONNX Runtime does."""
    read = []
    for library in compiled(case).values():
        library.check(case, seed=3)
        read.append({one.sha256 for one in library.plan(case).constants})
    assert read[0] == read[1] == read[2]


@pytest.mark.parametrize("case", marked(WINOGRAD))
def test_the_form_is_winograds(compiled: Callable[[str], Mapping[str, Compiled]], case: str) -> None:
    for library in compiled(case).values():
        assert any("winograd" in kernel.rule for kernel in library.plan(case).kernels)


def test_float16_weights_are_shared_too(tmp_path: Path) -> None:
    g = Graph("half", seed=4)
    weights = np.random.default_rng(4).normal(size=(48, 88)).astype(np.float16).astype(np.float32)
    g.op("MatMul", g.input("x", [20, 48]), g.const(weights), name="y")
    g.output("y")
    model, read = g.model(), []
    for one in KINDS:
        library = Compiled({"m": model}, tmp_path / one, kind(one, float16_weights=True))
        library.check("m")
        constants = library.plan("m").constants
        assert [constant.dtype for constant in constants] == ["float16"]
        read.append({constant.sha256 for constant in constants})
    assert read[0] == read[1] == read[2]


def test_weights_of_one_kind_are_as_its_register_tile_reads_them() -> None:
    """A library for one kind of CPU has nothing to agree on."""
    model = CASES["50 rows, 60 columns"]()
    read = [
        {constant.sha256 for constant in plan_of(model, target=target_with(one)).plan.constants}
        for one in KINDS
    ]
    assert len(set.intersection(*read)) < min(map(len, read))


@pytest.mark.parametrize(
    ("device", "widths"),
    [
        ("linux-x86_64-multi", (512, 256, 128)),
        ("linux-x86_64-multi-vnni", (512, 512, 256, 256, 128)),
        ("linux-aarch64-multi", ()),  # its kinds have the same registers, and so the same forms
        ("linux-x86_64-v4", ()),
    ],
)
def test_kinds_agree_where_their_vectors_differ(device: str, widths: tuple[int, ...]) -> None:
    profile = load_device(device)
    targets = [target for _, target in targets_of([*variants_of(profile), profile], PackOptions())]
    assert all(isinstance(one, CpuTarget) and one.library_vector_bits == widths for one in targets)
    assert all(CpuTarget.from_json(one.to_json()) == one for one in targets if isinstance(one, CpuTarget))


def test_a_form_is_shared_where_that_costs_little() -> None:
    alike = agreed_forms({512: {"2": 1.0, "4": 1.02}, 256: {"2": 1.2, "4": 1.0}, 128: {"2": 1.3, "4": 1.0}})
    assert alike == {512: "4", 256: "4", 128: "4"}
    apart = agreed_forms({512: {"2": 1.0, "4": 1.7}, 256: {"2": 1.0, "4": 1.2}, 128: {"2": 1.27, "4": 1.0}})
    assert apart == {512: "2", 256: "2", 128: "4"}
    # Two of three agree; of two forms for equally many the one by which they lose less.
    some = agreed_forms({512: {"0": 1.0, "2": 1.4}, 256: {"0": 1.02, "2": 1.0}, 128: {"0": 1.5, "2": 1.0}})
    assert some == {512: "0", 256: "2", 128: "2"}
    assert agreed_forms({512: {"0": 2.0, "2": 1.0}}) == {512: "2"}
