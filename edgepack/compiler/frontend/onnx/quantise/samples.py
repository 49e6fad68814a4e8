"""The calibration data: arrays of files, or random ones, as inputs of runs of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.array_files import ArrayFileError, open_arrays
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.compiler.frontend.onnx.sampling import FREE_RANGE, SMALLER_RANGES, random_inputs
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.quantisation import CALIBRATION_SUFFIXES
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["Samples", "given_samples", "input_specs", "random_samples"]

#: How many random samples there are: more of the same noise do not change the ranges much.
RANDOM_SAMPLES = 8


@dataclass
class Samples:
    """Inputs of runs of a model; each iteration goes through all of them again.

    Attributes:
        count: how many there are.
        unused: how many more the files hold.
    """

    count: int
    unused: int = 0
    _made: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    _files: list[tuple[Path, int]] = field(default_factory=list)
    _specs: tuple[TensorSpec, ...] = ()

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        yield from self._made
        left = self.count - len(self._made)
        for file, number in self._files:
            arrays = _read(file, self._specs) if left else {}
            for index in range(min(number, left)):
                yield {spec.name: _run_of(arrays[spec.name], spec, index) for spec in self._specs}
            left -= min(number, left)


def random_samples(model: onnx.ModelProto, seed: int, most: int) -> Samples:
    """Inputs drawn as those of a bundle's recorded data are, of one seed after the other.

    Args:
        model: all input shapes static.
        most: how many at most.
    """
    free = _free_range(model, seed)
    made = [random_inputs(model, seed + number, free) for number in range(min(RANDOM_SAMPLES, most))]
    return Samples(len(made), _made=made)


def _free_range(model: onnx.ModelProto, seed: int) -> tuple[int, int]:
    """The range of integers on which the model runs: smaller ones where they count or index something."""
    if all("float" in item.dtype for item in model_inputs(model)):
        return FREE_RANGE
    run = runner(model, [value.name for value in model.graph.output])
    for free in (FREE_RANGE, *SMALLER_RANGES):
        with suppress(ModelError):
            run(random_inputs(model, seed, free))
            return free
    return FREE_RANGE


def input_specs(model: onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """The inputs of a model, all of static shape."""
    return tuple(
        TensorSpec(i.name, i.dtype, tuple(d for d in i.shape or () if isinstance(d, int)))
        for i in model_inputs(model)
    )


def given_samples(
    path: Path, specs: tuple[TensorSpec, ...], most: int, option: str = "--calibrate"
) -> Samples:
    """What the user's files hold: ``.npz`` files with an array for each input, by its name, or ``.npy`` files
    for a model with one input. The first dimension of an array can hold several runs.

    Args:
        path: such a file, or a folder of them, which are taken by name.
        specs: the model's inputs.
        most: runs that are used at most.
        option: gives the files, for messages.

    Raises:
        ConfigError: there is none, or one does not fit the model, holds NaN or infinity; or calibration data
            are all 0.
    """
    files, nonzero = [], option != "--calibrate"
    with _option_of(option):
        for file in _files(path):
            arrays = _read(file, specs)
            files.append((file, _runs(file, arrays, specs)))
            nonzero = nonzero or any(array.any() for array in arrays.values())
    if not nonzero:
        raise ConfigError(
            f"--calibrate {path}: all numbers are 0, so no tensor would have a range.",
            hint="Give inputs such as the model will see.",
        )
    total = sum(number for _, number in files)
    return Samples(min(total, most), max(total - most, 0), _files=files, _specs=specs)


@contextmanager
def _option_of(option: str) -> Iterator[None]:
    """In errors that leave the block, the option that gives the files is this one."""
    try:
        yield
    except ConfigError as error:
        error.message = error.message.replace("--calibrate", option, 1)
        raise


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(
            file for file in path.iterdir() if file.suffix in CALIBRATION_SUFFIXES and file.is_file()
        )
        if not found:
            raise ConfigError(
                f"--calibrate {path}: the folder holds neither .npz nor .npy files.",
                hint="Write each sample with numpy.savez(file, INPUT=array).",
            )
        return found
    if not path.is_file():
        raise ConfigError(
            f"--calibrate {path}: there is no such file or folder.",
            hint="Give a folder of .npz or .npy files, or one such file.",
        )
    if path.suffix not in CALIBRATION_SUFFIXES:
        raise ConfigError(
            f"--calibrate {path}: the file is neither .npz nor .npy.",
            hint="Write the samples with numpy.savez(file, INPUT=array).",
        )
    return [path]


def _read(file: Path, specs: tuple[TensorSpec, ...]) -> dict[str, NDArray[Any]]:
    """The arrays of a file by input name, each for one run or several."""
    names = [spec.name for spec in specs]
    try:
        with open_arrays(file) as found:
            if found.names is not None:
                _check_names(file, found.names, names)
                return {name: found.read(name) for name in names}
            if len(names) == 1:
                return {names[0]: found.read()}
    except ArrayFileError as error:
        raise ConfigError(
            f"--calibrate: {file} is not a NumPy file, or is damaged.",
            hint="Write it with numpy.save or numpy.savez.",
            detail=str(error),
        ) from error
    raise ConfigError(
        f"--calibrate: {file} holds one array, and the model has {len(names)} inputs.",
        hint=f"Write .npz files with an array for each: {', '.join(names)}.",
    )


def _check_names(file: Path, found: Sequence[str], names: Sequence[str]) -> None:
    """Raise ConfigError where an archive's arrays are not those of the inputs."""
    for wrong, what in ((set(names) - set(found), "lacks"), (set(found) - set(names), "holds")):
        if wrong:
            raise ConfigError(
                f"--calibrate: {file} {what} an array {min(wrong)!r}, which "
                f"{'the model takes' if what == 'lacks' else 'is no input of the model'}.",
                hint=f"The model's inputs are {', '.join(names)}.",
            )


def _runs(file: Path, arrays: Mapping[str, NDArray[Any]], specs: tuple[TensorSpec, ...]) -> int:
    """How many runs a file's arrays are for."""
    import numpy as np

    counts: dict[str, int] = {}
    for spec in specs:
        array = arrays[spec.name]
        if str(array.dtype) != spec.dtype:
            raise _unfit(file, spec, array)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ConfigError(
                f"--calibrate: the array {spec.name!r} in {file} holds NaN or infinity.",
                hint="Remove that sample.",
            )
        counts[spec.name] = _count(array, spec)
        if not counts[spec.name]:
            raise _unfit(file, spec, array)
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ConfigError(
            f"--calibrate: the arrays in {file} are for different numbers of runs ({said}).",
            hint="Give each input as many samples as the others.",
        )
    return next(iter(counts.values()))


def _count(array: NDArray[Any], spec: TensorSpec) -> int:
    """How many runs an array is for: one, or as many as its first dimension is times the input's; 0 where it
    does not fit."""
    if array.shape == spec.shape or (spec.shape[:1] == (1,) and array.shape == spec.shape[1:]):
        return 1
    if array.ndim != len(spec.shape) or not spec.shape or array.shape[1:] != spec.shape[1:]:
        return 0
    return array.shape[0] // spec.shape[0] if spec.shape[0] and not array.shape[0] % spec.shape[0] else 0


def _run_of(array: NDArray[Any], spec: TensorSpec, index: int) -> NDArray[Any]:
    """The part of an array that a run takes."""
    import numpy as np

    if array.ndim == len(spec.shape) and array.shape != spec.shape:
        array = array[index * spec.shape[0] : (index + 1) * spec.shape[0]]
    return np.ascontiguousarray(array.reshape(spec.shape))


def _unfit(file: Path, spec: TensorSpec, array: np.ndarray[Any, Any]) -> ConfigError:
    return ConfigError(
        f"--calibrate: the array {spec.name!r} in {file} is {array.dtype} {list(array.shape)}, and the model "
        f"takes {spec.dtype} {list(spec.shape)}.",
        hint="Convert it with numpy.asarray(x, dtype); its first dimension can hold several samples.",
    )
