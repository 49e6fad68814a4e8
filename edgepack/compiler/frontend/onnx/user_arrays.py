"""Arrays that the user gives for the recorded data: inputs, and outputs that nothing here can compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.array_files import ArrayFileError, open_arrays
from edgepack.compiler.frontend.onnx.binding import input_dtype
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.errors import ConfigError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["read_array", "user_input", "user_outputs"]


def user_input(name: str, file: Path, specs: Sequence[TensorSpec]) -> NDArray[Any]:
    """The user's array for an input of the model.

    Raises:
        ConfigError: there is no such input, or the file does not hold what it takes.
    """
    return _given("--input", name, file, specs)


def user_outputs(
    model: onnx.ModelProto, files: Mapping[str, Path], inputs: Mapping[str, Path], specs: Sequence[TensorSpec]
) -> dict[str, NDArray[Any]]:
    """The user's arrays for all outputs of the model, in the graph's order.

    Args:
        files: ``.npy`` files, by output name.
        inputs: those given for inputs: without them all, the outputs are of other inputs.
        specs: the model's inputs.

    Raises:
        ConfigError: an output or an input is not given, or a file does not hold what the model gives.
    """
    missing = [spec.name for spec in specs if spec.name not in inputs]
    if missing:
        raise ConfigError(
            f"--expected: the outputs are of some inputs, but there is no --input for {missing[0]!r}.",
            hint=f"Give it: --input {missing[0]}=FILE.npy.",
        )
    known = infer_shapes(model).graph.output
    outputs = [TensorSpec(value.name, input_dtype(value), static_shape(value) or ()) for value in known]
    missing = [spec.name for spec in outputs if spec.name not in files]
    if missing:
        raise ConfigError(
            f"--expected: the output {missing[0]!r} is not given.",
            hint=f"Give it too: --expected {missing[0]}=FILE.npy.",
        )
    arrays = {name: _given("--expected", name, file, outputs) for name, file in files.items()}
    return {spec.name: arrays[spec.name] for spec in outputs}


def read_array(option: str, name: str, file: Path) -> NDArray[Any]:
    """What a ``.npy`` file of a user holds. Raises ConfigError for another file.

    Args:
        option: ``--input`` or ``--expected``, for messages.
    """
    try:
        with open_arrays(file) as found:
            if found.names is None:
                return found.read()
    except ArrayFileError as error:
        raise ConfigError(
            f"{option} {name}: {file} is not a NumPy array file.",
            hint="Write it with numpy.save.",
            detail=str(error),
        ) from error
    raise ConfigError(f"{option} {name}: {file} is an archive.", hint="Write one array with numpy.save.")


def _given(option: str, name: str, file: Path, specs: Sequence[TensorSpec]) -> NDArray[Any]:
    role = "output" if option == "--expected" else "input"
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is None:
        names = ", ".join(spec.name for spec in specs)
        raise ConfigError(f"{option}: the model has no {role} {name!r}.", hint=f"Its {role}s are {names}.")
    array = read_array(option, name, file)
    if str(array.dtype) != spec.dtype or array.shape != spec.shape:
        does = "gives" if role == "output" else "takes"
        raise ConfigError(
            f"{option} {name}: {file} is {array.dtype} {list(array.shape)}, the model {does} {spec.dtype} "
            f"{list(spec.shape)}.",
            hint="Convert it with numpy.asarray(x, dtype).reshape(shape).",
        )
    return array
