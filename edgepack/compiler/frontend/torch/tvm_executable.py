"""TVM's own executable of a program: its importer, its default passes, its virtual machine.

Nothing of edgepack's graph, kernels or planner takes part. It is for who runs TVM's runtime on the device;
:mod:`edgepack.torch.tvm_library` links what is left here.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tolerances import TOLERANCES
from edgepack.compiler.frontend.torch.named import Named
from edgepack.compiler.tvm_target import llvm_target
from edgepack.errors import ModelError
from edgepack.plan.target import CpuTarget
from edgepack.plan.tvm_library import DESCRIBED, TvmObjects

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tvm.ir import IRModule

__all__ = ["write_executable"]


def write_executable(
    one: Named, target: CpuTarget, folder: Path, where: str, stage: Callable[[str], None]
) -> None:
    """Compile a program with TVM for a CPU; the objects and :data:`DESCRIBED` are left in ``folder``.

    Args:
        where: of the program, for messages.
        stage: is told what is done.

    Raises:
        ModelError: TVM cannot import or compile it, or imports another program than it is.
    """
    import tvm

    stage("import into TVM")
    module = _imported(one, where)
    stage("compare with the eager module")
    _compare(one, module, where)
    stage("compile with TVM")
    built = _built(module, llvm_target(target), where)
    objects = _Objects(folder)
    built.export_library(str(folder / "library.so"), fcompile=objects)
    described = TvmObjects(
        tuple(objects.names), tuple(one.inputs), tuple(one.outputs), tuple(one.states), tvm.__version__
    )
    (folder / DESCRIBED).write_text(json.dumps(described.to_json()), encoding="utf-8", newline="\n")


class _Objects:
    """What TVM takes for a compiler: it keeps the objects, for another process links them."""

    object_format = "o"
    output_format = "so"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def __call__(self, output: str, objects: list[str], options: Any = None) -> None:
        del output, options
        for path in map(Path, objects):
            shutil.copyfile(path, self.folder / path.name)
            self.names.append(path.name)


def _imported(one: Named, where: str) -> IRModule:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return from_exported_program(one.program)
    except Exception as error:  # TVM's own, of many classes
        raise ModelError(
            f"{where}: TVM's importer does not take this program: {_first_line(error)}",
            hint="edgepack.pack imports it another way, and needs nothing of TVM on the device.",
            detail=str(error).strip()[-4000:],
        ) from error


def _built(module: IRModule, target: Any, where: str) -> Any:
    from tvm import relax

    try:
        return relax.build(module, target)
    except Exception as error:  # TVM's own, of many classes
        raise ModelError(
            f"{where}: TVM cannot compile this program: {_first_line(error)}",
            hint="edgepack.pack compiles it another way, and needs nothing of TVM on the device.",
            detail=str(error).strip()[-4000:],
        ) from error


def _compare(one: Named, module: IRModule, where: str) -> None:
    """Run what TVM imported on this machine, on the example inputs."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(_built(module, "llvm", where), tvm.cpu())
    results = machine["main"](*(tvm.runtime.tensor(array) for array in one.inputs.values()))
    found = [result.numpy() for result in results]
    expected = one.eager(one.inputs)
    if len(found) != len(expected):
        raise ModelError(
            f"{where}: TVM imports another program: it returns {len(found)} tensors, and the module "
            f"{len(expected)}."
        )
    for array, (name, reference) in zip(found, expected.items(), strict=True):
        if wrong := _difference(array, reference):
            raise ModelError(
                f"{where}: TVM imports another program: output {name!r} {wrong} from what the eager module "
                "computes.",
                hint="Report it to TVM (tvm.relax.frontend.torch), or use edgepack.pack.",
            )


def _difference(found: NDArray[Any], reference: NDArray[Any]) -> str:
    """How an output is another than the module's; "" if it is not, but for rounding."""
    import numpy as np

    if (found.dtype, found.shape) != (reference.dtype, reference.shape):
        return f"is {found.dtype} {list(found.shape)}, which differs"
    if reference.dtype.kind in "biu":
        return "differs" if (found != reference).any() else ""
    allowed = TOLERANCES[reference.dtype.name]
    each, one = found.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(one)
    most = float(np.abs(one[finite]).max(initial=0))
    same = (each == one) | (np.isnan(each) & np.isnan(one))
    off = np.where(same, 0, np.abs(each - one))
    limit = max(allowed.floor, allowed.relative * most) + allowed.relative_each * np.abs(one)
    return "" if (same | (off <= limit)).all() else f"differs by {np.nanmax(off):.3g}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return said if said.endswith(".") else f"{said}."
