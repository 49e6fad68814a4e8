"""TorchScript modules (``torch.jit.script``, ``torch.jit.trace``) as modules that ``torch.export`` takes.

PyTorch's exporter refuses them. Here the interpreter runs the script on what the exporter traces with, with
the parameters and buffers of a module of Python in the place of the script's own: so state that it writes to
is seen, and LSTMs and control flow by sizes are traced, which ``torch._export.converter.TS2EPConverter`` does
not know.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.errors import ConfigError, EdgepackError, ModelError
from edgepack.programs.quantised import define_operators
from edgepack.programs.torchscript_archive import check_script, refused_script
from edgepack.programs.torchscript_graph import check_graphs
from edgepack.programs.torchscript_operators import QUANTISED, others_of
from edgepack.programs.torchscript_types import Refused

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

__all__ = ["as_module", "example_of_script", "is_script", "load_script"]


def is_script(module: Any) -> bool:
    """Whether a module is TorchScript's."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


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


def as_module(script: torch.jit.ScriptModule) -> torch.nn.Module:
    """A module of Python around a copy of a script: parameters, buffers and arguments keep their names."""
    import torch

    own = copy.deepcopy(script)

    class Traced(torch.nn.Module):  # type: ignore[misc]
        """Runs the script with this module's parameters and buffers."""

        def __init__(self) -> None:
            super().__init__()
            self.places: list[tuple[Any, str, torch.nn.Module]] = []
            for path, value in (*own.named_parameters(), *own.named_buffers()):
                *folders, last = path.split(".")
                owner: Any = own
                mine: torch.nn.Module = self
                for part in folders:
                    owner = getattr(owner, part)
                    if part not in mine._modules:
                        mine.add_module(part, torch.nn.Module())
                    mine = mine.get_submodule(part)
                mine.register_buffer(last, value.detach())
                self.places.append((owner._c, last, mine))

        def forward(self, *arguments: Any, **keywords: Any) -> Any:
            for owner, name, mine in self.places:
                owner.setattr(name, getattr(mine, name))
            return own(*arguments, **keywords)

    named = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=one.default_value if one.has_default_value() else inspect.Parameter.empty,
        )
        for one in _arguments(script)
    ]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    Traced.forward.__signature__ = inspect.Signature([itself, *named])  # type: ignore[attr-defined]
    Traced.__name__ = str(getattr(script, "original_name", "") or "TorchScript")
    return Traced()


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
    for one in _arguments(script):
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


def _arguments(script: torch.jit.ScriptModule) -> list[Any]:
    """The arguments of ``forward``, with name, type and default."""
    return list(script.forward.schema.arguments)[1:]
