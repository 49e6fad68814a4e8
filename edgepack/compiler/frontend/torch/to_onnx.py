"""Makes an ONNX model of a program, by PyTorch's exporter, and what its eager module computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.torch.state import without_state
from edgepack.errors import ModelError
from edgepack.programs.flat import FlatProgram, example_of, unlifted
from edgepack.programs.names import plain, unique
from edgepack.programs.onnx_program import onnx_program, quiet
from edgepack.programs.structure import renamed

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

__all__ = ["Exported", "export"]

#: Files above this size have their weights beside them (protocol buffers end at 2 GB).
_LARGE = 1 << 30


@dataclass
class Exported:
    """A program as an ONNX file, and as what computes its reference.

    Attributes:
        path: the ONNX file.
        program: takes and returns what the file does, nested.
        inputs: of the file, by name: the example that the program was exported with.
        outputs: names of the outputs.
        states: pairs of an input and an output: what a run returns is given to the next.
        spec: how the inputs are nested.
        nested: as of :class:`edgepack.programs.flat.FlatProgram`, with the names of the file's.
    """

    path: Path
    program: ExportedProgram
    inputs: dict[str, NDArray[Any]]
    outputs: list[str]
    states: list[tuple[str, str]] = field(default_factory=list)
    spec: Any = None
    nested: dict[str, Any] | None = None

    def sizes(self) -> dict[str, int]:
        """The sizes of the example inputs, by the names of the file's open ones."""
        import onnx

        found: dict[str, int] = {}
        for value in onnx.load(str(self.path), load_external_data=False).graph.input:
            for size, actual in zip(
                value.type.tensor_type.shape.dim, self.inputs[value.name].shape, strict=True
            ):
                if size.dim_param:
                    found.setdefault(size.dim_param, actual)
        return found

    def eager(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """What PyTorch computes of inputs, eagerly, on the CPU."""
        import torch
        from torch.utils import _pytree as pytree

        leaves = [_tensor(array) for array in inputs.values()]
        arguments, keywords = pytree.tree_unflatten(leaves, self.spec)
        with torch.inference_mode():
            results = unlifted(self.program)(*arguments, **keywords)
        found = pytree.tree_leaves(results)
        return {name: _array(one) for name, one in zip(self.outputs, found, strict=True)}


def export(flat: FlatProgram, folder: Path, where: str) -> Exported:
    """Write ``model.onnx`` into a folder.

    Args:
        where: of the program, for messages.

    Raises:
        ModelError: an operator has no equivalent (all are listed), the program changes what it must not, was
            exported in training mode, or has inputs that are no tensors.
    """
    from torch.utils import _pytree as pytree

    names, results = list(flat.inputs), list(flat.outputs)
    stateless = without_state(flat.program, where)
    changed = stateless.program
    given = example_of(changed, where)
    leaves, spec = pytree.tree_flatten(given)
    _refuse_other_inputs(leaves, where)
    states = unique([plain(name) for name in stateless.states], taken=names)
    if stateless.states:
        names = [*states, *names]
        results = [*results, *(f"{name}_next" for name in states)]
    results = unique(results, taken=names)
    path = folder / "model.onnx"
    _write(changed, path, names, results, where)
    arrays = {name: _array(leaf) for name, leaf in zip(names, leaves, strict=True)}
    pairs = list(zip(states, results[len(results) - len(states) :], strict=True))
    nested = flat.nested
    if nested is not None:
        called = dict(zip(flat.outputs, results, strict=False))
        nested = {**nested, "results": renamed(nested["results"], called)}
    return Exported(path, changed, arrays, results, pairs, spec, nested)


def _write(program: ExportedProgram, path: Path, names: list[str], results: list[str], where: str) -> None:
    made = onnx_program(program, names, results, where)
    nbytes = sum(value.numel() * value.element_size() for value in program.state_dict.values())
    with quiet():
        made.save(str(path), external_data=nbytes > _LARGE)
    _name_sizes(path)


def _name_sizes(path: Path) -> None:
    """Open sizes, which the exporter calls ``s53``, are named after where they occur first: ``x_2``,
    dimension 2 of input x."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    named: dict[str, str] = {}
    for value in graph.input:
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if size.dim_param:
                named.setdefault(size.dim_param, f"{value.name}_{axis}")
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in named:
                size.dim_param = named[size.dim_param]
    if named:
        onnx.save(model, str(path))


def _refuse_other_inputs(leaves: list[Any], where: str) -> None:
    import torch

    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            raise ModelError(
                f"{where} takes {leaf!r:.60} as argument {number}, which is no tensor.",
                hint="Make it a constant of a module around this one, or leave it out.",
            )
        if leaf.device.type != "cpu":
            raise ModelError(
                f"{where} was exported on {leaf.device}, and edgepack reads programs of the CPU.",
                hint="Export module.cpu() with inputs on the CPU; for which GPU it is packed, --device says.",
            )


def _array(value: torch.Tensor) -> NDArray[Any]:
    """A tensor as an array; bfloat16, which NumPy has not, is that of ml_dtypes."""
    import torch

    tensor = value.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        tensor = tensor.view(torch.uint16)
        bits: NDArray[Any] = tensor.numpy().view(ml_dtypes.bfloat16)
        return bits
    array: NDArray[Any] = tensor.numpy()
    return array


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """What :func:`_array` gives as a tensor with memory of its own."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())
