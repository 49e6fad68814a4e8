"""Each check of the audit for Windows fails on a file that has exactly that defect; an object that was edited
still links.

What zig links for Windows is behind the marker: it builds MinGW's C library first, which takes a minute.
"""

from __future__ import annotations

import struct
from pathlib import Path

import lief
import pytest

from edgepack.commands.doctor import trial
from edgepack.compiler.backends.llvm import compile_object
from edgepack.config.device import Device, load_device
from edgepack.errors import ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.coff import relocatable
from edgepack.objectfiles.report import AuditKind
from edgepack.toolchains import resolve
from tests.objectfiles.test_elf_audit import refused, with_audit
from tests.support.c_sources import SOURCES

DEVICE = load_device("windows-x86_64")
SYMBOL = "edgepack_model_test"

#: Offsets in an optional header of 64 bits, which begins 24 bytes after "PE".
SECTION_ALIGNMENT, CHARACTERISTICS = 32, 70


def test_what_weak_symbols_stand_for_is_known_in_its_object_only(tmp_path: Path) -> None:
    """TVM's conversions of float16 are weak, and in every object: two would be defined twice."""
    file = tmp_path / "kernels.o"
    compile_object({}, DEVICE.cpu_target(), file)
    before = relocatable.symbols(file.read_bytes(), file.name)
    defaults = {symbol.name for symbol in before if symbol.name.startswith(".weak.")}
    assert len(defaults) == 2
    relocatable.hide_weak_defaults(file)
    after = relocatable.symbols(file.read_bytes(), file.name)
    assert after == [symbol for symbol in before if symbol.name not in defaults]
    assert {"__extendhfsf2", "__truncsfhf2"} <= {symbol.name for symbol in after if symbol.defined}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[AuditKind, Path]:
    """A library, a static library and a program; not to be changed. The first link takes a minute or more,
    where zig builds MinGW's C library."""
    return trial(resolve(DEVICE), tmp_path_factory.mktemp("windows"))


def patched(path: Path, folder: Path, offset: int, form: str, value: int, *, stamp: bool = False) -> Path:
    """A copy with a number in its optional header (or, with ``stamp``, its file header) replaced."""
    data = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<I", data, 0x3C)
    struct.pack_into(form, data, start + (8 if stamp else 24 + offset), value)
    output = folder / path.name
    output.write_bytes(data)
    return output


def compiled(source: str, folder: Path, *flags: str) -> Path:
    output = folder / "member.o"
    resolve(DEVICE).compile_c(SOURCES / source, output, flags=flags)
    return output


def linked(folder: Path, source: str, *flags: str) -> Path:
    """As someone would link who knows nothing of the rules."""
    toolchain = resolve(DEVICE)
    output = folder / "bad.dll"
    options = [
        "-shared",
        "-O2",
        "-o",
        str(output),
        f"-Wl,--out-implib,{folder / 'bad.a'}",
        *flags,
    ]
    toolchain._run([*toolchain.driver(), *options, str(compiled(source, folder))], "linking")
    return output


def archived(folder: Path, member: Path) -> Path:
    """Without what edgepack does to the members."""
    output = folder / "lib.a"
    toolchain = resolve(DEVICE)
    toolchain._run([*toolchain.archiver(), "rcsD", str(output), str(member)], "archiving")
    return output


@pytest.mark.slow
def test_what_edgepack_builds_passes(built: dict[AuditKind, Path]) -> None:
    report = audit(built["shared"], DEVICE, kind="shared", exported=["edgepack_trial"])
    assert report.format == "PE32+"
    assert report.exported == ("edgepack_trial",)
    assert "KERNEL32.dll" in report.needed
    assert report.page_alignment == 4096
    assert audit(built["program"], DEVICE, kind="program").exported == ()
    names = {path.name for path in built["shared"].parent.iterdir()}
    assert "liblibtrial.dll.a" in names, names


@pytest.mark.slow
def test_another_machine(built: dict[AuditKind, Path]) -> None:
    other = load_device("windows-aarch64")
    text = refused(built["shared"], other, exported=["edgepack_trial"])
    assert "machine: found AMD64; allowed: ARM64" in text
    text = refused(built["static"], other, kind="static", exported=["edgepack_trial"])
    assert "machine of trial_library.o: found AMD64; allowed: ARM64" in text


@pytest.mark.slow
def test_libraries_that_not_every_windows_has(built: dict[AuditKind, Path]) -> None:
    text = refused(built["program"], with_audit(DEVICE, needed=("api-*",)), kind="program", exported=())
    assert "needed libraries: found KERNEL32.dll; allowed: api-*" in text


@pytest.mark.slow
def test_functions_of_tvm(built: dict[AuditKind, Path], tmp_path: Path) -> None:
    bad = tmp_path / "trial.exe"
    bad.write_bytes(built["program"].read_bytes().replace(b"\0malloc\0", b"\0TVMrun\0"))
    assert "undefined symbols: found TVMrun" in refused(bad, DEVICE, kind="program", exported=())


@pytest.mark.slow
def test_exports(built: dict[AuditKind, Path], tmp_path: Path) -> None:
    text = refused(built["shared"], DEVICE)
    assert f"exported symbols: found edgepack_trial; allowed: {SYMBOL}" in text
    assert f"exported symbols: found no {SYMBOL}" in text
    # MinGW exports all where nothing says what.
    text = refused(linked(tmp_path, "two_exports.c", "-s"), DEVICE)
    assert "second; allowed" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bit"), [("HIGH_ENTROPY_VA", 0x20), ("DYNAMIC_BASE", 0x40), ("NX_COMPAT", 0x100)]
)
def test_protection(name: str, bit: int, built: dict[AuditKind, Path], tmp_path: Path) -> None:
    bad = patched(built["shared"], tmp_path, CHARACTERISTICS, "<H", 0x160 & ~bit)
    assert f"protection: found no {name}; allowed" in refused(bad, DEVICE)


@pytest.mark.slow
def test_writable_code(built: dict[AuditKind, Path], tmp_path: Path) -> None:
    binary = lief.PE.parse(str(built["program"]))
    assert binary is not None
    section = binary.get_section(".text")
    assert section is not None
    section.characteristics |= 0x80000000
    binary.write(str(tmp_path / "trial.exe"))
    text = refused(tmp_path / "trial.exe", DEVICE, kind="program", exported=())
    assert "writable code: found .text" in text


@pytest.mark.slow
def test_section_alignment(built: dict[AuditKind, Path], tmp_path: Path) -> None:
    device = DEVICE.model_copy(update={"page_size": 16384})
    text = refused(built["shared"], device)
    assert "section alignment: found 4096 bytes; allowed: a multiple of 16384" in text


@pytest.mark.slow
def test_debug_directory_and_time_of_linking(built: dict[AuditKind, Path], tmp_path: Path) -> None:
    binary = lief.PE.parse(str(built["shared"]))
    assert binary is not None
    where = binary.rva_to_offset(binary.data_directory(lief.PE.DataDirectory.TYPES.DEBUG_DIR).rva)
    data = bytearray(built["shared"].read_bytes())
    misc = 4  # IMAGE_DEBUG_TYPE_MISC, in the place of REPRO
    struct.pack_into("<I", data, where + 12, misc)
    bad = tmp_path / "bad.dll"
    bad.write_bytes(data)
    text = refused(bad, DEVICE)
    assert "debug directory: found MISC" in text
    assert "time stamp: found 0x" in text  # without REPRO it may be a time


@pytest.mark.parametrize("kind", ["shared", "object", "program"])
def test_a_file_that_is_something_else(kind: AuditKind, tmp_path: Path) -> None:
    (tmp_path / "text.dll").write_text("#!/bin/sh\n", encoding="utf-8")
    assert "format: found b'#!/b'" in refused(tmp_path / "text.dll", DEVICE, kind=kind)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("calls_missing.c", "undefined symbols: found not_defined_anywhere"),
        ("calls_tvm.c", "undefined symbols: found TVMBackendParallelLaunch"),
        ("defines_cplusplus.c", "global symbols: found _ZN3tvm7runtimeEv"),
    ],
)
def test_symbols_of_a_static_library(source: str, expected: str, tmp_path: Path) -> None:
    assert expected in refused(archived(tmp_path, compiled(source, tmp_path)), DEVICE, kind="static")


def test_a_static_library_without_its_descriptor(tmp_path: Path) -> None:
    library = archived(tmp_path, compiled("two_exports.c", tmp_path))
    text = refused(library, DEVICE, kind="static", exported=["another"])
    assert "global symbols: found no another" in text


def exporting(folder: Path, *flags: str) -> Path:
    source = folder / "exporting.c"
    source.write_text(f"__declspec(dllexport) int {SYMBOL}(void) {{ return 1; }}\n", encoding="utf-8")
    resolve(DEVICE).compile_c(source, folder / "member.o", flags=flags)
    return folder / "member.o"


def test_static_libraries_export_nothing_and_hold_no_debug_information(tmp_path: Path) -> None:
    member = exporting(tmp_path, "-g")
    text = refused(archived(tmp_path, member), DEVICE, kind="static")
    assert f"export directives of member.o: found {SYMBOL}; allowed: none" in text
    assert "debug sections of member.o: found .debug" in text
    resolve(DEVICE).archive([member], tmp_path / "lib.a", exported=[SYMBOL])
    audit(tmp_path / "lib.a", DEVICE, kind="static", exported=[SYMBOL])


@pytest.mark.slow
def test_an_object_without_debug_information_still_links(tmp_path: Path) -> None:
    toolchain = resolve(DEVICE)
    flags = ["-g", "-DSCALE=2.0f"]
    toolchain.compile_c(SOURCES / "library.c", tmp_path / "a.o", include=[SOURCES / "include"], flags=flags)
    stripped = tmp_path / "b.o"
    toolchain.strip_debug(tmp_path / "a.o", stripped)
    assert relocatable.debug_sections((tmp_path / "a.o").read_bytes(), "a.o")
    assert not relocatable.debug_sections(stripped.read_bytes(), "b.o")
    assert stripped.stat().st_size < (tmp_path / "a.o").stat().st_size
    one, two = tmp_path / "one" / "x.dll", tmp_path / "two" / "x.dll"
    for object_file, output in ((tmp_path / "a.o", one), (stripped, two)):
        output.parent.mkdir()
        toolchain.link_shared([object_file], output, exported=[SYMBOL], soname="x.dll")
    code = []
    for path in (one, two):
        binary = lief.PE.parse(str(path))
        section = binary.get_section(".text") if binary is not None else None
        assert section is not None
        code.append(bytes(section.content))
    assert code[0] == code[1]


def test_names_of_all_lengths_are_read(tmp_path: Path) -> None:
    """The first long name of an object stands where lief does not look."""
    source = tmp_path / "names.c"
    source.write_text(
        "int the_first_long_name(void) { return 1; }\nint eight_ch(void);\n"
        "int eight_ch(void) { return 2; }\nint other(void);\nint x(void);\n"
        "int x(void) { return other(); }\n",
        encoding="utf-8",
    )
    resolve(DEVICE).compile_c(source, tmp_path / "names.o")
    found = dict(relocatable.symbols((tmp_path / "names.o").read_bytes(), "names.o"))
    assert found.items() >= {"the_first_long_name": True, "eight_ch": True, "x": True, "other": False}.items()


@pytest.mark.parametrize("data", [b"", b"\x64\x86", b"\x7fELF" * 10, b"\x64\x86\x05\x00" + bytes(30)])
def test_broken_objects_are_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(ToolchainError, match=r"x\.o: is not a COFF object"):
        relocatable.strip_debug(data, "x.o")


@pytest.mark.slow
def test_the_import_library_knows_that_the_symbol_is_data(
    tmp_path: Path, built: dict[AuditKind, Path]
) -> None:
    """Else a program would take a jump for the descriptor."""
    library = (built["shared"].parent / "liblibtrial.dll.a").read_bytes()
    at = library.index(b"edgepack_trial\0libtrial.so\0")
    (kind,) = struct.unpack_from("<H", library, at - 2)  # Import Type: 1 is data
    assert kind & 3 == 1


def test_devices_are_known() -> None:
    windows = [load_device(name) for name in ("windows-x86_64", "windows-x86_64-v3", "windows-aarch64")]
    assert {device.object_format for device in windows} == {"coff"}
    assert all(isinstance(device, Device) and device.runner.name == "wine" for device in windows)
