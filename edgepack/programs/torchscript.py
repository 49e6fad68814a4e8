"""TorchScript modules (``torch.jit.script``, ``torch.jit.trace``) as modules that ``torch.export`` takes.

PyTorch's exporter refuses them. Here the interpreter runs the script on what the exporter traces with, with
the parameters and buffers of a module of Python in the place of the script's own: so state that it writes to
is seen, and LSTMs and control flow by sizes are traced, which ``torch._export.converter.TS2EPConverter`` does
not know.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["SCRIPT_SUFFIXES", "arguments_of", "as_module", "is_script"]

#: Of files that ``torch.jit.save`` writes, and ``torch.save``, which are refused.
SCRIPT_SUFFIXES = (".pt", ".pth", ".ts", ".torchscript", ".jit")


def is_script(module: Any) -> bool:
    """Whether a module is TorchScript's."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


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
        for one in arguments_of(script)
    ]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    Traced.forward.__signature__ = inspect.Signature([itself, *named])  # type: ignore[attr-defined]
    Traced.__name__ = str(getattr(script, "original_name", "") or "TorchScript")
    return Traced()


def arguments_of(script: torch.jit.ScriptModule) -> list[Any]:
    """The arguments of ``forward``, with name, type and default."""
    return list(script.forward.schema.arguments)[1:]
