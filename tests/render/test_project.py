"""The CMake and pkg-config files of a bundle; tests/runtime/test_project.py builds with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgepack.render.project import render_project
from edgepack.render.sources import kernels_object
from workbench.mini import mini_plan


@pytest.mark.parametrize("shared", [None, "lib/libmini.so"])
def test_project_names_only_what_was_built(shared: str | None) -> None:
    kernels = [kernels_object(0, 1)]
    texts = render_project(
        mini_plan(),
        kernels=kernels,
        params_mode="embed",
        shared=shared,
        static="lib/libmini.a",
        arch="x86_64",
    )
    config = texts["cmake/mini-config.cmake"]
    assert ("libmini.so" in config) == (shared is not None)
    assert "mini::static" in config
    assert "mini_PARAMS" not in config  # they are in the library
    libs = texts["pkgconfig/mini.pc"]
    assert ("Libs.private" in libs) == (shared is not None)


#: Architecture of a bundle, what CMake knows of a build, whether they fit.
BUILDS = [
    ("x86_64", {"CMAKE_SYSTEM_PROCESSOR": "x86_64", "CMAKE_SIZEOF_VOID_P": "8"}, True),
    ("x86_64", {"CMAKE_SYSTEM_PROCESSOR": "AMD64", "CMAKE_SIZEOF_VOID_P": "8"}, True),
    ("x86_64", {"CMAKE_SYSTEM_PROCESSOR": "x86_64", "CMAKE_SIZEOF_VOID_P": "4"}, False),  # -m32
    ("x86_64", {"CMAKE_SYSTEM_PROCESSOR": "aarch64", "CMAKE_SIZEOF_VOID_P": "8"}, False),
    ("x86_64", {"CMAKE_SYSTEM_PROCESSOR": "i686", "CMAKE_SIZEOF_VOID_P": "4"}, False),
    ("x86_64", {}, True),  # nothing is known
    ("aarch64", {"CMAKE_SYSTEM_PROCESSOR": "arm64", "CMAKE_SIZEOF_VOID_P": "8"}, True),
    ("aarch64", {"CMAKE_SYSTEM_PROCESSOR": "x86_64", "CMAKE_SIZEOF_VOID_P": "8"}, False),
    ("aarch64", {"CMAKE_SYSTEM_PROCESSOR": "armv7l", "CMAKE_SIZEOF_VOID_P": "4"}, False),
    ("arm", {"CMAKE_SYSTEM_PROCESSOR": "armv7-a", "CMAKE_SIZEOF_VOID_P": "4"}, True),
    ("arm", {"CMAKE_SYSTEM_PROCESSOR": "aarch64", "CMAKE_SIZEOF_VOID_P": "4"}, True),  # a 32-bit system on it
    ("arm", {"CMAKE_SYSTEM_PROCESSOR": "aarch64", "CMAKE_SIZEOF_VOID_P": "8"}, False),
    ("riscv64", {"CMAKE_SYSTEM_PROCESSOR": "riscv64", "CMAKE_SIZEOF_VOID_P": "8"}, True),
    (
        "wasm32",
        {"CMAKE_SYSTEM_PROCESSOR": "x86", "CMAKE_SIZEOF_VOID_P": "4"},
        True,
    ),  # Emscripten's name for it
    ("wasm32", {"CMAKE_SYSTEM_PROCESSOR": "x86_64", "CMAKE_SIZEOF_VOID_P": "8"}, False),
    ("aarch64", {"APPLE": "1", "CMAKE_OSX_ARCHITECTURES": "arm64", "CMAKE_SYSTEM_PROCESSOR": "x86_64"}, True),
    (
        "aarch64",
        {"APPLE": "1", "CMAKE_OSX_ARCHITECTURES": "x86_64", "CMAKE_SYSTEM_PROCESSOR": "arm64"},
        False,
    ),
    ("aarch64", {"MSVC": "1", "CMAKE_C_COMPILER_ARCHITECTURE_ID": "ARM64", "CMAKE_SIZEOF_VOID_P": "8"}, True),
    ("aarch64", {"MSVC": "1", "CMAKE_C_COMPILER_ARCHITECTURE_ID": "x64", "CMAKE_SIZEOF_VOID_P": "8"}, False),
]


def test_a_build_for_another_processor_is_told(tmp_path: Path) -> None:
    script = []
    for number, (arch, known, _) in enumerate(BUILDS):
        texts = render_project(
            mini_plan(), kernels=[], params_mode="file", shared=None, static="lib/libmini.a", arch=arch
        )
        file = tmp_path / f"{number}.cmake"
        file.write_text(texts["cmake/mini-processor.cmake"])
        script += [f'set({name} "{value}")' for name, value in known.items()]
        script += [f'include("{file}")', 'message("${mini_WRONG_PROCESSOR}.")']
        script += [f"unset({name})" for name in known]
    (tmp_path / "all.cmake").write_text("\n".join(script))
    command = ["cmake", "-P", str(tmp_path / "all.cmake")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr.splitlines()
    assert len(said) == len(BUILDS)
    for line, (arch, known, fits) in zip(said, BUILDS, strict=True):
        assert (line == ".") == fits, (arch, known, line)
        assert fits or line.startswith(f"the bundle mini is for {arch}")
