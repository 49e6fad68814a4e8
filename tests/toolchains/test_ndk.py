"""The Android NDK: where it is found, what it is asked, and what comes out.

No NDK is here: :mod:`workbench.stand_ins.android` makes a folder that looks like one, with zig's clang in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lief
import pytest

from edgepack.cli.main import main
from edgepack.commands.doctor import trial
from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ConfigError, ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.system.paths import CACHE_ENV, cache_dir
from edgepack.toolchains import ndk as ndk_module
from edgepack.toolchains import resolve
from edgepack.toolchains.ndk import find_ndk
from workbench.stand_ins.android import REVISION, make_ndk

DEVICES = {
    "android-arm64": ("AARCH64", 16384, "/system/bin/linker64"),
    "android-armv7": ("ARM", 4096, "/system/bin/linker"),
    "android-x86_64": ("X86_64", 16384, "/system/bin/linker64"),
}


@pytest.fixture(scope="module")
def ndk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ndk(tmp_path_factory.mktemp("an NDK") / "android-ndk-r27c")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever this machine has of Android's."""
    for name in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "TVM_NDK_CC", "ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(CACHE_ENV, str(cache_dir()))  # zig's libraries are in the home folder
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")


def empty_ndk(root: Path, *hosts: str) -> Path:
    for host in hosts or ("linux-x86_64",):
        (root / "toolchains" / "llvm" / "prebuilt" / host).mkdir(parents=True)
    return root


@pytest.mark.parametrize("name", DEVICES)
def test_what_it_builds_is_for_android(name: str, ndk: Path, tmp_path: Path) -> None:
    machine, page, loader = DEVICES[name]
    device = load_device(name)
    built = trial(resolve(device, sdk=ndk), tmp_path)
    shared = lief.ELF.parse(str(built["shared"]))
    program = lief.ELF.parse(str(built["program"]))
    assert isinstance(shared, lief.ELF.Binary) and isinstance(program, lief.ELF.Binary)
    for binary in (shared, program):
        assert binary.header.machine_type.name == machine
        assert set(binary.libraries) <= {"libc.so", "libm.so"} and "libc.so" in binary.libraries
        loads = [s for s in binary.segments if s.type == lief.ELF.Segment.TYPE.LOAD]
        assert all(s.alignment == page for s in loads)
    assert shared.get(lief.ELF.DynamicEntry.TAG.SONAME).name == "libtrial.so"  # type: ignore[union-attr]
    assert program.interpreter == loader
    assert program.header.file_type == lief.ELF.Header.FILE_TYPE.DYN


def test_the_command_names_level_and_pages_and_no_cplusplus(
    ndk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = resolve(load_device("android-arm64"), sdk=ndk)
    commands: list[list[str]] = []
    monkeypatch.setattr(toolchain, "_run", lambda command, what, cwd=None: commands.append(list(command)))
    toolchain.link_shared([tmp_path / "a.o"], tmp_path / "liba.so", exported=["a"], soname="liba.so")
    (command,) = commands
    assert command[0] == str(ndk / "toolchains/llvm/prebuilt/linux-x86_64/bin/clang")
    assert command[1] == "--target=aarch64-linux-android24"
    assert {"-Wl,-soname,liba.so", "-Wl,-z,max-page-size=16384", "-lm"} <= set(command)
    assert not [word for word in command if "c++" in word or "stdc" in word]


def test_tvms_own_export_gets_large_pages_too(ndk: Path, tmp_path: Path) -> None:
    toolchain = resolve(load_device("android-arm64"), sdk=ndk)
    (tmp_path / "a.c").write_text("int TVMFunction(void);\nint a(void) { return TVMFunction(); }\n")
    toolchain.compile_c(tmp_path / "a.c", tmp_path / "a.o", flags=["-fvisibility=default"])
    toolchain.cross_compiler()(str(tmp_path / "liba.so"), [str(tmp_path / "a.o")])
    library = lief.ELF.parse(str(tmp_path / "liba.so"))
    assert isinstance(library, lief.ELF.Binary)
    loads = [s for s in library.segments if s.type == lief.ELF.Segment.TYPE.LOAD]
    assert {s.alignment for s in loads} == {16384}


def test_the_version_is_the_ndks_and_clangs(ndk: Path) -> None:
    version = resolve(load_device("android-arm64"), sdk=ndk).version()
    assert version.startswith(f"Android NDK {REVISION}, clang ")
    assert version.split()[-1][0].isdigit()


def test_the_command_line_wins_over_the_file_and_that_over_the_environment(
    ndk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANDROID_NDK_HOME", str(empty_ndk(tmp_path / "environment")))
    of_project = empty_ndk(tmp_path / "project" / "ndk")
    (tmp_path / "project" / "ours.yaml").write_text("extends: ndk\nsdk: ./ndk\n")
    device, ours = load_device("android-arm64"), str(tmp_path / "project" / "ours.yaml")
    roots: list[Any] = [resolve(device, ours, ndk), resolve(device, ours), resolve(device)]
    assert [t.root for t in roots] == [ndk, of_project, tmp_path / "environment"]


def test_the_places_of_the_environment_in_their_order(tmp_path: Path) -> None:
    home, root, cc = (empty_ndk(tmp_path / name) for name in ("home-ndk", "root-ndk", "cc-ndk"))
    sdk = tmp_path / "sdk"
    for version in ("9.0.1", "26.3.11579264", "27.2.12479018"):
        empty_ndk(sdk / "ndk" / version)
    (sdk / "ndk" / "28.0.0-unfinished").mkdir()
    compiler = cc / "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android24-clang++"
    environment = {
        "ANDROID_NDK_HOME": str(home),
        "ANDROID_NDK_ROOT": str(root),
        "TVM_NDK_CC": str(compiler),
        "ANDROID_HOME": str(sdk),
    }
    found = []
    while environment:
        found.append(find_ndk("", environment))
        environment.pop(next(iter(environment)))
    assert found == [home, root, cc, sdk / "ndk" / "27.2.12479018"]
    assert find_ndk(str(sdk), {}) == sdk / "ndk" / "27.2.12479018"
    assert find_ndk("", {}) is None
    default = empty_ndk(Path.home() / "Android" / "Sdk" / "ndk" / "27.0.1")
    assert find_ndk("", {}) == default


@pytest.mark.parametrize("variable", ["ANDROID_NDK_HOME", "TVM_NDK_CC"])
def test_a_place_that_holds_no_ndk_is_named(variable: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=rf"{variable} is .*old.*, which is no Android NDK since r19"):
        find_ndk("", {variable: str(tmp_path / "old"), "ANDROID_HOME": str(tmp_path)})
    with pytest.raises(ToolchainError, match=r"the SDK's folder is .*, which is no Android NDK"):
        resolve(load_device("android-arm64"), sdk=tmp_path).version()


def test_without_any_the_places_and_the_way_to_get_one_are_named() -> None:
    with pytest.raises(ToolchainError, match="no Android NDK was found") as caught:
        resolve(load_device("android-arm64")).version()
    for place in ("--sdk", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "TVM_NDK_CC", "ANDROID_HOME"):
        assert place in caught.value.detail
    assert "sdkmanager 'ndk;" in caught.value.hint


@pytest.mark.parametrize(
    ("platform", "host"),
    [("linux", "linux-x86_64"), ("darwin", "darwin-x86_64"), ("win32", "windows-x86_64")],
)
def test_the_compiler_is_this_machines(
    platform: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = empty_ndk(tmp_path / "ndk", "linux-x86_64", "darwin-x86_64", "windows-x86_64")
    monkeypatch.setattr(ndk_module.sys, "platform", platform)
    toolchain: Any = resolve(load_device("android-arm64"), sdk=root)
    assert toolchain.prebuilt.name == host


def test_an_ndk_for_another_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndk_module.sys, "platform", "linux")
    device = load_device("android-arm64")
    built_elsewhere: Any = resolve(device, sdk=empty_ndk(tmp_path / "arm", "linux-aarch64"))
    assert built_elsewhere.prebuilt.name == "linux-aarch64"
    with pytest.raises(
        ToolchainError, match=r"is for another system: .* has darwin-x86_64, not linux-x86_64"
    ):
        resolve(device, sdk=empty_ndk(tmp_path / "mac", "darwin-x86_64")).version()


def with_target(target: str) -> Device:
    device = load_device("android-arm64")
    compilers = {"ndk": device.compilers["ndk"].model_copy(update={"target": target})}
    return device.model_copy(update={"compilers": compilers})


def test_an_api_level_that_the_ndk_lacks_is_named(ndk: Path) -> None:
    with pytest.raises(
        ToolchainError, match="has no API level 99 for aarch64-linux-android; it has 24 to 24"
    ):
        resolve(with_target("aarch64-linux-android99"), sdk=ndk).version()


def test_a_target_without_a_level_is_a_mistake_in_the_file() -> None:
    with pytest.raises(ConfigError, match="'aarch64-linux-android' is no target of the NDK") as caught:
        resolve(with_target("aarch64-linux-android"))
    assert "aarch64-linux-android24" in caught.value.hint


def test_an_sdk_for_a_toolchain_that_is_in_none_is_a_mistake() -> None:
    with pytest.raises(
        ConfigError, match="toolchain zig is not part of an SDK: --sdk there would do nothing"
    ):
        resolve(load_device("linux-x86_64"), sdk="there")


def refused(path: Path, kind: Any, exported: list[str]) -> str:
    with pytest.raises(CheckFailedError) as caught:
        audit(path, load_device("android-x86_64"), kind=kind, exported=exported)
    return f"{caught.value.message}\n{caught.value.detail}"


def test_what_was_built_for_linux_is_not_for_android(tmp_path: Path) -> None:
    built = trial(resolve(load_device("linux-x86_64")), tmp_path)
    text = refused(built["program"], "program", [])
    assert "needed libraries: found " in text and "libc.so.6" in text
    assert "GLIBC_2." in text and "allowed: none, the device has bionic" in text
    assert "dynamic loader: found /lib64/ld-linux-x86-64.so.2; allowed: /system/bin/linker64" in text
    assert "page alignment" in refused(built["shared"], "shared", ["edgepack_trial"])


def test_the_cplusplus_runtime_is_not_allowed(ndk: Path, tmp_path: Path) -> None:
    toolchain = resolve(load_device("android-x86_64"), sdk=ndk)
    (tmp_path / "a.c").write_text("int a(void) { return 0; }\n")
    toolchain.compile_c(tmp_path / "a.c", tmp_path / "a.o", flags=["-fvisibility=default"])
    driver = toolchain.driver()
    runtime = tmp_path / "libc++_shared.so"
    for output, more in ((runtime, []), (tmp_path / "liba.so", ["-Wl,--no-as-needed", str(runtime)])):
        soname = f"-Wl,-soname,{output.name}"
        toolchain._run(
            [*driver, "-shared", soname, "-o", str(output), str(tmp_path / "a.o"), *more], "linking"
        )
    assert "needed libraries: found libc++_shared.so" in refused(tmp_path / "liba.so", "shared", ["a"])


def test_doctor_finds_builds_and_checks(ndk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--device", "android-armv7", "--sdk", str(ndk), "--quiet"])
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if " ndk *" in line)
    assert row.startswith("ok") and REVISION in row and str(ndk) in row
    assert main(["doctor", "--device", "android-armv7", "--quiet"]) == 4
    out = capsys.readouterr().out
    assert "no Android NDK was found" in out and "--sdk FOLDER" in out
