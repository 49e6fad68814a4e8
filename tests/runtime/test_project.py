"""A bundle is a CMake package, a CMake subproject and a pkg-config package, wherever it lies."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.conftest import Build
from workbench.mini import MiniBundle, run

HERE = Path(__file__).parent
EXPECTED = "EP_OK 3 0\n"


@pytest.fixture
def unpacked(mini: MiniBundle, tmp_path: Path) -> Path:
    """The bundle in another folder than the one in which it was made, without what it does not ship."""
    root = tmp_path / "somewhere else" / "bundle"
    shutil.copytree(mini.root, root, ignore=shutil.ignore_patterns("objects"))
    return root


def consumer(tmp_path: Path) -> Path:
    source = tmp_path / "app" / "consumer.c"
    source.parent.mkdir(exist_ok=True)
    shutil.copyfile(HERE / "consumer.c", source)
    return source


def configure(project: Path, build: Path, *options: str) -> Path:
    """Configures and builds a CMake project with warnings as errors."""
    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Werror"
    run(["cmake", "-S", project, "-B", build, flags, "-DCMAKE_BUILD_TYPE=Release", *options])
    run(["cmake", "--build", build])
    return build


@pytest.mark.parametrize("way", ["CMAKE_PREFIX_PATH", "mini_DIR"])
def test_find_package(unpacked: Path, tmp_path: Path, way: str) -> None:
    where = unpacked / "cmake" if way == "mini_DIR" else unpacked
    build = configure(
        HERE / "consumer" / "package",
        tmp_path / "build",
        f"-D{way}={where}",
        f"-DSOURCE={consumer(tmp_path)}",
    )
    params = (build / "params.txt").read_text(encoding="utf-8")
    assert Path(params).resolve() == (unpacked / "params" / "mini.params").resolve()
    for program in ("consumer", "consumer_static"):
        assert run([build / program, params]) == EXPECTED


@pytest.mark.parametrize("how", ["package", "subdirectory"])
def test_another_processor_is_refused(unpacked: Path, tmp_path: Path, how: str) -> None:
    command = ["cmake", "-S", HERE / "consumer" / how, "-B", tmp_path / "build", f"-DBUNDLE={unpacked}"]
    command += [f"-Dmini_DIR={unpacked / 'cmake'}", f"-DSOURCE={consumer(tmp_path)}"]
    command += ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=sparc64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    text = " ".join(done.stderr.split())
    assert "this build is for sparc64: pack the model for a device of that kind" in text


@pytest.mark.parametrize("shared", ["ON", "OFF"])
def test_add_subdirectory(unpacked: Path, tmp_path: Path, shared: str) -> None:
    shutil.rmtree(unpacked / "lib")  # it is built from src/ and the kernels' object
    build = configure(
        HERE / "consumer" / "subdirectory",
        tmp_path / "build",
        f"-DBUNDLE={unpacked}",
        f"-DSOURCE={consumer(tmp_path)}",
        f"-DBUILD_SHARED_LIBS={shared}",
    )
    assert run([build / "consumer", unpacked / "params" / "mini.params"]) == EXPECTED
    assert not (build / "mini" / "bin" / "mini").exists()  # the loader is not part of the application
    library = build / "mini" / "libmini.so"
    assert library.exists() == (shared == "ON")
    if shared == "ON":
        symbols = run(["nm", "-D", "--defined-only", library])
        assert re.findall(r" (\S+)$", symbols, re.MULTILINE) == ["edgepack_model_mini"]


@pytest.mark.parametrize(("mode", "kind"), [("file", "Release"), ("embed", "Debug")])
def test_library_and_loader_are_rebuilt_from_source(
    build: Build, tmp_path: Path, mode: str, kind: str
) -> None:
    root = tmp_path / "bundle"
    shutil.copytree(build("gcc", mode).root, root, ignore=shutil.ignore_patterns("objects", "lib", "bin"))
    program = configure(root, root / "build", f"-DCMAKE_BUILD_TYPE={kind}") / "bin" / "mini"
    options = ["--params", root / "params" / "mini.params"] if mode == "file" else []
    assert json.loads(run([program, "verify", root / "test", *options]))["status"] == "ok"


@pytest.mark.parametrize("static", [False, True])
def test_pkg_config(unpacked: Path, tmp_path: Path, static: bool) -> None:
    source = consumer(tmp_path)
    if static:
        (unpacked / "lib" / "libmini.so").unlink()
    program = tmp_path / "consumer"
    query = "pkg-config --cflags --libs" + (" --static" if static else "")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(unpacked / "pkgconfig")}
    # As a user would type it, in a shell.
    command = f'eval cc -o "{program}" "{source}" $({query} mini)'
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    library_path = {"LD_LIBRARY_PATH": str(unpacked / "lib")}
    output = subprocess.run(
        [program, unpacked / "params" / "mini.params"],
        env={**os.environ, **library_path},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert output == EXPECTED
