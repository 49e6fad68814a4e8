"""Files of TorchScript as modules of PyTorch's, and example inputs for these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.torch.script.archive import check_script, refused_script
from edgepack.compiler.frontend.torch.script.graph import check_graphs
from edgepack.compiler.frontend.torch.script.operators import QUANTISED, others_of
from edgepack.compiler.frontend.torch.script.types import Refused
from edgepack.errors import ConfigError, EdgepackError, ModelError
from edgepack.programs.quantised import define_operators
from edgepack.programs.torchscript import arguments_of

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

__all__ = ["example_of_script", "load_script"]


def load_script(model: Path, folder: Path) -> torch.jit.ScriptModule:
    """The module of a file of ``torch.jit.save``, on the CPU.

    Args:
        folder: where a copy of what was looked at is while PyTorch reads it.

    Raises:
        ModelError: the file is no TorchScript, is damaged, or computes more than arithmetic on tensors.
    """
    import torch

    define_operators([QUANTISED], str(model))
    checked = folder / "checked.pt"
    unit = torch._C.CompilationUnit()
    try:
        check_script(model, checked, others_of(torch._C._jit_get_all_schemas()))
        found = torch._C.import_ir_module(unit, str(checked), torch.device("cpu"), {}, False)
        check_graphs(unit.get_functions())
        return torch.jit._recursive.wrap_cpp_module(found)
    except EdgepackError:
        raise
    except Refused as refused:
        raise refused_script(model, str(refused)) from None
    except Exception as error:  # PyTorch's own, of many classes
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"{model} cannot be read by PyTorch {torch.__version__}: {lines[0].rstrip('.')}.",
            hint="Save it again with the version of PyTorch that is installed here.",
            detail="\n".join(lines[:40]),
        ) from error
    finally:
        checked.unlink(missing_ok=True)


def example_of_script(
    script: torch.jit.ScriptModule,
    arrays: Mapping[str, NDArray[Any]],
    shapes: Mapping[str, Sequence[int]],
    where: str,
) -> dict[str, torch.Tensor]:
    """An argument for each tensor that a script takes, by name; those with a default value are left out.

    Args:
        arrays: recorded inputs, by name.
        shapes: of inputs of float32, by name, where there are no arrays.
        where: of the file, for messages.

    Raises:
        ConfigError: nothing is said of an argument.
        ModelError: an argument is no tensor.
    """
    import torch

    found, missing = {}, []
    for one in arguments_of(script):
        if one.name in arrays:
            found[one.name] = torch.from_numpy(arrays[one.name].copy())
        elif one.name in shapes:
            found[one.name] = torch.rand(tuple(shapes[one.name]), generator=torch.Generator().manual_seed(0))
        elif one.has_default_value():
            continue
        elif str(one.type) != "Tensor":
            raise ModelError(
                f"{where} takes {one.name!r}, which is a {one.type}, and on the command line inputs are "
                "tensors.",
                hint="edgepack.pack(path, example_inputs=...) in Python takes what is nested.",
            )
        else:
            missing.append(one.name)
    if missing:
        raise ConfigError(
            f"{where} is TorchScript, which says nothing of its inputs' sizes and types: "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} open.",
            hint=" ".join(f"--input {name}=FILE.npy" for name in missing)
            + ", or, of float32, "
            + " ".join(f"--shape {name}=1,3,224,224" for name in missing),
        )
    return found
