"""Each check of the audit for macOS and iOS fails on a file that has exactly that defect; an object that was
edited still links."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lief
import pytest

from edgepack.commands.doctor import trial
from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.macho import relocatable
from edgepack.objectfiles.report import AuditKind
from edgepack.toolchains import resolve
from tests.objectfiles.test_elf_audit import refused, with_audit
from tests.support.c_sources import SOURCES

MACS = ("macos-arm64", "macos-x86_64")
DEVICE = load_device("macos-arm64")
PHONE = load_device("ios-arm64")
SYMBOL = "edgepack_model_test"
TRIAL = ("edgepack_trial",)

#: In a file's header; the flags of loader.h.
FLAGS, ALLOW_STACK_EXECUTION, PIE = 24, 0x20000, 0x200000

Built = Callable[[str], dict[AuditKind, Path]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What edgepack builds for a device; not to be changed."""
    made: dict[str, dict[AuditKind, Path]] = {}

    def build(name: str) -> dict[AuditKind, Path]:
        if name not in made:
            made[name] = trial(resolve(load_device(name)), tmp_path_factory.mktemp(name))
        return made[name]

    return build


def compiled(source: str, folder: Path, device: Device = DEVICE, *flags: str) -> Path:
    output = folder / "member.o"
    resolve(device).compile_c(SOURCES / source, output, flags=flags)
    return output


def linked(folder: Path, source: str, *flags: str, device: Device = DEVICE) -> Path:
    """As someone would link who knows nothing of the rules."""
    toolchain = resolve(device)
    output = folder / "libbad.dylib"
    options = ["-dynamiclib", "-O2", "-o", str(output), *flags]
    toolchain._run([*toolchain.driver(), *options, str(compiled(source, folder, device))], "linking")
    return output


def changed(path: Path, folder: Path, change: Callable[[Any], object]) -> Path:
    """A copy that lief changed."""
    fat = lief.MachO.parse(str(path))
    assert fat is not None
    binary = fat.at(0)
    assert binary is not None
    change(binary)
    output = folder / path.name
    binary.write(str(output))
    return output


def archived(folder: Path, member: Path, device: Device = DEVICE) -> Path:
    """Without what edgepack does to the members."""
    output = folder / "lib.a"
    toolchain = resolve(device)
    toolchain._run([*toolchain.archiver(), "rcsD", str(output), str(member)], "archiving")
    return output


@pytest.mark.parametrize("name", [*MACS, "ios-arm64"])
def test_what_edgepack_builds_passes(name: str, built: Built) -> None:
    files, device = built(name), load_device(name)
    shared = audit(files["shared"], device, kind="shared", exported=TRIAL)
    assert shared.exported == TRIAL
    assert shared.needed == ("/usr/lib/libSystem.B.dylib",)
    assert shared.page_alignment >= device.page_size
    static = audit(files["static"], device, kind="static", exported=TRIAL)
    assert static.members == ("trial_library.o",)
    assert ("program" in files) == (device.os == "macos")
    if "program" in files:
        assert audit(files["program"], device, kind="program").exported == ()


def test_another_machine(built: Built) -> None:
    text = refused(built("macos-x86_64")["shared"], DEVICE, exported=TRIAL)
    assert "machine: found X86_64; allowed: ARM64" in text
    text = refused(built("macos-x86_64")["static"], DEVICE, kind="static", exported=TRIAL)
    assert "machine of trial_library.o: found X86_64; allowed: ARM64" in text


def test_another_system_and_a_newer_one(built: Built) -> None:
    text = refused(built("ios-arm64")["shared"], DEVICE, exported=TRIAL)
    assert "platform: found IOS 14.0.0; allowed: MACOS 11.0 or older" in text
    older = DEVICE.model_copy(
        update={"llvm": DEVICE.llvm.model_copy(update={"triple": "arm64-apple-macosx10.15"})}
    )
    text = refused(built("macos-arm64")["shared"], older, exported=TRIAL)
    assert "platform: found MACOS 11.0.0; allowed: MACOS 10.15 or older" in text
    text = refused(built("macos-arm64")["static"], PHONE, kind="static", exported=TRIAL)
    assert "platform of trial_library.o: found MACOS 11.0.0; allowed: IOS 14.0 or older" in text


def test_a_file_that_does_not_say_its_system(built: Built, tmp_path: Path) -> None:
    data = bytearray(built("macos-arm64")["shared"].read_bytes())
    at = data.index(struct.pack("<I", 0x32), 32)  # LC_BUILD_VERSION, which becomes LC_NOTE
    struct.pack_into("<I", data, at, 0x31)
    (tmp_path / "libtrial.so").write_bytes(data)
    assert "platform: found none; allowed: MACOS 11.0" in refused(tmp_path / "libtrial.so", DEVICE)


def test_libraries(built: Built, tmp_path: Path) -> None:
    path = built("macos-arm64")["shared"]
    text = refused(path, with_audit(DEVICE, needed=("/usr/lib/libc.dylib",)))
    assert "needed libraries: found /usr/lib/libSystem.B.dylib; allowed: /usr/lib/libc.dylib" in text
    twice = changed(path, tmp_path, lambda binary: binary.add_library("/usr/lib/libSystem.B.dylib"))
    assert "needed libraries: found /usr/lib/libSystem.B.dylib twice" in refused(twice, DEVICE)


def test_install_name_and_run_path(tmp_path: Path) -> None:
    text = refused(linked(tmp_path, "two_exports.c", "-Wl,-rpath,/opt/lib"), DEVICE)
    assert "run path: found /opt/lib; allowed: none" in text
    text = refused(linked(tmp_path, "two_exports.c", "-Wl,-install_name,/opt/libbad.dylib"), DEVICE)
    assert "install name: found /opt/libbad.dylib; allowed: @rpath/libbad.dylib" in text


def test_symbols_of_a_library(tmp_path: Path) -> None:
    text = refused(linked(tmp_path, "two_exports.c"), DEVICE)
    assert f"exported symbols: found second; allowed: {SYMBOL}" in text
    text = refused(linked(tmp_path, "calls_missing.c", "-Wl,-undefined,dynamic_lookup"), DEVICE)
    assert "undefined symbols: found not_defined_anywhere" in text
    text = refused(linked(tmp_path, "calls_tvm.c", "-Wl,-undefined,dynamic_lookup"), DEVICE)
    assert "undefined symbols: found TVMBackendParallelLaunch" in text


def test_writable_code(built: Built, tmp_path: Path) -> None:
    def make_writable(binary: Any) -> None:
        binary.get_segment("__TEXT").init_protection = 7

    bad = changed(built("macos-arm64")["program"], tmp_path, make_writable)
    assert "writable code: found __TEXT" in refused(bad, DEVICE, kind="program", exported=())


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (PIE | ALLOW_STACK_EXECUTION, "executable stack: found ALLOW_STACK_EXECUTION"),
        (0, "position independence: found no PIE"),
    ],
)
def test_flags_of_a_program(flags: int, expected: str, built: Built, tmp_path: Path) -> None:
    data = bytearray(built("macos-arm64")["program"].read_bytes())
    (old,) = struct.unpack_from("<I", data, FLAGS)
    struct.pack_into("<I", data, FLAGS, old & ~PIE | flags)
    (tmp_path / "trial").write_bytes(data)
    assert expected in refused(tmp_path / "trial", DEVICE, kind="program", exported=())


def test_page_alignment(built: Built) -> None:
    """A library for Intel's pages does not load where they are larger."""
    text = refused(built("macos-x86_64")["program"], DEVICE, kind="program", exported=())
    assert "page alignment: found a segment at 0x" in text
    assert "multiples of 16384 bytes" in text


def test_code_signature(built: Built, tmp_path: Path) -> None:
    bad = changed(built("macos-arm64")["program"], tmp_path, lambda binary: binary.remove_signature())
    text = refused(bad, DEVICE, kind="program", exported=())
    assert "code signature: found none; allowed: at least an ad-hoc signature" in text


@pytest.mark.parametrize("kind", ["shared", "object", "program"])
def test_a_file_that_is_something_else(kind: AuditKind, tmp_path: Path) -> None:
    (tmp_path / "text.dylib").write_text("#!/bin/sh\n", encoding="utf-8")
    assert "format: found b'#!/b'" in refused(tmp_path / "text.dylib", DEVICE, kind=kind)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("calls_missing.c", "undefined symbols: found not_defined_anywhere"),
        ("calls_tvm.c", "undefined symbols: found TVMBackendParallelLaunch"),
        ("defines_cplusplus.c", "global symbols: found _ZN3tvm7runtimeEv"),
        ("two_exports.c", f"global symbols: found second; allowed: {SYMBOL}"),
    ],
)
def test_symbols_of_a_static_library(source: str, expected: str, tmp_path: Path) -> None:
    assert expected in refused(archived(tmp_path, compiled(source, tmp_path)), DEVICE, kind="static")


@pytest.mark.parametrize("name", [*MACS, "ios-arm64"])
def test_what_is_not_asked_for_is_hidden(name: str, tmp_path: Path) -> None:
    device = load_device(name)
    member = compiled("two_exports.c", tmp_path, device)
    toolchain = resolve(device)
    toolchain.archive([member], tmp_path / "lib.a", exported=[SYMBOL])
    audit(tmp_path / "lib.a", device, kind="static", exported=[SYMBOL])
    toolchain.link_shared([member], tmp_path / "lib.dylib", exported=[SYMBOL], soname="lib.dylib")
    audit(tmp_path / "lib.dylib", device, kind="shared", exported=[SYMBOL])


def sections_of(path: Path) -> dict[tuple[str, str], bytes]:
    """(segment, section) -> content."""
    fat = lief.MachO.parse(str(path))
    assert fat is not None
    binary = fat.at(0)
    assert binary is not None
    return {(str(s.segment_name), str(s.name)): bytes(s.content) for s in binary.sections}


@pytest.mark.parametrize("device", MACS)
def test_debug_information_goes_and_the_code_stays(device: str, tmp_path: Path) -> None:
    toolchain = resolve(load_device(device))
    source, flags = SOURCES / "library.c", [f"-I{SOURCES / 'include'}", "-DSCALE=2.0f", "-O2", "-g"]
    toolchain._run([*toolchain.driver(), *flags, "-c", str(source), "-o", str(tmp_path / "a.o")], "compiling")
    toolchain.strip_debug(tmp_path / "a.o", tmp_path / "b.o")
    before, after = sections_of(tmp_path / "a.o"), sections_of(tmp_path / "b.o")
    assert any(segment == "__DWARF" for segment, _ in before)
    assert after.keys() == {key for key in before if key[0] != "__DWARF"}
    assert after["__TEXT", "__text"] == before["__TEXT", "__text"]
    code = []
    for name in ("a", "b"):
        output = tmp_path / name / "lib.dylib"
        output.parent.mkdir()
        toolchain.link_shared([tmp_path / f"{name}.o"], output, exported=[SYMBOL], soname="lib.dylib")
        code.append(sections_of(output)["__TEXT", "__text"])
    assert code[0] == code[1]


@pytest.mark.parametrize("name", MACS)
def test_a_hidden_weak_function_is_not_replaced_by_the_systems(name: str, tmp_path: Path) -> None:
    """TVM brings conversions of float16 with each object; libSystem has functions of these names too."""
    device = load_device(name)
    source = tmp_path / "half.c"
    source.write_text(
        '__attribute__((weak, visibility("default"))) float __extendhfsf2(unsigned short h) { return h; }\n'
        f'__attribute__((visibility("default"))) float {SYMBOL}(unsigned short h);\n'
        f"float {SYMBOL}(unsigned short h) {{ return __extendhfsf2(h) + 1; }}\n",
        encoding="utf-8",
    )
    toolchain = resolve(device)
    toolchain.compile_c(source, tmp_path / "half.o", flags=["-fno-builtin"])
    toolchain.link_shared(
        [tmp_path / "half.o"], tmp_path / "lib.dylib", exported=[SYMBOL], soname="lib.dylib"
    )
    report = audit(tmp_path / "lib.dylib", device, kind="shared", exported=[SYMBOL])
    assert "__extendhfsf2" not in report.undefined


@pytest.mark.parametrize("data", [b"", b"\xcf\xfa\xed\xfe" * 8, b"\x7fELF" * 10])
def test_broken_objects_are_refused_in_a_sentence(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"x\.o: is not a 64-bit Mach-O object"):
        relocatable.strip_debug(data, "x.o")
    (tmp_path / "x.o").write_bytes(data)
    with pytest.raises(ToolchainError, match=r"x\.o: is not a 64-bit Mach-O object"):
        relocatable.hide_symbols(tmp_path / "x.o", [])


def test_an_object_that_ends_within_its_commands(tmp_path: Path) -> None:
    data = compiled("two_exports.c", tmp_path).read_bytes()
    with pytest.raises(ToolchainError, match="it ends within its load commands"):
        relocatable.strip_debug(data[:60], "x.o")


def test_a_library_for_ios_needs_only_what_the_stub_names(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="undefined symbol: _not_defined_anywhere"):
        try:
            resolve(PHONE).link_shared(
                [compiled("calls_missing.c", tmp_path, PHONE)],
                tmp_path / "lib.dylib",
                exported=[SYMBOL],
                soname="lib.dylib",
            )
        except ToolchainError as error:
            raise ToolchainError(error.detail) from error


def test_an_allow_list_of_symbols_is_the_devices(tmp_path: Path) -> None:
    library = archived(tmp_path, compiled("calls_missing.c", tmp_path))
    with pytest.raises(CheckFailedError):
        audit(library, DEVICE, kind="static", exported=[SYMBOL])
    audit(library, with_audit(DEVICE, symbols=("not_defined_*",)), kind="static", exported=[SYMBOL])
