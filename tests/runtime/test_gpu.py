"""A variant for a GPU, hand-written for the mini model: on a fake driver that fails on request, and on the
system's."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from edgepack.render.sources import kernels_object
from edgepack.resources import TEMPLATES
from tests.runtime.conftest import CHECKED, Build
from tests.support.oclgrind import findings, oclgrind
from workbench.mini import VARIANTS, WARNINGS, MiniBundle, add_gpu_sources, run

HERE = Path(__file__).parent
SHIM = TEMPLATES / "shim"

FAKE = (
    "numbers",
    "open_failures",
    "session_failures",
    "lost_device",
    "devices",
    "memory",
    "late",
    "options",
    "forked",
    "params",
    "caller",
    "caller_failures",
    "caller_objects",
    "cache",
    "document",
)
DRIVER = ("numbers", "sessions", "caller_memory", "cache")


def document() -> str:
    """The C of docs/gpu.md, and of what docs/reference/c-api.md says of an OpenCL driver."""
    docs = HERE.parents[1] / "docs"
    text = (docs / "gpu.md").read_text(encoding="utf-8")
    reference = (docs / "reference" / "c-api.md").read_text(encoding="utf-8")
    text += reference.partition("### What an OpenCL driver compiled")[2].partition("\n## ")[0]
    return "".join(re.findall(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def link(bundle: MiniBundle, variant: str, source: str) -> Path:
    """Builds a test; the model is part of it."""
    cc, flags = VARIANTS[variant]
    program = bundle.root / "objects" / Path(source).stem
    if not program.exists():
        add_gpu_sources(bundle)
        kernels = bundle.root / kernels_object(0, 1)
        (program.parent / "gpu_document.h").write_text(document(), encoding="utf-8")
        wrap = ["-Wl,--wrap=malloc", "-Wl,--wrap=dlopen"] if source == "gpu_fake.c" else []
        run(
            [
                *(*cc, *WARNINGS, *flags, *bundle.includes, f"-I{SHIM / 'metal'}", f"-I{SHIM / 'common'}"),
                *(f"-I{program.parent}", f"-I{HERE / 'vendor'}"),
                *(HERE / source, kernels, *wrap),
                *("-o", program, "-lpthread", "-lm", "-ldl"),
            ]
        )
    return program


def fake_driver(folder: Path, variant: str, *more: str) -> Path:
    """The folder of a fake libOpenCL.so.1."""
    cc, flags = VARIANTS[variant]
    library = folder / "libOpenCL.so.1"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        shared = ["-fPIC", "-shared", "-fvisibility=hidden"]
        run([*cc, *WARNINGS, *flags, *more, *shared, HERE / "fake_opencl.c", "-o", library])
    return folder


def run_with(libraries: Path, program: Path, name: str, bundle: MiniBundle) -> None:
    run(["env", f"LD_LIBRARY_PATH={libraries}", program, name, bundle.root])


@pytest.mark.parametrize("name", FAKE)
def test_fake_driver(build: Build, name: str) -> None:
    bundle = build(CHECKED)
    libraries = fake_driver(bundle.root / "fake", CHECKED)
    run_with(libraries, link(bundle, CHECKED, "gpu_fake.c"), f"opencl_{name}", bundle)


def test_no_driver(build: Build, tmp_path: Path) -> None:
    """Libraries that are none, and one that lacks a function."""
    bundle = build(CHECKED)
    program = link(bundle, CHECKED, "gpu_fake.c")
    for name in ("libOpenCL.so.1", "libOpenCL.so"):
        (tmp_path / name).write_bytes(b"no library")
    run_with(tmp_path, program, "opencl_no_driver", bundle)
    run_with(
        fake_driver(tmp_path / "old", CHECKED, "-DFAKE_WITHOUT_FINISH"), program, "opencl_no_driver", bundle
    )


@pytest.mark.parametrize("name", DRIVER)
def test_driver_of_the_system(build: Build, name: str) -> None:
    """On PoCL, where there is no GPU; its cache of compiled kernels is the bundle's own."""
    bundle = build("gcc")
    program = link(bundle, "gcc", "gpu_driver.c")
    cache = bundle.root / "pocl"
    cache.mkdir(exist_ok=True)
    done = subprocess.run(
        [program, name, bundle.root],
        env={**os.environ, "POCL_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_driver_that_checks_its_calls(build: Build, tmp_path: Path) -> None:
    bundle = build("gcc")
    environment, log = oclgrind(tmp_path)
    program = link(bundle, "gcc", "gpu_driver.c")
    subprocess.run([program, "numbers", bundle.root], env=environment, check=True, timeout=300)
    assert findings(log) == []
