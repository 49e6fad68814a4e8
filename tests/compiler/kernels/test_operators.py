"""Every small model, compiled with edgepack's own kernels, against ONNX Runtime on fresh random inputs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph
from workbench.models.odd import ODD
from workbench.models.operators import CASES

SMALL = {**CASES, **ODD}

#: What combines an interpolation, a way to find positions and one to round or to leave the image, each of
#: which another model has too.
COMBINED = {
    *(
        f"gridsample_{way}"
        for way in ("cubic_reflection_1", "cubic_zeros_1", "linear_border_0", "linear_border_1")
    ),
    *(
        f"gridsample_{way}"
        for way in ("linear_reflection_0", "linear_zeros_0", "nearest_border_0", "nearest_zeros_0")
    ),
    *(f"resize_{way}_sizes" for way in ("cubic_asymmetric", "linear_asymmetric", "nearest_asymmetric")),
    *(f"resize_{way}_sizes" for way in ("cubic_align_corners", "nearest_align_corners", "linear_half_pixel")),
    *(f"resize_{way}_pytorch_half_pixel{sizes}" for way in ("cubic", "nearest") for sizes in ("", "_sizes")),
    *("resize_linear_pytorch_half_pixel", "resize_cubic_asymmetric", "resize_antialias_int32"),
    *(f"resize_nearest_{way}_half_pixel" for way in ("floor", "ceil", "round_prefer_ceil")),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Compiled]:
    """All models, or those that are combined."""
    folder = tmp_path_factory.mktemp("operators")

    @cache
    def make(combined: bool) -> Compiled:
        names = [name for name in sorted(SMALL) if (name in COMBINED) == combined]
        return Compiled({name: SMALL[name]() for name in names}, folder / str(combined))

    return make


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in COMBINED else n for n in sorted(SMALL)]
)
def test_operator_agrees_with_onnxruntime(compiled: Callable[[bool], Compiled], name: str) -> None:
    library = compiled(name in COMBINED)
    assert not library.plan(name).warnings
    library.check(name, seed=1)
    library.check(name, seed=2, poison=0x7B)


def test_samples_far_outside_of_an_image_read_nothing(tmp_path: Path) -> None:
    g = Graph("outside", seed=2)
    far = np.where(np.arange(24) % 2, 1e6, 1).astype("float32").reshape(1, 1, 24, 1)
    grid = g.op("Mul", g.input("grid", (1, 4, 24, 2)), g.const(far))
    g.output(g.op("GridSample", g.input("x", (1, 2, 9, 9)), grid))
    Compiled({"m": g.model()}, tmp_path).check("m")


@pytest.mark.slow
def test_every_kernel_is_right_as_llvm_optimises_it() -> None:
    """Those of other files too, of which `make test` has most compiled without."""
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", str(here)]
    environment = {**os.environ, "EDGEPACK_TEST_OPTIMISED": "all"}
    subprocess.run(command, check=True, cwd=here.parents[2], env=environment)
