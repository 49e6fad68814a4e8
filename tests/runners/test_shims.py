"""The stand-ins for the drivers of GPUs, on kernels of a few lines: right ones, and ones with each of the
errors that they are there to find. What only one of them has: test_shim_cuda.py, test_shim_metal.py."""

from __future__ import annotations

import math
import platform
import re
from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.runners import cuda_shim, metal_shim
from edgepack.runners.base import arch_of
from tests.support.shims import LANGUAGES, NEEDS_SHIM, PARAMETERS, SUM, Built, build

pytestmark = NEEDS_SHIM

HEAD = f"{PARAMETERS}  const int t = THREAD(0);\n"

#: Kernels with an error each, and what is said of it. They get 128 floats each to read and to write.
WRONG = {
    "half_waits": ("if (t < 16) { BARRIER; } y[t] = x[t];", "it waits at the barrier of line"),
    "other_barrier": ("if (t < 16) { BARRIER; }\n else { BARRIER; }", "but thread 0 at that of line"),
    "reads_behind": ("y[t] = x[t + 97];", "reads 4 bytes"),
    "reads_before": ("y[t] = x[t - 1];", "reads 4 bytes"),
    "writes_behind": ("y[t + 97] = x[t];", "writes 4 bytes"),
    "shared_behind": (
        "SHARED float a[32]; SHARED float b[32];\nb[t] = 0; a[t + 1] = x[t]; BARRIER; y[t] = a[t] + b[t];",
        "shared_behind.*E1",
    ),
    "same_result": ("y[t / 2] = x[t];", "it and another thread write"),
    "all_blocks": ("y[t] = x[t];", "it and another block write"),
    "reads_results": (
        "const int b = GROUP(0); const float n = y[(b * 32 + t + 32) % 64]; y[b * 32 + t] = n;",
        "another block",
    ),
    "unaligned": (
        "const ep_int64 v = *(GLOBAL const ep_int64 *)(x + 4 * (t % 8) + 1); y[t] = (float)v;",
        "reads 8 bytes at an address",
    ),
    "too_much_shared": (
        "SHARED float a[12289]; for (int i = t; i < 12289; i += 32) a[i] = x[t]; BARRIER; y[t] = a[0];",
        "it has 49156 bytes of shared memory",
    ),
}

RIGHT = {
    "bytes": "((GLOBAL uchar *)y)[GROUP(0) * 32 + t] = (uchar)t;",
    "nothing_shared": "SHARED float a[32]; if (GROUP(0) == 0) a[t] = x[t];\n"
    "BARRIER; y[GROUP(0) * 32 + t] = a[t];",
    "numbers": "if (GROUP(0) == 0) y[t] = max(exp(x[t]), min(x[t], 2.0f)) + rsqrt(4.0f) + tanh(x[t]);",
    "functions": "if (GROUP(0) == 0) { const float v = (x[t] - 16.0f) / 4.0f; y[t] = erf(v);\n"
    "y[32 + t] = t == 0 ? log1p(1e-6f) : t == 1 ? hypot(3e30f, 4e30f) : log1p(x[t]); }",
}


def without(text: str, barrier: int) -> str:
    """SUM with another name, and without one of its barriers."""
    parts = text.replace("void sum(", f"void sum_without_{barrier}(").split("BARRIER;")
    return "BARRIER;".join(parts[: barrier + 1]) + "BARRIER;".join(parts[barrier + 1 :])


BARRIERS = SUM.count("BARRIER;")


@pytest.fixture(scope="module", params=LANGUAGES)
def shim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    bodies = {**{name: body for name, (body, _) in WRONG.items()}, **RIGHT}
    kernels = {"sum": SUM, **{f"sum_without_{i}": without(SUM, i) for i in range(BARRIERS)}}
    kernels |= {name: f"KERNEL(32, 1, 1) void {name}{HEAD}  {body}\n}}\n" for name, body in bodies.items()}
    return build(request.param, kernels, tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_right_kernels(shim: Built, order: str) -> None:
    done = shim.launch("sum", order=order)
    assert done.returncode == 0, done.stderr
    rows = [sum(range(64)), sum(range(64, 128))]
    assert [float(word) for word in done.stdout.split()[:2]] == rows
    assert done.stdout.split()[2:] == ["nan"] * 62  # what has not been written
    assert shim.launch("bytes", order=order).returncode == 0
    done = shim.launch("numbers", order=order)
    assert done.stdout.split()[0] == "1.5", done.stderr


def test_shared_memory_of_each_block_is_new(shim: Built) -> None:
    done = shim.launch("nothing_shared")
    assert [float(word) for word in done.stdout.split()[:32]] == list(range(32))
    assert done.stdout.split()[32:64] == ["nan"] * 32


@pytest.mark.parametrize("barrier", range(BARRIERS))
def test_a_missing_barrier_is_found(shim: Built, barrier: int) -> None:
    done = shim.launch(f"sum_without_{barrier}")
    assert done.returncode != 0
    assert "without a barrier in between" in done.stderr


@pytest.mark.parametrize("kernel", WRONG)
def test_wrong_kernels(shim: Built, kernel: str) -> None:
    blocks = "2,1,1" if kernel in {"all_blocks", "reads_results"} else "1,1,1"
    for order in ("forward", "reverse"):
        done = shim.launch(kernel, blocks, order=order)
        assert done.returncode != 0, done.stdout
        assert re.search(
            rf"^{shim.language.shim.name}: kernel {kernel}, block .*{WRONG[kernel][1]}", done.stderr
        )


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_functions(shim: Built, order: str) -> None:
    """Those that Metal has not, too."""
    done = shim.launch("functions", order=order)
    got = [float(word) for word in done.stdout.split()[:64]]
    expected = [math.erf((t - 16) / 4) for t in range(32)]
    expected += [math.log1p(1e-6), 5e30, *(math.log1p(t) for t in range(2, 32))]
    assert got == pytest.approx(expected, rel=5e-7), done.stderr


def test_launches_that_no_gpu_takes(shim: Built) -> None:
    assert "cannot be launched" in shim.launch("sum", "0,1,1").stderr
    assert "written for others" in shim.launch("sum", threads="64,1,1").stderr


def test_devices() -> None:
    assert cuda_shim.available(load_device("cuda-desktop")).ok == (arch_of(platform.machine()) == "x86_64")
    assert "gpu.api is cuda" in cuda_shim.available(load_device("linux-x86_64")).hint
    assert "gpu.api is metal" in metal_shim.available(load_device("macos-arm64")).hint
    assert "not windows and x86_64" in cuda_shim.available(load_device("windows-x86_64")).hint
    assert "not linux and x86_64" in metal_shim.available(load_device("linux-x86_64")).hint


def test_a_bundle_without_such_kernels(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kernels for CUDA"):
        cuda_shim.run(load_device("host"), ["program", "verify"], timeout=1, cwd=tmp_path)
    with pytest.raises(ConfigError, match="no kernels for Metal"):
        metal_shim.run(load_device("macos-arm64"), ["program", "verify"], timeout=1, cwd=tmp_path)


def test_the_order_of_threads_must_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that prints the order."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernels.cu").write_text(SUM, encoding="utf-8")
    monkeypatch.setattr(cuda_shim, "_library", lambda texts, arch: tmp_path / "libcuda.so.1")
    program = tmp_path / "program"

    def run(order: str) -> str:
        text = f'#!/bin/sh\necho \'{{"status": "ok", "outputs": ["\'{order}\'"]}}\'\n'
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        return cuda_shim.run(load_device("host"), [program, "verify"], timeout=60, cwd=tmp_path).stdout

    assert "same" in run("same")
    with pytest.raises(CheckFailedError, match="order in which threads run"):
        run("$EDGEPACK_SHIM_ORDER")
