"""Sizes of what is in built files: code, sections, what the runtime adds to a model's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgepack.errors import InternalError
from edgepack.objectfiles.wasm import sections

__all__ = ["kernels_bytes", "runtime_text_bytes", "section_bytes", "text_bytes"]


def text_bytes(path: Path) -> int | None:
    """Bytes of code in an ELF, Mach-O, PE, COFF or WebAssembly file: its executable sections; None for
    another format."""
    import lief

    data = path.read_bytes()
    if data[: len(sections.MAGIC)] == sections.MAGIC:
        return sections.code_bytes(data)
    binary = lief.parse(data)
    if isinstance(binary, lief.ELF.Binary):
        flag = lief.ELF.Section.FLAGS.EXECINSTR
        return sum(int(section.size) for section in binary.sections if flag in section.flags_list)
    if isinstance(binary, lief.MachO.Binary):
        return sum(int(section.size) for section in binary.sections if section.fullname == b"__text")
    if isinstance(binary, lief.PE.Binary):
        code = lief.PE.Section.CHARACTERISTICS.CNT_CODE
        return sum(
            int(section.virtual_size) for section in binary.sections if section.has_characteristic(code)
        )
    if isinstance(binary, lief.COFF.Binary):
        code = lief.PE.Section.CHARACTERISTICS.CNT_CODE
        return sum(int(s.sizeof_raw_data) for s in binary.sections if s.has_characteristic(code))
    return None


def section_bytes(path: Path) -> dict[str, int]:
    """Bytes of an ELF file's sections by name, those of one name together.

    Raises InternalError for a file of another format.
    """
    import lief

    binary = lief.ELF.parse(path.read_bytes())
    if binary is None:
        raise InternalError(f"{path.name} is no ELF file, so its sections are not known.")
    sizes: dict[str, int] = {}
    for section in binary.sections:
        sizes[str(section.name)] = sizes.get(str(section.name), 0) + int(section.size)
    return sizes


def kernels_bytes(path: Path) -> int:
    """Bytes of code in the object of a microcontroller's kernels."""
    return section_bytes(path).get(".text", 0)


def runtime_text_bytes(library: Path, kernels: Sequence[Path]) -> int | None:
    """Bytes of machine code of a library without that of the kernels' objects; None where it cannot be told.

    The linker may have dropped what nobody calls of the kernels too, so this is a floor of what is theirs,
    and never negative.
    """
    whole, *parts = (text_bytes(path) for path in (library, *kernels))
    known = [part for part in parts if part is not None]
    return None if whole is None or len(known) < len(parts) else max(0, whole - sum(known))
