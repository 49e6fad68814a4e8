"""Makes an ONNX model of a program, by PyTorch's exporter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.torch.named import Named, named
from edgepack.programs.flat import FlatProgram
from edgepack.programs.onnx_program import onnx_program, quiet

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Exported", "export"]

#: Files above this size have their weights beside them (protocol buffers end at 2 GB).
_LARGE = 1 << 30


@dataclass
class Exported(Named):
    """A program as an ONNX file too, of the same inputs and outputs.

    Attributes:
        path: the ONNX file.
    """

    path: Path = Path()

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


def export(flat: FlatProgram, folder: Path, where: str) -> Exported:
    """Write ``model.onnx`` into a folder.

    Args:
        where: of the program, for messages.

    Raises:
        ModelError: an operator has no equivalent (all are listed), or as :func:`named`.
    """
    one, path = named(flat, where), folder / "model.onnx"
    _write(one.program, path, list(one.inputs), one.outputs, where)
    return Exported(**vars(one), path=path)


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
