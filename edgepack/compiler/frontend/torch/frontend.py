"""The functions of the frontend for PyTorch: the ONNX frontend's, behind PyTorch's exporter."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend import onnx as onnx_frontend
from edgepack.compiler.frontend.base import ImportedModel, ImportOptions
from edgepack.compiler.frontend.named_errors import errors_name
from edgepack.compiler.frontend.recorded import RECORDED
from edgepack.compiler.frontend.states import state_warnings
from edgepack.compiler.frontend.torch.archive import exported_script, load_program, script_program
from edgepack.compiler.frontend.torch.eager import record_eager
from edgepack.compiler.frontend.torch.named import named
from edgepack.compiler.frontend.torch.recognise import is_script_file
from edgepack.compiler.frontend.torch.script.archive import check_script
from edgepack.compiler.frontend.torch.to_onnx import Exported, export
from edgepack.compiler.memory import ran_out
from edgepack.errors import EdgepackError, ModelError
from edgepack.plan.layers import InnerTensor
from edgepack.plan.model_summary import ModelSummary
from edgepack.plan.nested import NESTED
from edgepack.programs.exporting import PROGRAM
from edgepack.programs.flat import FlatProgram, flattened
from edgepack.programs.names import plain
from edgepack.programs.torchscript import SCRIPT_SUFFIXES

if TYPE_CHECKING:
    from edgepack.plan.quantisation import QuantisationFigures
    from edgepack.plan.target import CpuTarget

__all__ = [
    "SUFFIXES",
    "executable",
    "export_script",
    "load",
    "model_files",
    "prepare",
    "quantise",
    "record",
    "summarise",
    "tensors_inside",
]

#: Of files that ``torch.export.save`` and ``torch.jit.save`` write.
SUFFIXES = (".pt2", *SCRIPT_SUFFIXES)

#: What the user says of inputs: shapes, and files by name.
_Given = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[tuple[str, Path], ...]]

_EXPORTED = "exported"


def model_files(model: Path) -> tuple[Path, ...]:
    """The file, in which all is. Raises ModelError if it cannot be read."""
    from edgepack.compiler.frontend.torch.archive import check_archive

    (check_script if is_script_file(model) else check_archive)(model)
    return (model,)


def summarise(model: Path) -> ModelSummary:
    """What is in a program, as the ONNX model that it becomes. Raises ModelError if it cannot be read."""
    with tempfile.TemporaryDirectory() as folder, errors_name(model, Path(folder)):
        return onnx_frontend.summarise(_exported(model, Path(folder), ((), ())).path)


def prepare(model: Path, options: ImportOptions, folder: Path) -> tuple[str, ...]:
    """Export the program into ``folder``, and prepare it as an ONNX model. Returns warnings.

    Raises:
        ModelError: it cannot be read, exported or compiled.
        ConfigError: ``options`` do not fit.
    """
    exported = _exported(model, folder / _EXPORTED, _given(options))
    bound, notes = _bound(exported, options)
    with errors_name(model, exported.path):
        notes += onnx_frontend.prepare(exported.path, bound, folder)
    if exported.nested is not None and not (options.inputs or options.outputs):
        (folder / NESTED).write_text(json.dumps(exported.nested), encoding="utf-8")
    return (*notes, *state_warnings("the module writes to {}", "buffer", exported.states))


def record(
    model: Path, options: ImportOptions, folder: Path, *, seed: int, inputs: Mapping[str, Path]
) -> tuple[str, ...]:
    """Record inputs, by default those that the program was exported with, and what PyTorch computes of them,
    eagerly. Returns warnings.

    Raises:
        ConfigError: a given input does not fit.
        ModelError: PyTorch's results are not those of the exported model.
    """
    exported = _exported(model, folder / _EXPORTED, _given(options))
    options, _ = _bound(exported, options)
    given = {**_examples(exported, folder), **inputs}
    with errors_name(model, exported.path):
        warned = onnx_frontend.record(exported.path, options, folder, seed=seed, inputs=given)
    if not (options.inputs or options.outputs or options.const or options.expected or options.batch):
        with _errors_of_pytorch(model):
            record_eager(exported, folder / RECORDED, str(model))
    return warned


def quantise(model: Path, options: ImportOptions, folder: Path, *more: Any) -> QuantisationFigures:
    """As :func:`edgepack.compiler.frontend.onnx.quantise`, of the program's ONNX model."""
    exported = _exported(model, folder / _EXPORTED, _given(options))
    with errors_name(model, exported.path):
        return onnx_frontend.quantise(exported.path, _bound(exported, options)[0], folder, *more)


def tensors_inside(folder: Path) -> list[InnerTensor]:
    """What can be looked at between the kernels of what :func:`prepare` left in ``folder``."""
    return onnx_frontend.tensors_inside(folder)


def load(folder: Path) -> ImportedModel:
    """The Relax module of what :func:`prepare` left in ``folder``; ModelError if TVM cannot import it."""
    return onnx_frontend.load(folder)


def _given(options: ImportOptions) -> _Given:
    shapes = ((name, tuple(int(size) for size in shape)) for name, shape in options.shapes.items())
    return tuple(shapes), tuple(options.examples.items())


def executable(model: Path, target: CpuTarget, folder: Path, stage: Callable[[str], None]) -> None:
    """Compile the program with TVM alone; see :func:`~.tvm_executable.write_executable`."""
    from edgepack.compiler.frontend.torch.tvm_executable import write_executable

    if is_script_file(model):
        raise ModelError(
            f"{model} is a TorchScript file, which TVM's importer does not read.",
            hint="Give the module that it was made of, with example inputs.",
        )
    stage("import")
    with _errors_of_pytorch(model):
        flat = named(_flat(model, folder, ((), ())), str(model))
    write_executable(flat, target, folder, str(model), stage)


def export_script(model: Path, examples: Path, dims: Any, file: Path) -> None:
    """Export a file of TorchScript into a ``.pt2`` file.

    Args:
        examples, dims: as :mod:`edgepack.programs.examples` writes and encodes them.

    Raises:
        ModelError: it cannot be read or exported.
        ConfigError: the examples do not fit.
    """
    with _errors_of_pytorch(model):
        PROGRAM.write(exported_script(model, examples, dims), file)


@lru_cache(maxsize=1)
def _exported(model: Path, folder: Path, given: _Given) -> Exported:
    """The program as ONNX in a folder; once for each job.

    Args:
        given: what TorchScript's example inputs are made of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _errors_of_pytorch(model):
        return export(_flat(model, folder, given), folder, str(model))


@contextmanager
def _errors_of_pytorch(model: Path) -> Iterator[None]:
    """Inside, what PyTorch raises of a file whose parts do not fit each other (of many classes, at any place)
    is a ModelError."""
    try:
        yield
    except EdgepackError:
        raise
    except Exception as error:
        if ran_out(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ModelError(
            f"{model} cannot be exported by PyTorch: {lines[0][:300].rstrip('.')}.",
            hint="Save the program again, or give edgepack.pack the module.",
            detail="".join(traceback.format_exception(error))[-4000:],
        ) from error


def _flat(model: Path, folder: Path, given: _Given) -> FlatProgram:
    """The program, with the names that its exporter gave its tensors. A copy of the file is in ``folder``."""
    said: dict[str, Any] = {}
    if is_script_file(model):
        program = script_program(model, folder, dict(given[0]), dict(given[1]))
    else:
        program, said = load_program(model, folder)
    flat = flattened(program, str(model))
    names = said.get("inputs"), said.get("outputs")
    if all(_are_names(one, ours) for one, ours in zip(names, (flat.inputs, flat.outputs), strict=True)):
        nested = said.get("nested")
        nested = nested if isinstance(nested, dict) else None
        return FlatProgram(flat.program, tuple(said["inputs"]), tuple(said["outputs"]), nested)
    return flat


def _are_names(given: Any, ours: Sequence[str]) -> bool:
    """Whether these can be names of as many tensors: an exporter's word, which may be damaged."""
    if not isinstance(given, list) or len(given) != len(ours) or len(set(map(str, given))) != len(ours):
        return False
    return all(isinstance(name, str) and name == plain(name) for name in given)


def _bound(exported: Exported, options: ImportOptions) -> tuple[ImportOptions, tuple[str, ...]]:
    """Options in which open sizes that the user says nothing of are the example's, and the line that says
    so."""
    inputs = exported.inputs
    open_sizes = {name: size for name, size in exported.sizes().items() if name not in options.dims}
    shaped = {
        f"{name}_{axis}"
        for name in options.shapes
        for axis in range(inputs[name].ndim if name in inputs else 0)
    }
    taken = {name: size for name, size in open_sizes.items() if name not in shaped}
    if not taken:
        return options, ()
    listed = ", ".join(f"{name} is {size}" for name, size in taken.items())
    more = " ".join(f"--dim {name}=N" for name in taken)
    note = f"Open sizes are those of the program's example: {listed} ({more} for others)."
    return replace(options, dims={**options.dims, **taken}), (note,)


def _examples(exported: Exported, folder: Path) -> dict[str, Path]:
    """The example inputs as ``.npy`` files, where they have the sizes that the model was bound to; else none,
    and random ones are recorded."""
    import numpy as np

    bound = json.loads((folder / "signature.json").read_text(encoding="utf-8"))["inputs"]
    shapes = {one["name"]: tuple(one["shape"]) for one in bound}
    arrays = exported.inputs.items()
    if any(shapes.get(name) != array.shape or array.dtype.name == "bfloat16" for name, array in arrays):
        return {}  # no .npy file holds bfloat16
    files = {}
    for number, (name, array) in enumerate(exported.inputs.items()):
        files[name] = folder / _EXPORTED / f"example_{number}.npy"
        np.save(files[name], array)
    return files
