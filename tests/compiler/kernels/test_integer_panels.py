"""Packed weights of integers that kernels for several kinds of CPU read: the same bytes, and exact sums."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack.commands.compiled_targets import targets_of, variants_of
from edgepack.compiler.tvm_target import has_feature
from edgepack.config.device import load_device
from edgepack.options import PackOptions
from edgepack.plan.target import CpuTarget
from tests.compiler.kernels.test_quantised import Convolution, convolution, defined
from workbench.compiled import Compiled, plan_of
from workbench.executor import host_target

PADS = [1] * 4
CASES: dict[str, Convolution] = {
    "pointwise": ((1, 48, 9, 9), 72, (1, 1), {}),
    "by two": ((1, 16, 13, 13), 40, (3, 3), {"strides": [2, 2], "pads": PADS}),
    "less than a panel": ((2, 40, 6, 6), 9, (3, 3), {"strides": [2, 2], "pads": PADS}),
    "winograd": ((1, 64, 28, 28), 72, (3, 3), {"pads": PADS}),
}
#: What a CPU needs to run a kind's kernels, by LLVM's names; those of AMX have tests of their own.
NEEDS = {
    "linux-x86_64-amx": None,
    "linux-x86_64-vnni": "avx512vnni",
    "linux-x86_64-avxvnni": "avxvnni",
    "linux-x86_64-v3": "avx2",
    "linux-x86_64-multi-vnni": "sse2",
}
#: By case the kinds that read the same bytes: quads, or pairs of int16.
QUADS = {"linux-x86_64-amx", "linux-x86_64-vnni", "linux-x86_64-avxvnni"}
PAIRS = {
    "winograd": {*NEEDS} - {"linux-x86_64-amx"},
    **dict.fromkeys(("pointwise", "by two", "less than a panel"), {*NEEDS} - QUADS),
}


def kinds() -> dict[str, CpuTarget]:
    """Those of the library for quantised models."""
    profile = load_device("linux-x86_64-multi-vnni")
    found = {
        device.name: target for device, target in targets_of([*variants_of(profile), profile], PackOptions())
    }
    assert found.keys() == NEEDS.keys()
    return {name: target for name, target in found.items() if isinstance(target, CpuTarget)}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    """For each kind of CPU that this one is."""
    models = {name: convolution(of, "u8s8") for name, of in CASES.items()}
    folder, here = tmp_path_factory.mktemp("kinds"), host_target()
    return {
        name: Compiled(models, folder / name, target)
        for name, target in kinds().items()
        if (feature := NEEDS[name]) and has_feature(here, feature)
    }


@pytest.mark.parametrize("case", CASES)
def test_sums_are_exact(libraries: dict[str, Compiled], case: str) -> None:
    for number, library in enumerate(libraries.values()):
        x = np.random.default_rng(number).integers(0, 256, CASES[case][0]).astype(np.uint8)
        np.testing.assert_array_equal(library.run(case, {"x": x})["y"], defined(library.models[case], x))


@pytest.mark.parametrize("case", CASES)
def test_kinds_read_the_same_bytes(libraries: dict[str, Compiled], case: str) -> None:
    read = {}
    for name, target in kinds().items():
        made = libraries.get(name)
        plan = made.plan(case) if made else plan_of(convolution(CASES[case], "u8s8"), target=target).plan
        read[name] = max(plan.constants, key=lambda one: one.nbytes).sha256
    pairs = PAIRS[case]
    assert len({read[name] for name in pairs}) == 1
    assert len({read[name] for name in {*NEEDS} - pairs}) == 1
    assert len({*read.values()}) == 2
