"""Convolutions, transposed ones and poolings of any rank, window, stride, dilation, padding and group.

Each is served by a rule of its own, and right. Which rules serve them is printed by
``pytest -m slow tests/compiler/kernels/test_windows_sweep.py -s``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.single import conv, pool, transposed

#: Rules that a window must not be left to.
SLOW_RULES = {"generic", "rows", "plain", "rowwise", "elementwise"}

#: Models of each kind and rank.
COUNT = 40


def _slides(rng: np.random.Generator, rank: int, kernels: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Kernel, strides, dilation and padding on either side, each drawn for itself."""
    kernel = tuple(int(k) for k in rng.choice(kernels, rank))
    dilations = tuple(
        int(d) if k < 8 else 1 for k, d in zip(kernel, rng.choice([1, 1, 2, 5], rank), strict=True)
    )
    most = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(int(rng.integers(0, n + 1)) for n in (*most, *most))
    return {"kernel": kernel, "strides": tuple(int(s) for s in rng.choice([1, 1, 2, 3], rank)),
            "dilations": dilations, "pads": pads}  # fmt: skip


def _shape(rng: np.random.Generator, channels: int, slides: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """An input that is as large as the window at least."""
    reach = [(k - 1) * d + 1 for k, d in zip(slides["kernel"], slides["dilations"], strict=True)]
    return int(rng.choice([1, 2])), channels, *(int(r + rng.integers(2, 12)) for r in reach)


def _channels(rng: np.random.Generator) -> tuple[int, int, int]:
    """Input channels, output channels, groups: dense, depthwise with a multiplier, groups of any width."""
    kind = rng.choice(["dense", "depthwise", "groups"])
    if kind == "dense":
        return int(rng.integers(1, 70)), int(rng.integers(1, 70)), 1
    groups = int(rng.integers(2, 40))
    if kind == "depthwise":
        return groups, groups * int(rng.choice([1, 1, 2, 3])), groups
    groups = min(groups, 8)
    return groups * int(rng.integers(2, 20)), groups * int(rng.integers(1, 20)), groups


def _convolution(rng: np.random.Generator, rank: int) -> onnx.ModelProto:
    slides = _slides(rng, rank, (1, 2, 3, 3, 5, 9, 31) if rank < 3 else (1, 2, 3, 3, 5))
    inner, outer, groups = _channels(rng)
    return conv(_shape(rng, inner, slides), outer, slides.pop("kernel"), group=groups, **slides)


def _transposed(rng: np.random.Generator, rank: int) -> onnx.ModelProto:
    slides = _slides(rng, rank, (1, 2, 3, 4, 8) if rank < 3 else (1, 2, 3, 4))
    inner, outer, groups = _channels(rng)
    shape, extra = _shape(rng, inner, slides), [int(rng.integers(0, s)) for s in slides["strides"]]
    return transposed(shape, outer, slides.pop("kernel"), group=groups, output_padding=extra, **slides)


def _pooling(rng: np.random.Generator, rank: int) -> onnx.ModelProto:
    slides = _slides(
        rng, rank, (1, 2, 3, 5, 21, 70) if rank == 1 else (1, 2, 3, 5, 21) if rank < 3 else (1, 2, 3, 5)
    )
    average, sizes = bool(rng.integers(2)), slides["kernel"]
    attributes = {k: list(v) for k, v in slides.items() if k != "kernel"}
    if average:  # ONNX Runtime refuses pads of a whole window, and dilation came late
        attributes["dilations"] = [1] * rank
    attributes["pads"] = [min(p, k // 2) for p, k in zip(attributes["pads"], sizes * 2, strict=True)]
    options = {"count_include_pad": int(rng.integers(2))} if average else {}
    shape = _shape(rng, int(rng.integers(1, 70)), slides)
    name = "AveragePool" if average else "MaxPool"
    if average:
        attributes.pop("dilations")
    return pool(name, shape, kernel_shape=list(sizes), **attributes, **options)


KINDS = {"convolution": _convolution, "transposed": _transposed, "pooling": _pooling}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_window_has_a_rule_of_its_own(kind: str, rank: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(rank)
    models = {f"{kind}{rank}-{i}": KINDS[kind](rng, rank) for i in range(COUNT)}
    compiled = Compiled(models, tmp_path)
    served: Counter[str] = Counter()
    slow = {}
    for name, model in models.items():
        windows = [
            k for k in compiled.plan(name).kernels if any("conv" in op or "pool" in op for op in k.ops)
        ]
        served.update(kernel.rule for kernel in windows)
        if {kernel.rule for kernel in windows} & SLOW_RULES:
            slow[name] = onnx.printer.to_text(model.graph.node[0])
        compiled.check(name)
    print(kind, rank, dict(served))
    assert not slow
