"""A variant for a GPU of NVIDIA's, hand-written for the mini model, on a fake driver that can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.conftest import CHECKED, Build
from tests.runtime.test_gpu import link, run_with
from workbench.mini import VARIANTS, WARNINGS, run

HERE = Path(__file__).parent

TESTS = (
    "numbers",
    "open_failures",
    "session_failures",
    "lost_device",
    "devices",
    "image_choice",
    "both_drivers",
    "memory",
    "late",
    "caller",
    "caller_failures",
    "caller_objects",
    "document",
)


def fake_driver(folder: Path, *more: str) -> Path:
    """The folder of a fake libcuda.so.1, in which there is no other driver."""
    cc, flags = VARIANTS[CHECKED]
    library = folder / "libcuda.so.1"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        for name in ("libOpenCL.so.1", "libOpenCL.so"):
            (folder / name).write_bytes(b"no library")
        shared = ["-fPIC", "-shared", "-fvisibility=hidden"]
        run([*cc, *WARNINGS, *flags, *more, *shared, HERE / "fake_cuda.c", "-o", library])
    return folder


@pytest.mark.parametrize("name", TESTS)
def test_fake_driver(build: Build, name: str) -> None:
    bundle = build(CHECKED)
    libraries = fake_driver(bundle.root / "fake-cuda")
    run_with(libraries, link(bundle, CHECKED, "gpu_fake.c"), f"cuda_{name}", bundle)


@pytest.mark.parametrize("name", ["numbers", "lost_device"])
def test_driver_without_graphs(build: Build, name: str) -> None:
    """One of CUDA 10, as the Jetson Nano has it."""
    bundle = build(CHECKED)
    libraries = fake_driver(bundle.root / "fake-cuda-10", "-DFAKE_OLD")
    run_with(libraries, link(bundle, CHECKED, "gpu_fake.c"), f"cuda_{name}", bundle)


def test_no_driver(build: Build, tmp_path: Path) -> None:
    bundle = build(CHECKED)
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    run_with(tmp_path, link(bundle, CHECKED, "gpu_fake.c"), "cuda_no_driver", bundle)
