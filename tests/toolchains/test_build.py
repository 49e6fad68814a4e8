"""What every toolchain builds: it runs, exports one symbol, and is the same bytes wherever it is built."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import lief
import pytest

from edgepack.config.device import Device, load_device
from edgepack.objectfiles import ar
from edgepack.objectfiles.audit import audit
from edgepack.toolchains import resolve
from edgepack.toolchains.base import Toolchain
from tests.support.c_sources import SOURCES

SYMBOL = "edgepack_model_test"
#: glibc of Debian 12, whose cross compilers these tests use.
NEWER_GLIBC = "extends: {base}\naudit: {{glibc: '2.36'}}\n"

DEVICES, FAMILIES = ("linux-x86_64", "raspberrypi4", "raspberrypi2"), ("zig", "gcc", "clang")
#: In `make test` each device and each family: zig for this machine's kind, gcc and clang for others.
USUAL = {*zip(DEVICES, FAMILIES, strict=True), ("raspberrypi2", "gcc"), ("raspberrypi2", "zig")}
CASES = [
    pytest.param(*case, marks=() if case in USUAL else pytest.mark.slow)
    for case in ((device, family) for device in DEVICES for family in FAMILIES)
]


def _device(name: str, folder: Path) -> Device:
    path = folder / f"{name}.yaml"
    path.write_text(NEWER_GLIBC.format(base=name), encoding="utf-8")
    return load_device(path)


def _build(toolchain: Toolchain, folder: Path) -> dict[str, Path]:
    """Copies the sources to a folder and builds all artifacts there."""
    sources = folder / "src"
    shutil.copytree(SOURCES, sources)
    objects = {}
    for name in ("library", "program"):
        objects[name] = folder / f"{name}.o"
        toolchain.compile_c(
            sources / f"{name}.c",
            objects[name],
            include=[sources / "include"],
            defines={"SCALE": "1.0f", "UNUSED": None},
            flags=["-Wall", "-Wextra", "-Werror"],
        )
    built = {"shared": folder / "libtest.so", "static": folder / "libtest.a", "program": folder / "test"}
    toolchain.link_shared([objects["library"]], built["shared"], exported=[SYMBOL], soname="libtest.so")
    toolchain.archive([objects["library"]], built["static"], exported=[SYMBOL])
    toolchain.link_program([objects["program"], objects["library"]], built["program"])
    return built


def _run(device: Device, program: Path) -> str:
    command = [str(program)]
    if device.runner.name == "qemu":
        command = [device.runner.program, "-L", device.runner.sysroot, "-cpu", device.runner.cpu, *command]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(("name", "family"), CASES)
def test_a_toolchain_builds_what_runs_and_passes_the_audit(name: str, family: str, folder: Path) -> None:
    device = _device(name, folder)
    toolchain = resolve(device, family)
    first = _build(toolchain, folder / "one")

    assert _run(device, first["program"]) == "1\n"
    shared = audit(first["shared"], device, kind="shared", exported=[SYMBOL])
    static = audit(first["static"], device, kind="static", exported=[SYMBOL])
    program = audit(first["program"], device, kind="program", exported=[])
    assert shared.exported == static.exported == (SYMBOL,)
    assert program.exported == ()
    assert shared.page_alignment == device.page_size
    assert static.members == ("library.o",)
    assert shared.float_abi == ("hard" if device.arch == "arm" else "")

    second = _build(toolchain, folder / "another place" / "deeper")
    for kind, path in first.items():
        assert path.read_bytes() == second[kind].read_bytes(), f"{kind} depends on the folder"
        assert str(folder).encode() not in path.read_bytes()


def test_a_library_holds_no_debug_information_and_nothing_unused(folder: Path) -> None:
    device = load_device("linux-x86_64")
    toolchain = resolve(device)
    sources = folder / "src"
    shutil.copytree(SOURCES, sources)
    debug = folder / "library.o"
    # As LLVM's objects come from TVM: with debug information.
    include = f"-I{sources / 'include'}"
    command = [
        *toolchain.driver(),
        "-g",
        "-fPIC",
        "-ffunction-sections",
        "-fvisibility=hidden",
        "-DSCALE=1.0f",
    ]
    toolchain._run([*command, include, "-c", str(sources / "library.c"), "-o", str(debug)], "compiling")
    assert b".debug_info" in debug.read_bytes()
    toolchain.archive([debug], folder / "libtest.a")
    toolchain.link_shared([debug], folder / "libtest.so", exported=[SYMBOL], soname="libtest.so")
    ((_, member),) = ar.members(folder / "libtest.a")
    assert b".debug_" not in member
    binary = lief.parse(str(folder / "libtest.so"))
    assert not [
        s.name for s in binary.sections if s.name.startswith((".debug", ".symtab", ".note.gnu.build-id"))
    ]
    assert b"nobody_calls_this" not in (folder / "libtest.so").read_bytes()


def test_members_are_sorted_and_carry_no_time_or_owner(folder: Path) -> None:
    toolchain = resolve(load_device("linux-x86_64"))
    objects = []
    for name in ("zebra", "ant"):
        objects.append(folder / f"{name}.o")
        shutil.copy(SOURCES / "two_exports.c", folder / f"{name}.c")
        toolchain.compile_c(folder / f"{name}.c", objects[-1])
        os.utime(objects[-1], (1_000_000_000, 1_000_000_000))
    output = folder / "lib.a"
    toolchain.archive(objects, output)
    assert [name for name, _ in ar.members(output)] == ["ant.o", "zebra.o"]
    header = output.read_bytes()[8:68]
    assert (header[16:28].strip(), header[28:34].strip(), header[34:40].strip()) == (b"0", b"0", b"0")


def test_only_what_is_exported_stays_visible_in_an_archive(folder: Path) -> None:
    device = load_device("linux-x86_64")
    toolchain = resolve(device)
    toolchain.compile_c(SOURCES / "two_exports.c", folder / "two.o")
    toolchain.archive([folder / "two.o"], folder / "lib.a", exported=[SYMBOL])
    assert audit(folder / "lib.a", device, kind="static", exported=[SYMBOL]).exported == (SYMBOL,)


def test_the_environment_does_not_change_what_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = _device("linux-x86_64", folder)
    first = _build(resolve(device, "gcc"), folder / "one")
    trap = folder / "trap"
    trap.mkdir()
    (trap / "math.h").write_text('#error "the wrong math.h"\n', encoding="utf-8")
    monkeypatch.setenv("CPATH", str(trap))
    monkeypatch.setenv("C_INCLUDE_PATH", str(trap))
    monkeypatch.setenv("CFLAGS", "-g -O0")
    second = _build(resolve(device, "gcc"), folder / "two")
    assert first["shared"].read_bytes() == second["shared"].read_bytes()


def test_zig_writes_its_cache_nowhere_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    toolchain = resolve(load_device("linux-x86_64"))
    toolchain.compile_c(SOURCES / "two_exports.c", Path("out.o"))
    assert [path.name for path in folder.iterdir()] == ["out.o"]
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(folder / "cache"))
    again = resolve(load_device("linux-x86_64"))
    assert again.environment["ZIG_GLOBAL_CACHE_DIR"] == str(folder / "cache" / "zig")
    assert again.environment["ZIG_LOCAL_CACHE_DIR"] == str(folder / "cache" / "zig")


def test_fcompile_is_what_tvm_expects(folder: Path) -> None:
    device = load_device("raspberrypi4")
    fcompile = resolve(device).cross_compiler()
    assert fcompile.output_format == "so"
    assert fcompile.get_target_triple() == "aarch64-unknown-linux-gnu"
    toolchain = resolve(device)
    toolchain.compile_c(SOURCES / "calls_tvm.c", folder / "a.o")
    # TVM's libraries find TVM's functions in the process that loads them.
    fcompile(str(folder / "lib.so"), [str(folder / "a.o")], options=["-Wl,-soname,mine.so"])
    binary = lief.parse(str(folder / "lib.so"))
    assert str(binary.header.machine_type).endswith("AARCH64")
    assert "mine.so" in {entry.name for entry in binary.dynamic_entries if hasattr(entry, "name")}
