"""The stack that one run of a model needs, read from the machine code of a linked image: Thumb or RISC-V.

Each function's frame is the sum of what its instructions take from SP; its callees are the targets of its
branches. The stack of a run is the deepest chain of calls below the function that runs the model without a
session, which calls nothing through a pointer. What interrupts need comes on top.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import InternalError
from edgepack.objectfiles.elf import stack_riscv, stack_thumb
from edgepack.objectfiles.elf.machine_function import MachineFunction

if TYPE_CHECKING:
    import lief

__all__ = ["METHOD", "stack_bytes"]

#: What the number is, for reports.
METHOD = "deepest chain of calls in the machine code"

#: What the name of the function that runs a model begins with (:func:`edgepack.render.names.direct_symbol`).
_ROOT = "edgepack_run_"


def stack_bytes(image: Path) -> int:
    """Bytes of stack below the caller of the function that runs the model.

    Raises:
        InternalError: the image has no such function, or more than one, or its calls go in a circle.
    """
    import lief

    binary = lief.ELF.parse(image.read_bytes())
    if binary is None:
        raise InternalError(f"{image.name} is no ELF image, so its stack is not known.")
    functions, names = _functions(binary)
    roots = {address for name, address in names.items() if name.startswith(_ROOT)}
    if len(roots) != 1:
        raise InternalError(f"{image.name} has {len(roots)} functions {_ROOT}..., so its stack is not known.")
    reader = stack_riscv if str(binary.header.machine_type).endswith("RISCV") else stack_thumb
    for function in functions.values():
        reader.read(function, binary)
    return _deepest(functions, roots.pop(), ())


def _deepest(functions: dict[int, MachineFunction], start: int, path: tuple[int, ...]) -> int:
    """Bytes of the deepest chain of calls from the function at ``start``; ``path`` is what called it."""
    if start in path:
        raise InternalError("The calls of a run go in a circle, so its stack is not known.")
    function = functions.get(start)
    if function is None:
        return 0
    return function.frame + max(
        (_deepest(functions, callee, (*path, start)) for callee in function.calls), default=0
    )


def _functions(binary: lief.ELF.Binary) -> tuple[dict[int, MachineFunction], dict[str, int]]:
    """The functions by address, and their addresses by name; aliases share an address."""
    found: dict[int, MachineFunction] = {}
    names: dict[str, int] = {}
    for symbol in binary.symtab_symbols:
        if str(symbol.type).endswith("FUNC") and symbol.size and symbol.shndx:
            start = int(symbol.value) & ~1
            found[start] = MachineFunction(start, start + int(symbol.size))
            names[str(symbol.name)] = start
    return found, names
