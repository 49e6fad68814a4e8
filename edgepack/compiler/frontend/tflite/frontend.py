"""The functions of the frontend for TFLite: the ONNX frontend's, behind the conversion."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend import onnx as onnx_frontend
from edgepack.compiler.frontend.base import ImportedModel, ImportOptions
from edgepack.compiler.frontend.named_errors import errors_name
from edgepack.compiler.frontend.states import state_warnings
from edgepack.compiler.frontend.tflite.convert import Converted, convert, unconverted
from edgepack.compiler.frontend.tflite.cut import cut_behind
from edgepack.compiler.frontend.tflite.model_file import IDENTIFIER, read_model
from edgepack.compiler.frontend.tflite.reference import check_interpreter, record_interpreter
from edgepack.compiler.frontend.tflite.resized import resized
from edgepack.errors import ConfigError
from edgepack.plan.layers import InnerTensor
from edgepack.plan.model_summary import ModelSummary, TensorSummary

if TYPE_CHECKING:
    from edgepack.compiler.frontend.tflite.model import Model

__all__ = ["load", "model_files", "prepare", "recognises", "record", "summarise", "tensors_inside"]

_CONVERTED = "converted.onnx"


@dataclass(frozen=True)
class _Prepared:
    """A model that was converted.

    Attributes:
        converted: the conversion.
        file: where it lies as an ONNX model.
        options: what is left of the user's for the ONNX frontend.
    """

    converted: Converted
    file: Path
    options: ImportOptions


def recognises(model: Path) -> bool:
    """Whether a file's first bytes are those of a TFLite model."""
    try:
        with model.open("rb") as stream:
            return stream.read(8)[4:] == IDENTIFIER
    except OSError:
        return False


def model_files(model: Path) -> tuple[Path, ...]:
    """The file, in which all is. Raises ModelError if it cannot be read."""
    read_model(model)
    return (model,)


def summarise(model: Path) -> ModelSummary:
    """What is in the file. Raises ModelError if it cannot be read."""
    read = read_model(model)
    constants = [
        tensor.data for graph in read.subgraphs for tensor in graph.tensors if tensor.data is not None
    ]
    operators = Counter(one.kind for graph in read.subgraphs for one in graph.operators)
    main = read.main

    def described(index: int) -> TensorSummary:
        tensor = main.tensors[index]
        shape = tuple(None if axis in tensor.open_axes else n for axis, n in enumerate(tensor.shape))
        return TensorSummary(tensor.name, tensor.dtype, shape, tensor.linear_quantisation)

    return ModelSummary(
        name=model.stem,
        producer=read.description,
        ir_version=3,
        opset=3,
        opsets={"tflite": 3},
        inputs=tuple(map(described, main.inputs)),
        outputs=tuple(map(described, main.outputs)),
        nodes=sum(operators.values()),
        operators=dict(operators.most_common()),
        params=sum(data.size for data in constants),
        params_bytes=sum(data.nbytes for data in constants),
        denormals=_denormals(read),
        unbound={},
        unsupported=unconverted(read),
        external=(),
    )


def _denormals(read: Model) -> int:
    from edgepack.compiler.denormals import denormals

    tensors = (tensor.data for graph in read.subgraphs for tensor in graph.tensors)
    return sum(denormals(data) for data in tensors if data is not None and data.dtype.name == "float32")


def prepare(model: Path, options: ImportOptions, folder: Path) -> tuple[str, ...]:
    """Convert the model, and prepare that as an ONNX model in ``folder``. Returns warnings.

    Raises:
        ModelError: it cannot be read, or not be compiled.
        ConfigError: ``options`` do not fit.
    """
    prepared = _prepared(model, options, folder)
    with errors_name(model, prepared.file):
        notes = onnx_frontend.prepare(prepared.file, prepared.options, folder)
    _note_own_tensors(folder / "signature.json", prepared.converted)
    found = prepared.converted
    states = [(state.name, state.returned_as) for state in found.states]
    kept = state_warnings("the model keeps {} between runs", "variable", states)
    return (*notes, *_hybrid(found), *_assumed(found), *kept)


def record(
    model: Path, options: ImportOptions, folder: Path, *, seed: int, inputs: Mapping[str, Path]
) -> tuple[str, ...]:
    """Record inputs and what LiteRT's reference kernels make of them. Returns warnings.

    Raises:
        ConfigError: a given input does not fit.
        ModelError: the interpreter refuses the model, or computes something else than the converted one.
    """
    prepared = _prepared(model, options, folder)
    with errors_name(model, prepared.file):
        if prepared.converted.is_exact and not options.expected:
            return record_interpreter(prepared.converted, prepared.options, folder, seed, inputs)
        warned = onnx_frontend.record(prepared.file, prepared.options, folder, seed=seed, inputs=inputs)
    if not options.expected:
        check_interpreter(model, prepared.converted, folder)
    return warned


def load(folder: Path) -> ImportedModel:
    """The Relax module of what :func:`prepare` left in ``folder``; ModelError if TVM cannot import it."""
    return onnx_frontend.load(folder)


def tensors_inside(folder: Path) -> list[InnerTensor]:
    """What can be looked at between the kernels of what :func:`prepare` left in ``folder``."""
    return onnx_frontend.tensors_inside(folder)


def _prepared(model: Path, options: ImportOptions, folder: Path) -> _Prepared:
    """The model as ONNX in a folder."""
    if options.custom:
        raise ConfigError(
            f"{model}: --custom declares operators of ONNX, and this is a TFLite model.",
            hint="Convert it to ONNX, or leave out the operators with --outputs.",
        )
    shapes = {name: tuple(shape) for name, shape in options.shapes.items()}
    converted = _converted(model, tuple(sorted(shapes.items())), options.batch, tuple(options.outputs or ()))
    file = folder / _CONVERTED
    if not file.exists():
        import onnx

        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(converted.model, str(file))
    return _Prepared(converted, file, replace(options, batch=0, shapes={}))


@lru_cache(maxsize=1)
def _converted(
    model: Path, shapes: tuple[tuple[str, tuple[int, ...]], ...], batch: int, outputs: tuple[str, ...]
) -> Converted:
    """The model, or what of it computes some tensors, as ONNX; once for each job."""
    return convert(resized(cut_behind(read_model(model), outputs), dict(shapes), batch))


def _note_own_tensors(file: Path, converted: Converted) -> None:
    """Of the tensors that can be looked at, those that the TFLite file has; and what it says of integers."""
    signature = json.loads(file.read_text(encoding="utf-8"))
    own = {tensor.name for tensor in converted.subgraph.tensors} | {one.name for one in converted.outputs}
    signature["tensors"] = [name for name in signature["tensors"] if name in own]
    signature["quantised"] = {name: asdict(one) for name, one in converted.quantised.items()}
    file.write_text(json.dumps(signature, indent=1), encoding="utf-8", newline="\n")


def _hybrid(converted: Converted) -> Iterator[str]:
    if converted.hybrid:
        layers = f"{converted.hybrid} layer{'s' if converted.hybrid > 1 else ''}"
        yield (
            f"Dynamic-range quantisation: the weights of {layers} are int8, and are multiplied as float32 "
            "here: nearer to the trained model than LiteRT's own kernels, with params four times as large as "
            "the file's."
        )


def _assumed(converted: Converted) -> Iterator[str]:
    for name, sizes in converted.assumed.items():
        yield (
            f"Sizes: the input {name!r} says the shape of a result, which is {list(sizes)} as in the file, "
            "whatever it is given: the bundle does not read it."
        )
