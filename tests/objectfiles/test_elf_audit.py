"""Each check of the audit fails on a file that was built to have exactly that defect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.objectfiles import ar
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.elf.arm_attributes import attributes, hard_float_object
from edgepack.objectfiles.elf.relocatable import hide_symbols
from edgepack.objectfiles.report import AuditKind
from edgepack.toolchains import resolve
from tests.support.c_sources import SOURCES

SYMBOL = "edgepack_model_test"
X86 = load_device("linux-x86_64")


def link(folder: Path, source: str, *flags: str, device: Device = X86, family: str = "gcc") -> Path:
    """A shared library, linked as someone would who knows nothing of the rules."""
    toolchain = resolve(device, family)
    made = folder / "object.o"
    toolchain.compile_c(SOURCES / source, made)
    output = folder / "bad.so"
    toolchain._run([*toolchain.driver(), "-shared", "-o", str(output), str(made), *flags], "linking")
    return output


def refused(
    path: Path, device: Device = X86, kind: AuditKind = "shared", exported: Sequence[str] = (SYMBOL,)
) -> str:
    """All that the audit finds wrong."""
    with pytest.raises(CheckFailedError) as caught:
        audit(path, device, kind=kind, exported=exported)
    assert caught.value.message.startswith(path.name)
    assert "allowed: " in caught.value.message
    return f"{caught.value.message}\n{caught.value.detail}"


def with_audit(device: Device, **changes: Any) -> Device:
    return device.model_copy(update={"audit": device.audit.model_copy(update=changes)})


def test_another_machine(folder: Path) -> None:
    text = refused(link(folder, "two_exports.c"), load_device("raspberrypi4"))
    assert "machine: found X86_64 ELF64; allowed: AARCH64 ELF64" in text


def test_another_word_size(folder: Path) -> None:
    text = refused(link(folder, "two_exports.c"), load_device("raspberrypi2"))
    assert "machine: found X86_64 ELF64; allowed: ARM ELF32" in text


def test_a_library_that_the_device_lacks(folder: Path) -> None:
    device = with_audit(X86, needed=("libc.so.6",))
    text = refused(
        link(folder, "library.c".replace("library", "new_glibc"), "-Wl,--no-as-needed", "-lm"), device
    )
    assert "needed libraries: found libm.so.6; allowed: libc.so.6" in text


def test_a_run_path(folder: Path) -> None:
    text = refused(link(folder, "calls_missing.c", "-Wl,-rpath,/opt/lib"))
    assert "run path: found RUNPATH" in text
    assert "/opt/lib" in text
    text = refused(link(folder, "calls_missing.c", "-Wl,-rpath,/opt/lib,--disable-new-dtags"))
    assert "run path: found RPATH" in text


def test_a_newer_glibc(folder: Path) -> None:
    text = refused(link(folder, "new_glibc.c"))
    assert "glibc version: found GLIBC_2.36; allowed: up to GLIBC_2.28" in text


def test_a_symbol_that_nobody_has(folder: Path) -> None:
    assert "undefined symbols: found not_defined_anywhere" in refused(link(folder, "calls_missing.c"))
    device = with_audit(X86, symbols=("not_defined_*",))
    report = audit(link(folder, "calls_missing.c", "-nostdlib"), device, kind="shared", exported=[SYMBOL])
    assert "not_defined_anywhere" in report.undefined


def test_a_symbol_of_tvm(folder: Path) -> None:
    device = with_audit(X86, symbols=("*",))
    assert "undefined symbols: found TVMBackendParallelLaunch" in refused(link(folder, "calls_tvm.c"), device)


def test_a_symbol_too_many(folder: Path) -> None:
    text = refused(link(folder, "two_exports.c"))
    assert f"exported symbols: found second; allowed: {SYMBOL}" in text


def test_a_symbol_too_few(folder: Path) -> None:
    text = refused(link(folder, "two_exports.c"), exported=[SYMBOL, "second", "third"])
    assert "exported symbols: found no third" in text


def test_a_text_relocation(folder: Path) -> None:
    text = refused(link(folder, "text_relocation.S", "-Wl,-z,notext"))
    assert "text relocations: found" in text


def test_an_executable_stack(folder: Path) -> None:
    text = refused(link(folder, "two_exports.c", "-Wl,-z,execstack"))
    assert "executable stack: found GNU_STACK with X" in text


def test_pages_that_are_too_small(folder: Path) -> None:
    device = X86.model_copy(update={"page_size": 16384})
    text = refused(link(folder, "two_exports.c", "-Wl,-z,max-page-size=4096"), device)
    assert "page alignment: found 4096 bytes; allowed: at least 16384 bytes" in text


def test_all_findings_are_told_at_once(folder: Path) -> None:
    text = refused(link(folder, "two_exports.c", "-Wl,-z,execstack", "-Wl,-rpath,/opt"))
    assert {"run path", "exported symbols", "executable stack"} <= {
        line.split(": ")[1] for line in text.splitlines()
    }


@pytest.mark.parametrize("kind", ["shared", "program", "object"])
def test_a_file_that_is_no_elf(kind: AuditKind, folder: Path) -> None:
    path = folder / "text.so"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    assert "format: found b'#!/b'" in refused(path, kind=kind)
    path.write_bytes(b"")
    assert "format" in refused(path, kind=kind)


# Static libraries


def archive(folder: Path, source: str, exported: Sequence[str] | None = None, family: str = "zig") -> Path:
    toolchain = resolve(X86, family)
    toolchain.compile_c(SOURCES / source, folder / "member.o")
    toolchain.archive([folder / "member.o"], folder / "lib.a", exported=exported)
    return folder / "lib.a"


def test_an_archive_with_a_symbol_too_many(folder: Path) -> None:
    text = refused(archive(folder, "two_exports.c"), kind="static")
    assert f"global symbols: found second; allowed: {SYMBOL}" in text


def test_an_archive_without_its_symbol(folder: Path) -> None:
    text = refused(
        archive(folder, "program.c", exported=[]), kind="static", exported=["edgepack_model_other"]
    )
    assert "global symbols: found no edgepack_model_other" in text


def test_an_archive_that_needs_what_nobody_has(folder: Path) -> None:
    assert "undefined symbols: found not_defined_anywhere" in refused(
        archive(folder, "calls_missing.c"), kind="static"
    )
    assert "undefined symbols: found TVMBackend" in refused(archive(folder, "calls_tvm.c"), kind="static")


def test_an_archive_with_cplusplus(folder: Path) -> None:
    text = refused(archive(folder, "defines_cplusplus.c"), kind="static")
    assert "global symbols: found _ZN3tvm7runtimeEv; allowed: no symbol of TVM or C++" in text


def test_an_archive_whose_member_wants_an_executable_stack(folder: Path) -> None:
    text = refused(archive(folder, "executable_stack.S", family="gcc"), kind="static")
    assert "executable stack of member.o" in text


def test_an_archive_for_another_machine(folder: Path) -> None:
    text = refused(archive(folder, "two_exports.c", [SYMBOL]), load_device("raspberrypi2"), kind="static")
    assert "machine of member.o: found X86_64 ELF64; allowed: ARM ELF32" in text


def test_broken_archives(folder: Path) -> None:
    good = archive(folder, "two_exports.c", [SYMBOL]).read_bytes()
    broken = folder / "broken.a"
    broken.write_bytes(good[: len(good) - 100])
    with pytest.raises(CheckFailedError, match="ends within its member"):
        ar.members(broken)
    broken.write_bytes(good[:56] + b"x" * 10 + good[66:])
    with pytest.raises(CheckFailedError, match="broken archive header"):
        ar.members(broken)
    broken.write_bytes(b"!<thin>\n" + good[8:])
    with pytest.raises(CheckFailedError, match="not a static library"):
        ar.members(broken)


def test_archives_with_long_names(folder: Path) -> None:
    toolchain = resolve(X86, "gcc")
    name = "a name that is longer than the sixteen letters of the header.o"
    toolchain.compile_c(SOURCES / "two_exports.c", folder / name)
    toolchain.archive([folder / name], folder / "lib.a")
    assert [member for member, _ in ar.members(folder / "lib.a")] == [name]
    content = b"content!"
    bsd = b"#1/12".ljust(16) + b"0".ljust(32) + str(12 + len(content)).encode().ljust(10) + b"`\n"
    (folder / "bsd.a").write_bytes(ar.MAGIC + bsd + b"bsd long.o\0\0" + content)
    assert ar.members(folder / "bsd.a") == [("bsd long.o", content)]


# Float ABI of 32-bit ARM


def test_a_soft_float_object_is_refused(folder: Path) -> None:
    """LLVM makes one of a triple with three parts, and linkers take it."""
    device = load_device("raspberrypi2")
    toolchain = resolve(device)
    made = folder / "soft.o"
    toolchain.compile_c(SOURCES / "two_exports.c", made, flags=["-mfloat-abi=softfp"])
    text = refused(made, device, kind="object")
    assert "float ABI: found soft; allowed: hard" in text
    toolchain.compile_c(SOURCES / "two_exports.c", made)
    assert audit(made, device, kind="object").float_abi == "hard"


def test_a_soft_float_library_is_refused(folder: Path) -> None:
    device = load_device("raspberrypi2")
    path = link(folder, "two_exports.c", device=device, family="gcc")
    data = bytearray(path.read_bytes())
    flags = int.from_bytes(data[36:40], "little")
    assert flags & 0x400
    data[36:40] = (flags & ~0x400).to_bytes(4, "little")
    path.write_bytes(data)
    assert "float ABI: found soft; allowed: hard" in refused(path, device)


@pytest.mark.parametrize(
    "section",
    [b"", b"B", b"A", b"A\x05\0\0\0", b"A\xff\xff\xff\xffaeabi\0\x01\x10\0\0\0\x1c", b"A\0\0\0\0aeabi\0"],
)
def test_attributes_that_are_cut_short(section: bytes) -> None:
    assert not hard_float_object(section)


def test_attributes_of_all_kinds() -> None:
    body = (
        b"\x05cortex-a7\0"
        + b"\x06\x0a"
        + b"\x20\x01gnu\0"
        + b"\x1c\x01"
        + b"\x43\x32\x2e\x30\x39\0"
        + b"\x44\x03"
    )
    inner = b"\x01" + (5 + len(body)).to_bytes(4, "little") + body
    data = b"aeabi\0" + inner
    section = b"A" + (4 + len(data)).to_bytes(4, "little") + data
    assert attributes(section) == {5: "cortex-a7", 6: 10, 32: "gnu", 28: 1, 67: "2.09", 68: 3}


# Symbols


@pytest.mark.parametrize("name", ["linux-x86_64", "raspberrypi2"])
def test_hiding_leaves_all_else_as_it_is(name: str, folder: Path) -> None:
    device = load_device(name)
    toolchain = resolve(device)
    made = folder / "two.o"
    toolchain.compile_c(SOURCES / "two_exports.c", made)
    before = made.read_bytes()
    hide_symbols(made, [SYMBOL, "second"])
    assert made.read_bytes() == before
    hide_symbols(made, [SYMBOL])
    after = made.read_bytes()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    assert audit(made, device, kind="object").exported == (SYMBOL,)


def test_hiding_in_what_is_no_object(folder: Path) -> None:
    path = folder / "x.o"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(ToolchainError, match="not a little-endian ELF object"):
        hide_symbols(path, [])
