"""What only the shim of CUDA has: products of a warp's matrices, copies to shared memory that arrive later,
rows of matrices that a warp reads together, images, and devices to choose from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgepack import resources
from edgepack.config.host_gpu import ASK_DEVICES
from edgepack.runners.shim import shim_environment
from tests.support.shims import NEEDS_SHIM, PARAMETERS, SUM, Built, build

CUDA_DRIVER = resources.TEMPLATES / "shim" / "cuda" / "driver.c"

pytestmark = NEEDS_SHIM

#: A product of 16 x 16 and 16 x 8 matrices, row + 2 k and k - column, by the fragments of PTX ISA.
MATRICES = f"""
KERNEL(32, 1, 1) void matrices{PARAMETERS}
  const int t = THREAD(0), group = t / 4, at = t % 4 * 2;
  uint a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) c[i] = 1.0f;
  for (int i = 0; i < 4; ++i) {{
    const int row = group + i % 2 * 8, k = at + i / 2 * 8;
    a[i] = HALF_BITS(row + 2 * k) | (uint)HALF_BITS(row + 2 * k + 2) << 16;
  }}
  for (int i = 0; i < 2; ++i) {{
    const int k = at + i * 8;
    b[i] = HALF_BITS(k - group) | (uint)HALF_BITS(k + 1 - group) << 16;
  }}
  ep_mma(c, a, b);
  for (int i = 0; i < 4; ++i) y[(group + i / 2 * 8) * 8 + at + i % 2] = c[i];
}}
KERNEL(32, 1, 1) void matrices_of_tf32{PARAMETERS}
  const int t = THREAD(0), group = t / 4;
  uint a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) {{
    c[i] = 1.0f;
    a[i] = ep_tf32_bits(group + i % 2 * 8 + 2 * (t % 4 + i / 2 * 4) + 1e-5f);
  }}
  for (int i = 0; i < 2; ++i) b[i] = ep_tf32_bits(t % 4 + i * 4 - group);
  ep_mma_tf32(c, a, b);
  for (int i = 0; i < 4; ++i) y[(group + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = c[i];
}}
KERNEL(32, 1, 1) void not_rounded{PARAMETERS}
  uint a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) {{
    c[i] = 0.0f;
    a[i] = __float_as_uint(0.1f);
  }}
  b[0] = b[1] = 0;
  ep_mma_tf32(c, a, b);
  y[THREAD(0)] = c[0];
}}
KERNEL(32, 1, 1) void half_a_warp{PARAMETERS}
  uint a[4], b[2];
  float c[4];
  a[0] = a[1] = a[2] = a[3] = b[0] = b[1] = 0;
  c[0] = c[1] = c[2] = c[3] = 0.0f;
  if (THREAD(0) < 16) ep_mma(c, a, b);
  y[THREAD(0)] = c[0];
}}
"""

#: Adds three tiles of 32 numbers and one of zeros, copied in three stages; each line of it is needed.
COPIES = f"""
KERNEL(32, 1, 1) void copies{PARAMETERS}
  SHARED ALIGNED(16) float tiles[96];
  const int t = THREAD(0);
  float sum = 0.0f;
  for (int i = 0; i < 2; ++i) {{
    if (t < 8) ep_copy_16(tiles + i * 32 + t * 4, x + i * 32 + t * 4, 1);
    COPIES_END;
  }}
  for (int i = 0; i < 4; ++i) {{
    COPIES_ARRIVED(1);
    BARRIER;
    if (t < 8 && i < 2) ep_copy_16(tiles + (i + 2) % 3 * 32 + t * 4, x + (i + 2) * 32 + t * 4, i == 0);
    COPIES_END;
    sum += tiles[i % 3 * 32 + 31 - t];
  }}
  if (GROUP(0) == 0) y[t] = sum;
}}
"""

#: What COPIES becomes by an error, and what is said of it.
WRONG_COPIES = {
    "none_waited_for": ("COPIES_ARRIVED(1);", "", "before a copy to it was waited for"),
    "too_few_waited_for": ("COPIES_ARRIVED(1)", "COPIES_ARRIVED(2)", "before a copy to it was waited for"),
    "first_group_not_ended": ("1);\n    COPIES_END;", "1);", "before a copy to it was waited for"),
    "group_not_ended": ("0);\n    COPIES_END;", "0);", "before a copy to it was waited for"),
    "copies_without_barrier": ("BARRIER;", "", "without a barrier in between|before a copy to it"),
    "barrier_before_wait": (
        "COPIES_ARRIVED(1);\n    BARRIER;",
        "BARRIER;\n    COPIES_ARRIVED(1);",
        "without a barrier in between|before a copy to it",
    ),
    "too_few_stages": ("(i + 2) % 3", "i % 3", "before a copy to it|without a barrier"),
    "copies_at_the_end": ("if (GROUP(0) == 0)", "ep_copy_16(tiles, x, t == 0);", "with 1 copies"),
    "copy_not_aligned": ("x + i * 32 + t", "x + 1 + i * 32 + t", "at an address that is no multiple"),
    "copy_to_memory": ("ep_copy_16(tiles + i * 32", "ep_copy_16(y + i * 32", "not from global to shared"),
}

#: Rows of four matrices in another order, by the layout of PTX ISA.
LDMATRIX = f"""
KERNEL(32, 1, 1) void rows_of_matrices{PARAMETERS}
  SHARED ALIGNED(16) uint rows[128];
  const int t = THREAD(0);
  uint words[4], two[2];
  for (int i = t; i < 128; i += 32) rows[i] = i;
  BARRIER;
  LDMATRIX_4(words, rows + t * 5 % 32 * 4);
  LDMATRIX_2(two, rows + t * 3 % 32 * 4);
  y[t] = words[0] + 1000 * words[3];
  y[32 + t] = words[1] + 1000 * words[2] + 1000000 * (two[0] + two[1]);
}}
KERNEL(32, 1, 1) void rows_not_aligned{PARAMETERS}
  SHARED ALIGNED(16) uint rows[136];
  uint words[4];
  LDMATRIX_4(words, rows + THREAD(0) * 4 + 1);
  y[THREAD(0)] = words[0] + x[0];
}}
KERNEL(32, 1, 1) void rows_of_others{PARAMETERS}
  SHARED ALIGNED(16) uint rows[128];
  uint words[4];
  for (int i = 0; i < 4; ++i) rows[THREAD(0) * 4 + i] = i;
  LDMATRIX_4(words, rows + THREAD(0) * 4);
  y[THREAD(0)] = words[0] + x[0];
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Built:
    kernels = {"sum": SUM, "matrices": MATRICES, "copies": COPIES, "rows_of_matrices": LDMATRIX}
    for name, (part, other, _) in WRONG_COPIES.items():
        kernels[name] = COPIES.replace(part, other, 1).replace("void copies", f"void {name}")
    return build("cuda", kernels, tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_matrices_of_a_warp(shim: Built, order: str) -> None:
    places = [(row, column) for row in range(8) for column in range(8)]

    def product(terms: int) -> list[int]:
        return [1 + sum((row + 2 * k) * (k - column) for k in range(terms)) for row, column in places]

    done = shim.launch("matrices", "1,1,1", order=order)
    assert [float(word) for word in done.stdout.split()[:64]] == product(16), done.stderr
    done = shim.launch("matrices_of_tf32", "1,1,1", order=order)
    got = [float(word) for word in done.stdout.split()[:64]]
    assert got == pytest.approx(product(8), abs=1e-3), done.stderr  # TF32 does not hold 1e-5 beside 1
    assert "was not rounded to TF32" in shim.launch("not_rounded", "1,1,1", order=order).stderr
    done = shim.launch("half_a_warp", "1,1,1", order=order)
    assert "the threads of its warp do not come together" in done.stderr


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_copies_arrive_when_they_are_waited_for(shim: Built, order: str) -> None:
    done = shim.launch("copies", order=order)
    got = [float(word) for word in done.stdout.split()[:32]]
    assert got == [3 * (31 - t) + 96 for t in range(32)], done.stderr
    for name, (_, _, message) in WRONG_COPIES.items():
        assert re.search(message, shim.launch(name, "1,1,1", order=order).stderr), name


def test_rows_of_matrices(shim: Built) -> None:
    done = shim.launch("rows_of_matrices", "1,1,1")

    def word(lane: int, matrix: int, step: int) -> int:
        return (matrix * 8 + lane // 4) * step % 32 * 4 + lane % 4

    first = [word(t, 0, 5) + 1000 * word(t, 3, 5) for t in range(32)]
    others = [
        word(t, 1, 5) + 1000 * word(t, 2, 5) + 1000000 * (word(t, 0, 3) + word(t, 1, 3)) for t in range(32)
    ]
    got = [float(text) for text in done.stdout.split()]
    assert got == [float(np.float32(n)) for n in first + others], done.stderr
    assert "a row of ldmatrix is not at a multiple" in shim.launch("rows_not_aligned", "1,1,1").stderr
    assert "without a barrier in between" in shim.launch("rows_of_others", "1,1,1").stderr


def test_launches_and_images_that_the_driver_refuses(shim: Built, tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert "blocks cannot be launched" in shim.launch("sum", "1,65536,1").stderr
    image.write_text(".version 8.0\n.visible .entry summary(\n", encoding="ascii")
    assert "the image has no kernel sum" in shim.launch("sum", image=str(image)).stderr
    image.write_bytes(b"\x7fELF" + bytes(60))  # of another machine
    assert "ModuleLoadData: 209" in shim.launch("sum", image=str(image)).stderr


def test_the_driver_tells_of_its_devices(shim: Built) -> None:
    """Of those that the variable of NVIDIA's driver leaves; for `host-gpu`."""
    variables = {**shim_environment(shim.library, "forward"), "CUDA_VISIBLE_DEVICES": "9,16,99,1"}
    command = [sys.executable, "-I", str(ASK_DEVICES), "cuda", "json"]
    lines = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    devices = [json.loads(line) for line in lines]
    assert [device["capability"] for device in devices] == [80, 999]
    assert (devices[0]["units"], devices[0]["group_size"], devices[0]["local_memory"]) == (8, 1024, 48 << 10)


def test_the_driver_has_every_function_that_the_library_looks_for() -> None:
    """One that is missing is no error: the library then does without what it is for, or takes the CPU."""
    templates = CUDA_DRIVER.parents[2]
    text = (templates / "runtime" / "gpu" / "cuda.h").read_text(encoding="utf-8")
    asked = {f"cu{name}{version}" for name, version in re.findall(r'X\((\w+), "(\w*)",', text)}
    assert len(asked) > 30
    made = re.findall(r"^API (\w+)\(", CUDA_DRIVER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert asked <= set(made)
