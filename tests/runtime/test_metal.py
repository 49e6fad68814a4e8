"""A variant for a GPU of Apple's, hand-written for the mini model, on a fake Metal that can fail: that of the
shim (templates/shim/metal), whose kernels are C."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from edgepack.resources import TEMPLATES
from edgepack.runners.base import arch_of
from tests.runtime.conftest import CHECKED, Build
from tests.runtime.test_gpu import link, run_with
from workbench.mini import VARIANTS, WARNINGS, run

HERE = Path(__file__).parent
SHIM = TEMPLATES / "shim"

TESTS = (
    "numbers",
    "params_in_memory",
    "open_failures",
    "session_failures",
    "lost_device",
    "devices",
    "order_of_copies",
    "compiled_library",
    "memory",
    "late",
    "no_driver",
    "caller",
    "caller_failures",
    "in_flight",
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or arch_of(platform.machine()) not in {"x86_64", "aarch64"},
    reason="the fake objc_msgSend is for Linux on x86-64 and aarch64",
)


def fake_driver(folder: Path) -> Path:
    """The folder of a libmetal.so that stands for Objective-C's runtime and the framework."""
    cc, flags = VARIANTS[CHECKED]
    library = folder / "libmetal.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        includes = [f"-I{SHIM / 'metal'}", f"-I{SHIM / 'common'}"]
        sources = [HERE / "fake_metal.c", SHIM / "metal" / "driver.c", SHIM / "metal" / "objc.c"]
        shared = ["-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden"]
        run([*cc, *WARNINGS, *flags, *includes, *shared, *sources, "-o", library, "-lpthread"])
    return folder


@pytest.mark.parametrize("name", TESTS)
def test_fake_driver(build: Build, name: str) -> None:
    bundle = build(CHECKED)
    libraries = fake_driver(bundle.root / "fake-metal")
    run_with(libraries, link(bundle, CHECKED, "gpu_fake.c"), f"metal_{name}", bundle)
