"""What only the shim of Metal has: matrices of SIMD-groups, and a library made of the bundle's text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgepack.plan.gpu_target import GpuTarget
from tests.support.shims import NEEDS_SHIM, PARAMETERS, SUM, Built, build
from workbench.compiled import plan_of
from workbench.executor import host_target
from workbench.models.builder import Graph

pytestmark = NEEDS_SHIM

#: A product of 8 x 8 matrices, the second one turned: row + k by column + 2 k.
SIMDGROUP_MATRICES = f"""
KERNEL(32, 1, 1) void matrices{PARAMETERS}
  SHARED ALIGNED(16) ep_half first[80], second[80];
  SHARED float results[64];
  const int t = THREAD(0);
  for (int i = t; i < 64; i += 32) {{
    first[i / 8 * 10 + i % 8] = (half)(i / 8 + i % 8);
    second[i / 8 * 10 + i % 8] = (half)(i / 8 + i % 8 * 2);
  }}
  BARRIER;
  simdgroup_half8x8 a, b;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(a, first, 10);
  simdgroup_load(b, second, 10, ulong2(0), true);
  simdgroup_multiply_accumulate(c, a, b, c);
  simdgroup_store(c, results, 8);
  BARRIER;
  for (int i = t; i < 64; i += 32) y[i] = results[i];
}}
KERNEL(32, 1, 1) void half_a_warp{PARAMETERS}
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  if (THREAD(0) < 16) simdgroup_multiply_accumulate(a, a, a, a);
  y[THREAD(0)] = 1.0f;
}}
KERNEL(64, 1, 1) void matrix_race{PARAMETERS}
  SHARED float results[64];
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_store(a, results, 8);
  BARRIER;
  y[THREAD(0)] = results[THREAD(0)];
}}
KERNEL(32, 1, 1) void matrix_behind{PARAMETERS}
  simdgroup_float8x8 a;
  simdgroup_load(a, x + 72, 8);
  simdgroup_store(a, y, 8);
}}
"""


def simdgroup_product() -> dict[str, str]:
    """The kernel of an 8 x 16 by a 16 x 8 matrix."""
    g = Graph("product", seed=1)
    g.op("MatMul", g.input("x", (8, 16)), g.input("w", (16, 8)), name="y")
    g.output("y")
    built = plan_of(g.model(), "product", GpuTarget("metal", host_target(), family=7))
    assert [kernel.rule for kernel in built.plan.kernels] == ["metal.simdgroup_matrix"]
    return dict(built.gpu_kernels)


@pytest.fixture(scope="module")
def product() -> dict[str, str]:
    return simdgroup_product()


@pytest.fixture(scope="module")
def shim(product: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Built:
    kernels = {"sum": SUM, "matrices": SIMDGROUP_MATRICES, **product}
    return build("metal", kernels, tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_matrices_of_a_simdgroup(shim: Built, order: str) -> None:
    done = shim.launch("matrices", "1,1,1", order=order)
    places = [(row, column) for row in range(8) for column in range(8)]
    expected = [1 + sum((row + k) * (column + 2 * k) for k in range(8)) for row, column in places]
    assert [float(word) for word in done.stdout.split()[:64]] == expected, done.stderr
    done = shim.launch("half_a_warp", "1,1,1", order=order)
    assert "the threads of its warp do not come together" in done.stderr


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_the_rules_product(shim: Built, product: dict[str, str], order: str) -> None:
    """Loads and stores are accesses of each thread."""
    (kernel,) = product
    done = shim.launch(kernel, "1,1,1", "64,1,1", order=order, bindings="001")
    x = np.arange(128.0)
    assert [float(word) for word in done.stdout.split()] == list((x.reshape(8, 16) @ x.reshape(16, 8)).flat)
    assert "it and another thread write" in shim.launch("matrix_race", "1,1,1", "64,1,1", order=order).stderr
    assert "reads 4 bytes" in shim.launch("matrix_behind", "1,1,1", order=order).stderr


def test_a_text_that_is_not_the_bundles_is_refused(shim: Built, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_text(shim.image.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    done = shim.launch("sum", image=str(image))
    assert "not that of the bundle's file" in done.stderr
    assert "newLibraryWithSource:options:error:: nil" in done.stderr
    assert "newFunctionWithName:: nil" in shim.launch("summary").stderr
