"""Windows: packed and audited by zig, run under Wine where it is installed.

`make test` does not install it, for its size: apt-get install --no-install-recommends wine64.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.errors import EdgepackWarning, ToolchainError
from edgepack.runners import select_runner, wine
from edgepack.system.files import list_files
from edgepack.system.paths import cache_dir
from workbench.models import build, save

WINDOWS = load_device("windows-x86_64")
_OK, _, _HINT = wine.available(WINDOWS)
needs_wine = pytest.mark.skipif(not _OK, reason=_HINT)

Pack = Callable[..., edgepack.Bundle]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a network, once, in a folder with a difficult name; not to be changed."""
    folder = tmp_path_factory.mktemp("Windows bündles")
    made: dict[tuple[str, str, str], edgepack.Bundle] = {}

    def pack(device: str, network: str, params: str = "file") -> edgepack.Bundle:
        key = (device, network, params)
        if key not in made:
            model = save(build(network), folder, f"{network}.onnx")
            made[key] = edgepack.pack(model, device, folder / " ".join(key), params=params)  # type: ignore[arg-type]
        return made[key]

    return pack


@pytest.mark.slow
def test_what_is_built(packed: Pack) -> None:
    bundle = packed("windows-x86_64", "ds_cnn")
    manifest = bundle.manifest
    audits = {artifact.kind: artifact.audit for artifact in manifest.artifacts}
    assert [a.path for a in manifest.artifacts] == ["lib/ds_cnn.dll", "lib/libds_cnn.a", "bin/ds_cnn.exe"]
    assert audits["shared"]["exported"] == ["edgepack_model_ds_cnn"]
    assert "exported" not in audits["program"]
    assert audits["static"]["members"] == ["kernels.o", "model.c.o"]
    for kind in ("shared", "program"):
        assert {"protection", "time stamp", "debug directory", "needed libraries"} <= set(
            audits[kind]["checks"]
        )
        assert all(
            re.fullmatch(r"KERNEL32\.dll|SHELL32\.dll|api-ms-win-crt-\w+-l1-1-0\.dll", name)
            for name in audits[kind]["needed"]
        ), audits[kind]["needed"]
    files = list_files(bundle.path)
    assert "lib/libds_cnn.dll.a" in files
    assert "cmake/exports.map" not in files
    assert manifest.runtime.text_bytes


@pytest.mark.slow
@needs_wine
@pytest.mark.parametrize(
    ("device", "network", "params"),
    [("windows-x86_64", "ds_cnn", "file"), ("windows-x86_64-v3", "mlp", "embed")],
)
def test_network_agrees_with_onnxruntime(device: str, network: str, params: str, packed: Pack) -> None:
    bundle = packed(device, network, params)
    for threads in (1, 3):
        result = bundle.verify(threads=threads)
        assert result.ok, result
        assert result.runner == "wine"
        assert result.threads == threads
    measured = bundle.bench(runs=2, warmup=1)
    assert not measured.real_speed
    assert measured.peak_rss_bytes > 0


@pytest.mark.slow
@needs_wine
def test_damaged_params_and_missing_files_are_told(packed: Pack, tmp_path: Path) -> None:
    """By the program itself; on paths that are not ASCII."""
    copy = Path(shutil.copytree(packed("windows-x86_64", "ds_cnn").path, tmp_path / "cöpy ✓"))
    params = copy / "params" / "ds_cnn.params"

    def verify() -> dict[str, str]:
        argv: list[str | Path] = [copy / "bin" / "ds_cnn.exe", "verify", copy / "test"]
        result: dict[str, str] = json.loads(wine.run(WINDOWS, argv, timeout=60, cwd=copy).stdout)
        return result

    assert verify()["status"] == "ok"
    params.write_bytes(params.read_bytes()[:-64])
    assert verify()["code"] == "EP_E_PARAMS_TRUNCATED"
    params.unlink()
    assert verify()["code"] == "EP_E_IO"
    shutil.copy(packed("windows-x86_64", "ds_cnn").path / "params" / "ds_cnn.params", params)
    (copy / "test" / "input_0.bin").unlink()
    assert verify()["code"] == "FILE"


@pytest.mark.slow
def test_two_packs_give_the_same_bytes(packed: Pack, tmp_path: Path) -> None:
    one = packed("windows-x86_64", "ds_cnn").path
    other = tmp_path / "elsewhere and longer"
    edgepack.pack(save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), "windows-x86_64", other)
    assert list_files(one) == list_files(other)
    assert [
        name for name in list_files(one) if (one / name).read_bytes() != (other / name).read_bytes()
    ] == []


_APP = """\
#include <mlp.h>
#include <stdio.h>

int main(void) {
    static float x[MLP_INPUT_X_ELEMENTS], probabilities[MLP_OUTPUT_PROBABILITIES_ELEMENTS];
    ep_model model;
    ep_session *session = NULL;
    ep_status status = mlp_open(NULL, &model);
    double sum = 0;
    if (status == EP_OK) status = ep_session_create(&model, NULL, &session);
    if (status == EP_OK) status = mlp_run(session, x, probabilities);
    for (int i = 0; i < MLP_OUTPUT_PROBABILITIES_ELEMENTS; i++) sum += (double)probabilities[i];
    printf("%s %.3f\\n", ep_status_string(status), sum);
    ep_session_destroy(session);
    ep_model_close(&model);
    return status != EP_OK;
}
"""
_PRINTED = "Success. 1.000"


def zig(folder: Path, tool: str, *options: str) -> Path:
    """One of zig's tools as a command of one word."""
    path = folder / f"zig-{tool}"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {tool} {" ".join(options)} "$@"\n')
    path.chmod(0o755)
    return path


def wine_run(program: Path) -> str:
    return wine.run(WINDOWS, [program], timeout=60, cwd=program.parent).stdout.strip()


@pytest.mark.slow
@needs_wine
@pytest.mark.parametrize("static", [False, True])
def test_a_program_is_linked_as_the_readme_says(static: bool, packed: Pack, tmp_path: Path) -> None:
    bundle = packed("windows-x86_64-v3", "mlp", "embed")
    readme = (bundle.path / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    zig (cc .* app\.exe)$", readme, re.MULTILINE)
    if static:
        command = command.replace("libmlp.dll.a", "libmlp.a").replace(" -DMLP_SHARED", "")
    (tmp_path / "app.c").write_text(_APP, encoding="utf-8")
    for name in ("include", "lib"):
        shutil.copytree(bundle.path / name, tmp_path / name)
    environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache_dir() / "zig")}
    subprocess.run(
        [sys.executable, "-m", "ziglang", *command.split()], cwd=tmp_path, env=environment, check=True
    )
    if not static:
        shutil.copy(tmp_path / "lib" / "mlp.dll", tmp_path)
    assert wine_run(tmp_path / "app.exe") == _PRINTED


@pytest.mark.slow
@needs_wine
def test_the_cmake_project_builds(packed: Pack, tmp_path: Path) -> None:
    bundle = packed("windows-x86_64-v3", "mlp", "embed")
    target = ("-target", "x86_64-windows-gnu", "-fno-sanitize=all")
    environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache_dir() / "zig")}
    settings = {
        "CMAKE_SYSTEM_NAME": "Windows",
        "CMAKE_C_COMPILER": zig(tmp_path, "cc", *target),
        "CMAKE_AR": zig(tmp_path, "ar"),
        "CMAKE_RANLIB": zig(tmp_path, "ranlib"),
        "CMAKE_BUILD_TYPE": "Release",
        "BUILD_SHARED_LIBS": "ON",
    }
    build_folder = tmp_path / "build it"
    for command in (
        [
            "cmake",
            "-S",
            str(bundle.path),
            "-B",
            str(build_folder),
            *(f"-D{k}={v}" for k, v in settings.items()),
        ],
        ["cmake", "--build", str(build_folder)],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    program = build_folder / "bin" / "mlp.exe"
    (library,) = build_folder.glob("*mlp.dll")
    shutil.copy(library, program.parent)
    ran = wine.run(WINDOWS, [program, "verify", bundle.path / "test"], timeout=60, cwd=bundle.path)
    assert json.loads(ran.stdout)["status"] == "ok", ran.printed


# The runner


def test_wine_says_what_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "on Linux and macOS only" in wine.available(load_device("linux-x86_64")).hint
    assert "cannot run aarch64" in wine.available(load_device("windows-aarch64")).hint
    monkeypatch.setattr("edgepack.runners.wine.find_program", lambda name: None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    ok, _, hint = wine.available(WINDOWS)
    assert not ok
    assert "apt-get install --no-install-recommends wine64" in hint
    with pytest.raises(ToolchainError) as caught:
        select_runner(WINDOWS)
    assert "wine64" in caught.value.hint
    with pytest.raises(ToolchainError, match="cannot run programs of windows-x86_64"):
        wine.run(WINDOWS, [Path("a.exe")], timeout=1, cwd=Path())


def fake_wine(root: Path, libraries: bool) -> Path:
    """Prints its environment and arguments."""
    program = root / "usr" / "bin" / "wine64"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "wine-9.9 (Fake)" && exit\n'
        'printf "%s\\n" "$WINEPREFIX" "$WINEDEBUG $DISPLAY" "$@"\n'
    )
    program.chmod(0o755)
    if libraries:
        folder = root / "usr" / "lib" / "wine" / "x86_64-windows"
        folder.mkdir(parents=True)
        (folder / "kernel32.dll").write_text("")
    return program


@pytest.mark.parametrize("libraries", [True, False])
def test_the_program_sees_this_machines_files_as_drive_z(
    libraries: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_wine(tmp_path, libraries)
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    device = WINDOWS.model_copy(
        update={"runner": WINDOWS.runner.model_copy(update={"program": str(program)})}
    )
    assert wine.available(device).where == f"{program} wine-9.9"
    argv: list[str | Path] = [tmp_path / "bündle" / "a.exe", "verify", tmp_path / "test"]
    for _ in range(2):  # the second time the prefix is there
        done = wine.run(device, argv, timeout=20, cwd=tmp_path)
        prefix, quiet, *rest = done.stdout.splitlines()
        assert Path(prefix) == tmp_path / "cache" / "wine" / "wine-9.9"
        assert quiet.strip() == "-all"
        drive = "Z:" + str(tmp_path).replace("/", "\\")
        assert rest == [f"{drive}\\bündle\\a.exe", "verify", f"{drive}\\test"]
    link = Path(prefix) / "drive_c" / "windows" / "system32" / "kernel32.dll"
    assert link.is_symlink() == libraries
    assert [path.name for path in Path(prefix).parent.iterdir()] == ["wine-9.9"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.warns(EdgepackWarning, match=r"cache/wine is not used: .* EDGEPACK_CACHE_DIR names another"):
        prefix = wine._prefix(str(fake_wine(tmp_path, True)))
    assert prefix.is_dir() and not prefix.is_relative_to(tmp_path / "cache")


@pytest.mark.slow
def test_kernels_for_cuda_are_built_and_audited(packed: Pack) -> None:
    """Two objects of kernels in one library, and nothing of NVIDIA's needed to load it."""
    bundle = packed("cuda-windows", "ds_cnn")
    audits = {artifact.kind: artifact.audit for artifact in bundle.manifest.artifacts}
    assert audits["static"]["members"] == ["kernels0.o", "kernels1.o", "model.c.o"]
    assert "LoadLibraryExA" in audits["shared"]["undefined"]
    assert not any("cuda" in name.lower() for name in audits["shared"]["needed"])
    assert b"nvcuda.dll" in (bundle.path / "lib" / "ds_cnn.dll").read_bytes()
    assert [variant.name for variant in bundle.manifest.variants] == ["cuda"]


@pytest.mark.slow
def test_windows_on_arm_is_built_and_audited(packed: Pack) -> None:
    """Nothing here runs it."""
    bundle = packed("windows-aarch64", "ds_cnn")
    assert {artifact.audit["machine"] for artifact in bundle.manifest.artifacts} == {"aarch64"}
    with pytest.raises(ToolchainError, match="wine cannot run programs of windows-aarch64"):
        bundle.verify()
