"""macOS and iOS: packed and audited by zig and by Xcode's commands. Nothing here can run what comes out."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lief
import pytest

import edgepack
from edgepack.cli.main import main
from edgepack.commands.doctor import trial
from edgepack.config.device import load_device
from edgepack.errors import ConfigError, ToolchainError
from edgepack.system.files import list_files
from edgepack.system.paths import cache_dir
from edgepack.toolchains import resolve
from edgepack.toolchains.zig_ios import libc_file
from workbench.mini import run
from workbench.models import build, save

DEVICES = ("macos-arm64", "macos-x86_64", "ios-arm64", "ios-simulator-arm64")
FAKE = Path(__file__).with_name("xcrun.py")

Pack = Callable[..., edgepack.Bundle]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a network, once, in a folder with a difficult name; not to be changed."""
    folder = tmp_path_factory.mktemp("Apple bündles")
    made: dict[tuple[str, str, str], edgepack.Bundle] = {}

    def pack(device: str, network: str = "ds_cnn", params: str = "file") -> edgepack.Bundle:
        key = (device, network, params)
        if key not in made:
            model = save(build(network), folder, f"{network}.onnx")
            made[key] = edgepack.pack(model, device, folder / " ".join(key), params=params)  # type: ignore[arg-type]
        return made[key]

    return pack


@pytest.fixture
def xcrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Apple's: takes what that takes, lets zig do the work, notes each command in a file."""
    folder = tmp_path / "Xcode bin"
    folder.mkdir()
    command = folder / "xcrun"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    library = Path(_zig_library())
    for name, value in {
        "PATH": f"{folder}:/usr/bin:/bin",
        "XCRUN_LOG": str(tmp_path / "commands.txt"),
        "XCRUN_LIBC": str(libc_file(library)),
        "XCRUN_ZIG_CACHE": str(cache_dir() / "zig"),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "commands.txt"


def _zig_library() -> str:
    text = subprocess.run(
        [sys.executable, "-m", "ziglang", "env"], capture_output=True, text=True, check=True
    )
    match = re.search(r'lib_dir"?\s*[=:]\s*"([^"]+)"', text.stdout)
    assert match is not None
    return str(Path(match.group(1)).absolute())


@pytest.mark.parametrize(
    "device",
    [  # of each system one kind of CPU
        DEVICES[0],
        pytest.param(DEVICES[1], marks=pytest.mark.slow),
        DEVICES[2],
        pytest.param(DEVICES[3], marks=pytest.mark.slow),
    ],
)
def test_what_is_built(device: str, packed: Pack) -> None:
    bundle = packed(device)
    manifest = bundle.manifest
    audits = {artifact.kind: artifact.audit for artifact in manifest.artifacts}
    assert set(audits) == ({"shared", "static"} | ({"program"} if device.startswith("macos") else set()))
    shared = manifest.artifact("shared")
    assert shared is not None
    assert shared.path == "lib/libds_cnn.dylib"
    assert shared.audit["exported"] == ["edgepack_model_ds_cnn"]
    assert shared.audit["needed"] == ["/usr/lib/libSystem.B.dylib"]
    assert {"platform", "code signature", "install name", "page alignment"} <= set(shared.audit["checks"])
    assert not set(shared.audit["undefined"]) & {"__truncsfhf2", "__extendhfsf2"}
    files = list_files(bundle.path)
    assert "cmake/exports.map" not in files
    assert "include/ds_cnn/module.modulemap" in files
    assert manifest.runtime.text_bytes
    assert manifest.runtime.text_bytes < 32 * 1024
    with pytest.raises((ToolchainError, ConfigError), match=r"cannot run programs|no loader program"):
        bundle.verify()


def test_params_are_in_the_library(packed: Pack) -> None:
    bundle = packed("macos-arm64", "mlp", "embed")
    fat = lief.MachO.parse(str(bundle.path / "lib" / "libmlp.dylib"))
    assert fat is not None
    constants = next(s for s in fat.at(0).sections if (s.segment_name, s.name) == ("__TEXT", "__const"))  # type: ignore[union-attr]
    image = (bundle.path / "params" / "mlp.params").read_bytes()
    start = bytes(constants.content).index(image)
    assert (constants.virtual_address + start) % 64 == 0


@pytest.mark.parametrize("device", ["macos-arm64", pytest.param("ios-arm64", marks=pytest.mark.slow)])
def test_two_packs_give_the_same_bytes(device: str, packed: Pack, tmp_path: Path) -> None:
    one = packed(device).path
    other = tmp_path / "elsewhere and longer"
    edgepack.pack(save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), device, other)
    assert list_files(one) == list_files(other)
    assert [
        name for name in list_files(one) if (one / name).read_bytes() != (other / name).read_bytes()
    ] == []


def test_the_header_is_a_module(packed: Pack, tmp_path: Path) -> None:
    """By clang's own modules, which Swift's importer is made of; the headers of two models in one folder."""
    include = tmp_path / "include"
    for network in ("ds_cnn", "mlp"):
        params = "embed" if network == "mlp" else "file"
        shutil.copytree(packed("macos-arm64", network, params).path / "include", include, dirs_exist_ok=True)
    (tmp_path / "app.m").write_text(
        "@import ds_cnn;\n@import mlp;\n"
        'ep_status use(ep_model *model) { return ds_cnn_open("p", model) + mlp_open(0, model); }\n'
        "#ifdef DS_CNN_INPUTS\nint inputs = DS_CNN_INPUTS;\n#else\n#error macros\n#endif\n"
    )
    flags = ["-fmodules", f"-fmodules-cache-path={tmp_path / 'cache'}", "-Wall", "-Werror", "-fsyntax-only"]
    run(["clang", *flags, "-I", include, tmp_path / "app.m"], cwd=tmp_path)


@pytest.mark.parametrize("static", [False, True])
def test_a_program_is_linked_as_the_readme_says(static: bool, packed: Pack, tmp_path: Path) -> None:
    bundle = packed("macos-arm64", "mlp", "embed")
    readme = (bundle.path / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    cc (app\.c .* -lmlp .*)$", readme, re.MULTILINE)
    for name in ("include", "lib"):
        shutil.copytree(bundle.path / name, tmp_path / name)
    if static:
        (tmp_path / "lib" / "libmlp.dylib").unlink()
    (tmp_path / "app.c").write_text(
        "#include <mlp.h>\nint main(void) { ep_model m; return mlp_open(NULL, &m); }\n", encoding="utf-8"
    )
    toolchain = resolve(load_device("macos-arm64"))
    parts = [part.replace('"$PWD/lib"', "@executable_path/lib") for part in command.split()]
    toolchain._run([*toolchain.driver(), *toolchain.link_mode, *parts], "linking", cwd=tmp_path)
    fat = lief.MachO.parse(str(tmp_path / "app"))
    assert fat is not None
    needed = {str(library.name) for library in fat.at(0).libraries}  # type: ignore[union-attr]
    assert ("@rpath/libmlp.dylib" in needed) != static


# Xcode, by a stand-in for xcrun


SDKS = {"macos-arm64": "macosx", "ios-arm64": "iphoneos", "ios-simulator-arm64": "iphonesimulator"}


@pytest.mark.parametrize(("device", "sdk"), SDKS.items())
def test_xcodes_commands(device: str, sdk: str, xcrun: Path, tmp_path: Path) -> None:
    profile = load_device(device)
    toolchain = resolve(profile, "xcode")
    assert toolchain.version() == "Apple clang version 16.0.0 (clang-1600.0.26.6)"
    (tmp_path / "build").mkdir()
    built = trial(toolchain, tmp_path / "build")
    assert set(built) == set(profile.artifacts)
    commands = xcrun.read_text(encoding="utf-8").splitlines()
    assert all(command.startswith(f"ZERO_AR_DATE=1 --sdk {sdk} ") for command in commands)
    target = profile.compilers["xcode"].target
    clang = [command for command in commands if " clang " in command and "--version" not in command]
    assert all(f" clang -target {target} " in command for command in clang)
    (shared,) = [command for command in clang if "-dynamiclib" in command]
    assert "-Wl,-install_name,@rpath/libtrial.so" in shared
    assert "-Wl,-exported_symbols_list," in shared
    (archive,) = [command for command in commands if " ar " in command]
    assert " ar rcs out.a " in archive


def test_a_bundle_is_packed_with_xcode(xcrun: Path, tmp_path: Path) -> None:
    model = save(build("ds_cnn"), tmp_path, "ds_cnn.onnx")
    bundle = edgepack.pack(model, "macos-arm64", tmp_path / "out", toolchain="xcode")
    assert bundle.manifest.toolchain.family == "xcode"
    assert bundle.manifest.toolchain.version.startswith("Apple clang")
    assert xcrun.stat().st_size > 0


def test_without_xcode_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no `xcrun` for macos-arm64") as caught:
        resolve(load_device("macos-arm64"), "xcode").executable()
    assert "xcode-select --install" in caught.value.hint


def test_doctor_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--device", "macos-arm64"])
    text = capsys.readouterr().out
    assert "xcode-select --install" in text


def test_xcode_is_for_apples_systems(tmp_path: Path, xcrun: Path) -> None:
    device = tmp_path / "odd.yaml"
    device.write_text("extends: linux-aarch64\ncompilers: {xcode: {target: arm64-apple-macos11.0}}\n")
    with pytest.raises(ToolchainError, match="xcode builds for macOS and iOS, not for linux"):
        resolve(load_device(str(device)), "xcode").executable()
    assert not xcrun.exists()


def test_the_cpu_and_the_sysroot_of_a_device_reach_clang(tmp_path: Path, xcrun: Path) -> None:
    (tmp_path / "sdk").mkdir()
    for base, flag in (("macos-arm64", "-mcpu=apple-m2"), ("macos-x86_64", "-march=apple-m2")):
        device = tmp_path / f"{base}-mine.yaml"
        device.write_text(
            f"extends: {base}\ncompilers: {{xcode: {{target: t, cpu: apple-m2, sysroot: sdk}}}}\n"
        )
        driver = resolve(load_device(str(device)), "xcode").driver()
        assert driver[-5:] == ["-target", "t", flag, "-isysroot", str(tmp_path / "sdk")]
    assert not xcrun.exists()
