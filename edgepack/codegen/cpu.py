"""Machine code for the CPU: TIR functions of plain C signature to one object file, with LLVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from edgepack.target import CpuTarget

__all__ = ["compile_object", "llvm_target"]


def llvm_target(target: CpuTarget) -> Any:
    """TVM's target for this CPU."""
    spec: dict[str, Any] = {"kind": "llvm", "mtriple": target.triple}
    if target.cpu:
        spec["mcpu"] = target.cpu
    if target.features:
        spec["mattr"] = list(target.features)
    if target.abi:
        spec["mabi"] = target.abi
    return tvm.target.Target(spec)


def compile_object(functions: Mapping[str, Any], target: CpuTarget, output: Path) -> None:
    """Writes an object file that defines each function under its key as C symbol.

    Args:
        functions: C symbol to TIR function whose parameters are pointers and int32, returning int32.
        output: ``.o`` file.
    """
    tvm_target = llvm_target(target)
    module = IRModule({name: f.with_attr("global_symbol", name) for name, f in sorted(functions.items())})
    module = tirx.transform.BindTarget(tvm_target)(module)
    with tvm_target:
        built = tvm.get_global_func("target.build.llvm")(module, tvm_target)
    built.write_to_file(str(output))
