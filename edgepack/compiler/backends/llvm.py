"""Machine code for the CPU: TIR functions of plain C signature to one object file, with LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from edgepack.compiler.backends.defined import defined
from edgepack.compiler.tvm_target import llvm_target
from edgepack.objectfiles.elf.relocatable import code_bytes, forget_definitions
from edgepack.plan.target import CpuTarget
from edgepack.system.temporary import temporary_folder

__all__ = ["MachineCode", "compile_alone", "compile_assembly", "compile_object", "llvm_version"]

#: TVM puts these into each object, weak, with a half in an integer register; LLVM's calls for RISC-V have it
#: in a floating point register, as the compilers' own libraries do.
HALF_CONVERSIONS = ("__extendhfsf2", "__truncsfhf2")

#: ABIs of RISC-V without floating point registers: there a half is in an integer register in any case.
SOFT_FLOAT = ("ilp32", "lp64")


@dataclass(frozen=True)
class MachineCode:
    """What was written to an object file, as text for those who want to read it.

    Attributes:
        module: TVM's of LLVM.
    """

    module: Any

    def ir(self) -> str:
        """LLVM's IR after its passes."""
        return str(self.module.inspect_source("ll"))

    def assembly(self) -> str:
        """The assembly of all functions."""
        return str(self.module.inspect_source("asm"))

    def code_bytes(self) -> int:
        """Bytes of the code of all functions."""
        with temporary_folder() as folder:
            output = Path(folder) / "kernels.o"
            self.module.write_to_file(str(output))
            return code_bytes(output.read_bytes())


def compile_object(
    functions: Mapping[str, Any], target: CpuTarget, output: Path, *, opt_level: int | None = None
) -> MachineCode:
    """Writes an object file that defines each function under its key as C symbol.

    Args:
        functions: C symbol to TIR function whose parameters are pointers and int32, returning int32.
        output: ``.o`` file.
        opt_level: LLVM's; by default 3, and 2 where flash is short: code is up to a fifth shorter, and as
            fast. A kernel's schedule is not LLVM's work: 0 takes a third of the time and gives the same
            results, slowly.

    Returns:
        the same code, as text.
    """
    module = _compile(functions, target, opt_level)
    module.write_to_file(str(output))
    if target.arch.startswith("riscv") and target.abi not in SOFT_FLOAT:
        forget_definitions(output, HALF_CONVERSIONS)
    return MachineCode(module)


def compile_alone(function: Any, target: CpuTarget) -> MachineCode:
    """The machine code of one function, which is written nowhere."""
    return MachineCode(_compile({"kernel": function}, target))


def llvm_version() -> str:
    """The major version of the LLVM in TVM, which says no more: ``22``."""
    return str(tvm.get_global_func("target.llvm_version_major")())


def compile_assembly(functions: Mapping[str, Any], target: CpuTarget) -> str:
    """The same machine code as text, for those who want to read it."""
    return MachineCode(_compile(functions, target)).assembly()


def _compile(functions: Mapping[str, Any], target: CpuTarget, opt_level: int | None = None) -> Any:
    usual = 2 if target.freestanding else 3
    tvm_target = llvm_target(target, usual if opt_level is None else opt_level)
    module = IRModule({name: f.with_attr("global_symbol", name) for name, f in sorted(functions.items())})
    module = tirx.transform.BindTarget(tvm_target)(module)
    # LLVM is told of bfloat16 as of 16 bits: of its own type it selects no instructions on most CPUs.
    module = tirx.transform.BF16StorageLegalize()(tirx.transform.BF16ComputeLegalize()(module))
    for name, function in module.functions_items():
        module.update_func(name, defined(function, saturating=not target.arch.startswith("x86")))
    with tvm_target:
        return tvm.get_global_func("target.build.llvm")(module, tvm_target)
