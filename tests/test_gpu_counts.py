"""benchmarks/gpu_counts.py: what warps access, counted for kernels whose counts are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from gpu_counts import Counter, Counts

from edgepack.compiler.backends.cuda import cuda_source

KERNELS = {
    # Column after column of a tile of 32 x 32 without a gap: all in one bank, read and written once each.
    "conflicts": """\
KERNEL(32, 1, 1) void conflicts(GLOBAL float *RESTRICT p0 BUFFER(0) POSITIONS) {
  SHARED float tile[1024];
  tile[THREAD(0)] = p0[GROUP(0) * 32 + THREAD(0)];
  BARRIER;
  p0[GROUP(0) * 32 + THREAD(0)] = tile[THREAD(0) * 32 % 1024];
}
""",
    # 16 bytes a thread, all different, and all the same.
    "vectors": """\
KERNEL(32, 2, 1) void vectors(GLOBAL const float *RESTRICT p0 BUFFER(0),
                              GLOBAL float *RESTRICT p1 BUFFER(1) POSITIONS) {
  SHARED ALIGNED(16) float tile[256];
  const int t = THREAD(1) * 32 + THREAD(0);
  *(SHARED_POINTER(float4))(tile + 4 * t) = *(GLOBAL const float4 *)(p0 + 4 * t);
  BARRIER;
  const float4 x = *(SHARED_POINTER(const float4))(tile + 4 * t), y = *(SHARED_POINTER(const float4))(tile);
  p1[16 * t] = x.x + x.y + x.z + x.w + y.x + y.y + y.z + y.w;
}
""",
}


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Counter:
    return Counter(cuda_source(KERNELS), tmp_path_factory.mktemp("counts"))


def test_a_column_of_a_tile_is_in_one_bank(counter: Counter) -> None:
    """One wavefront to write, 32 to read; 128 bytes in 4 sectors each way; so in each of 100 blocks."""
    found = counter.counts("conflicts", (100, 1, 1), (32, 1, 1), [100 * 128])
    assert found == Counts(100 * 256, 100 * 256, 100 * 128, 200, 100 * 33, 100 * 2)
    assert found.conflicts == 16.5


def test_16_bytes_are_one_access(counter: Counter) -> None:
    """Of two warps: 4 wavefronts each to write and read what is its own, and what is one thread's; numbers 64
    bytes apart are a sector each."""
    found = counter.counts("vectors", (1, 1, 1), (32, 2, 1), [64 * 16, 64 * 64])
    assert found == Counts(64 * 16 + 64 * 4, 64 * 16 + 64 * 32, 64 * 32, 4, 2 * 12, 2 * 12)
    assert found.conflicts == 1.0


def test_what_there_is_not_is_not_counted(counter: Counter) -> None:
    with pytest.raises(ValueError, match="there is no kernel other"):
        counter.counts("other", (1, 1, 1), (1, 1, 1), [])
