"""Android, from a model to its outputs: packed with what looks like an NDK, pushed by what behaves like adb,
run under qemu on a glibc under bionic's names, compared with ONNX Runtime."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import lief
import pytest

import edgepack
from edgepack.api import Bundle
from workbench.models import build, save
from workbench.stand_ins.adb import Phones, phone
from workbench.stand_ins.android import bionic, make_ndk

ABIS = {"android-arm64": "arm64-v8a", "android-armv7": "armeabi-v7a", "android-x86_64": "x86_64"}


@pytest.fixture(scope="module")
def ndk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ndk(tmp_path_factory.mktemp("ndk") / "android ndk")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(build("ds_cnn"), tmp_path_factory.mktemp("model"), "words.onnx")


@pytest.fixture(
    scope="module",
    params=[
        "android-arm64",
        pytest.param("android-armv7", marks=pytest.mark.slow),
        pytest.param("android-x86_64", marks=pytest.mark.slow),
    ],
)
def bundle(
    request: pytest.FixtureRequest, ndk: Path, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    """For each ABI; `tests/formats/test_aar.py` audits libraries of all of them in `make test` too."""
    output = tmp_path_factory.mktemp("app") / "words" / ABIS[request.param]
    return edgepack.pack(model, request.param, output, sdk=ndk)


@pytest.fixture
def attached(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Phones]:
    """A phone that runs this bundle's programs."""
    device = bundle.manifest.device
    phones = Phones(tmp_path / "adb")
    emulator = " ".join(bionic(tmp_path / "bionic", device.arch))
    phones.attach(phone(abis=ABIS[device.name], emulator=emulator))
    monkeypatch.setenv("PATH", f"{phones.path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    yield phones


def test_it_runs_and_agrees_with_onnxruntime(bundle: Bundle, attached: Phones) -> None:
    result = bundle.verify()
    assert result.ok, result
    assert (result.runner, result.threads) == ("adb", 4)
    assert "Pixel 7 (28151FDH300ABC" in result.where


def test_the_library_is_what_an_app_can_load(bundle: Bundle) -> None:
    manifest = bundle.manifest
    record = manifest.artifact("shared")
    assert record is not None
    library = lief.ELF.parse(str(bundle.path / record.path))
    assert isinstance(library, lief.ELF.Binary)
    page = 4096 if manifest.device.arch == "arm" else 16384
    loads = [s for s in library.segments if s.type == lief.ELF.Segment.TYPE.LOAD]
    assert {s.alignment for s in loads} == {page} == {record.audit["page_alignment"]}
    assert set(record.audit["needed"]) <= {"libc.so", "libm.so"}
    assert library.get(lief.ELF.DynamicEntry.TAG.SONAME).name == "libwords.so"  # type: ignore[union-attr]
    assert record.audit["exported"] == [manifest.symbol]
    assert manifest.toolchain.version.startswith("Android NDK 27.2")


def test_its_text_has_the_cmake_that_links_it_into_an_app(bundle: Bundle, ndk: Path, tmp_path: Path) -> None:
    """As an app's build does it: the NDK's toolchain file lets CMake look for packages in the NDK only."""
    text = (bundle.path / "ANDROID.md").read_text(encoding="utf-8")
    abi = ABIS[bundle.manifest.device.name]
    assert f"for **{abi}**, Android API level 24" in text
    assert f"app/src/main/jniLibs/{abi}/" in text
    if abi == "x86_64":
        assert "pages of 16 KiB" in text
    (snippet,) = re.findall(r"```cmake\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "words").symlink_to(bundle.path.parent)
    (tmp_path / "app.c").write_text(
        '#include <words.h>\n__attribute__((visibility("default"))) int app(void);\n'
        "int app(void) { ep_model model; return words_open(0, &model); }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(app C)\nadd_library(app SHARED app.c)\n" + snippet
    )
    prebuilt = ndk / "toolchains" / "llvm" / "prebuilt" / "linux-x86_64"
    target = {"arm64-v8a": "aarch64-linux-android24", "armeabi-v7a": "armv7a-linux-androideabi24"}
    (tmp_path / "toolchain.cmake").write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\n"  # CMake's own Android support wants a whole NDK
        f'set(CMAKE_C_COMPILER "{prebuilt}/bin/clang")\n'
        f'set(CMAKE_AR "{prebuilt}/bin/llvm-ar")\n'
        f"set(CMAKE_C_COMPILER_TARGET {target.get(abi, 'x86_64-linux-android24')})\n"
        f"set(ANDROID_ABI {abi})\n"
        f'set(CMAKE_FIND_ROOT_PATH "{prebuilt}/sysroot")\n'
        "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)\n"
    )
    build = tmp_path / "build"
    for command in (
        ["cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_TOOLCHAIN_FILE={tmp_path / 'toolchain.cmake'}"],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    app = lief.ELF.parse(str(build / "libapp.so"))
    assert isinstance(app, lief.ELF.Binary)
    assert set(app.libraries) <= {"libc.so", "libm.so", "libdl.so"}
    assert {s.name for s in app.exported_functions} == {"app"}
