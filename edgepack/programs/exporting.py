"""Makes exported programs of modules, and files of programs: what ``edgepack.pack(module)`` does first."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.errors import ConfigError, ModelError
from edgepack.programs.examples import check_example, refuse_other_devices
from edgepack.programs.flat import flattened
from edgepack.programs.quantised import of_plain_tensors
from edgepack.programs.torchscript import as_module, is_script
from edgepack.registry import object_kind

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["EXTRA", "PROGRAM", "exported", "exported_program"]

#: The extra file in a ``.pt2`` with the names of a flat program's tensors, JSON.
EXTRA = "edgepack.json"

_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')

_RAISED = re.compile(r"(?:torch\.jit\.)?[A-Z]\w*(?:Error|Exception): ")


def exported(
    name: str | None, model: Any, example_inputs: Any, dynamic_shapes: Any
) -> tuple[str | None, Any]:
    """The name and the exported program of a module; of another model both as they are.

    Args:
        name: what the user calls it; None: a module is called by its class.

    Raises:
        ConfigError: an example is missing, or given for what is no module.
    """
    if object_kind(model) == "torch.Module":
        program = exported_program(model, example_inputs, dynamic_shapes)
        return name or getattr(model, "original_name", "") or type(model).__name__, program
    if example_inputs is not None or dynamic_shapes is not None:
        raise ConfigError(
            "example_inputs and dynamic_shapes are for a torch.nn.Module, or a file of TorchScript (.pt).",
            hint="An exported program has its own.",
        )
    return name, model


def exported_program(module: Any, example_inputs: Any, dynamic_shapes: Any = None) -> ExportedProgram:
    """``torch.export.export`` of a module.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode.
        example_inputs: a tuple of its positional arguments, a dict of its keywords, or its only tensor.
        dynamic_shapes: as for ``torch.export.export``; None: all sizes are the example's.

    Raises:
        ConfigError: the example does not fit the module.
        ModelError: it cannot be exported: the line of Python that decides on data is named; or it is
            TorchScript that raises.
    """
    import torch
    from torch.utils import _pytree as pytree

    if example_inputs is None:
        raise ConfigError(
            f"A module ({type(module).__name__}) is exported with an example of its inputs, and none was "
            "given.",
            hint="example_inputs=(x,): a tuple of positional arguments, or a dict of keywords.",
        )
    check_example(example_inputs)
    refuse_other_devices("module", (*module.parameters(), *module.buffers()))
    refuse_other_devices("example", pytree.tree_leaves(example_inputs))
    keywords = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    alone = isinstance(example_inputs, torch.Tensor)
    arguments = () if keywords else ((example_inputs,) if alone else tuple(example_inputs))
    called = getattr(module, "original_name", "") or type(module).__name__
    script = is_script(module)
    module = as_module(module) if script else module
    _run_once(module, arguments, keywords, called if script else "")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = of_plain_tensors(module)
            program = torch.export.export(module, arguments, keywords, dynamic_shapes=dynamic_shapes)
        # Dim.DYNAMIC leaves marks on the tensors, with which a file of them has more in it than tensors.
        program.example_inputs = pytree.tree_map_only(
            torch.Tensor, torch.Tensor.detach, program.example_inputs
        )
        return program
    except Exception as error:  # PyTorch's own, of many classes
        places = _LINE.findall(str(error))
        at = f" (at {places[-1][0]}:{places[-1][1]}, in {places[-1][2]})" if places else ""
        raise ModelError(
            f"{called} cannot be exported: {_line(error)}{at}",
            hint="torch.export.export(module, example) says more. Control flow that depends on data becomes "
            "torch.where or torch.cond, or stays outside of the module.",
            detail=str(error).strip()[:4000],
        ) from error


def _run_once(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], script: str) -> None:
    """Raises ConfigError where a module does not take its example; ModelError where it is TorchScript.

    Args:
        script: what the TorchScript is called; "" for a module of Python's.
    """
    import torch

    try:
        with torch.no_grad():  # on copies of its buffers, which a run may write to
            buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
            torch.func.functional_call(module, buffers, arguments, keywords)
    except Exception as error:  # whatever the module raises
        if script:
            raise ModelError(
                f"{script} cannot be run with the example inputs: {_line(error)}",
                hint="Give inputs of the shapes and types that it takes; where these are, it is damaged.",
            ) from error
        raise ConfigError(
            f"The module does not take the example inputs: {_line(error)}",
            hint="example_inputs=(x,): a tuple of positional arguments, or a dict of keywords.",
        ) from error


class _Program:
    """``torch.export.ExportedProgram`` as a model (:class:`edgepack.pipeline.model_objects.ModelObject`)."""

    suffix = ".pt2"

    def name(self, model: Any) -> str:
        del model
        return ""

    def write(self, model: Any, path: Path) -> None:
        import torch

        flat = flattened(model, "The program")
        said = json.dumps({"inputs": flat.inputs, "outputs": flat.outputs, "nested": flat.nested})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(flat.program, path, extra_files={EXTRA: said})


PROGRAM = _Program()


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and "TorchScript interpreter" in lines[0]:  # whose trace comes first
        lines = [line for line in lines if _RAISED.match(line)] or lines
    return f"{lines[0].rstrip('.')}." if lines else f"{type(error).__name__}."
