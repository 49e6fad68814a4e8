"""How much machine code the runtime adds to a model's kernels."""

from __future__ import annotations

from pathlib import Path

__all__ = ["runtime_text_bytes", "text_bytes"]


def text_bytes(path: Path) -> int | None:
    """Bytes of machine code in an ELF, Mach-O or PE file: its executable sections; None for another
    format."""
    import lief

    binary = lief.parse(path.read_bytes())
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
    return None


def runtime_text_bytes(library: Path, kernels: Path) -> int | None:
    """Machine code of the library without that of the kernels' object; None where it cannot be told.

    The linker may have dropped what nobody calls of the kernels too, so this is a floor of what is theirs,
    and never negative.
    """
    whole, part = text_bytes(library), text_bytes(kernels)
    if whole is None or part is None:
        return None
    return max(0, whole - part)
