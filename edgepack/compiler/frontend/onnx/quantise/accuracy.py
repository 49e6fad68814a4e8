"""The accuracy of a model as a script of the user's measures it.

The script is a Python file with a function ``accuracy(run)`` that returns a number, the larger the better.
``run`` takes a dictionary of arrays by input name and returns one of arrays by output name, as the model that
is measured computes them.
"""

from __future__ import annotations

import io
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite, nan
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.compiler.frontend.onnx.quantise.samples import input_specs
from edgepack.errors import ConfigError, EdgepackError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["AccuracyScript"]

_FUNCTION = "accuracy"
_HINT = (
    "The script defines accuracy(run), which returns a number, the larger the better; run({input: array}) "
    "returns the outputs by name."
)
_CONFINED = (
    "The script runs in the process that reads the model, which may read files, and neither write, connect "
    "nor start programs (docs/security.md). Let it read what was made before."
)


class AccuracyScript:
    """A script that has been read.

    Args:
        path: of the Python file.
        folder: the user's working folder, in which it runs.

    Raises:
        ConfigError: it cannot be read or run, or has no function of that name.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self._folder = path, folder
        try:
            source = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"--accuracy {path}: the file cannot be read: {error.strerror or error}.", hint=_HINT
            ) from error
        names: dict[str, Any] = {"__name__": "edgepack_accuracy", "__file__": str(path)}
        with self._inside("the script"):
            exec(compile(source, str(path), "exec", dont_inherit=True), names)
        function = names.get(_FUNCTION)
        if not callable(function):
            raise ConfigError(f"--accuracy {path} defines no function {_FUNCTION}.", hint=_HINT)
        self._function: Callable[..., Any] = function

    def measured(self, model: onnx.ModelProto) -> float:
        """What the script says of a model.

        Raises:
            ConfigError: the function raises, or returns no finite number.
            ModelError: ONNX Runtime refuses the model.
        """
        specs = input_specs(model)
        compute = runner(model, [value.name for value in model.graph.output])

        def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            return compute(_checked(inputs, specs))

        with self._inside(_FUNCTION):
            found = self._function(run)
        with self._inside(f"what {_FUNCTION} returned"):  # any object, of the script's making
            number = isinstance(found, Real) and not isinstance(found, bool)
            value = float(found) if number else nan
            text = repr(found)
        if not isfinite(value):
            line = getattr(getattr(self._function, "__code__", None), "co_firstlineno", 1)
            shown = text if len(text) <= 60 else f"a value of type {type(found).__name__}"
            raise ConfigError(
                f"{self.path}:{line}: accuracy returned {shown}, which is no finite number.", hint=_HINT
            )
        return value

    @contextmanager
    def _inside(self, what: str) -> Iterator[None]:
        """The script's code runs in the block, in the user's folder, and may import what lies beside it; what
        it raises becomes a ConfigError with file and line."""
        before, path, own = Path.cwd(), list(sys.path), sys.stdin
        sys.path.append(str(self.path.parent))
        os.chdir(self._folder)
        sys.stdin = io.StringIO()  # this process is told by it what to do
        try:
            yield
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            raise self._refusal(what, error) from error
        finally:
            os.chdir(before)
            sys.path[:], sys.stdin = path, own

    def _refusal(self, what: str, error: BaseException) -> ConfigError:
        linecache.checkcache(str(self.path))
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == str(self.path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        place = f"{self.path}:{line}" if line else str(self.path)
        if isinstance(error, EdgepackError):  # of run
            return ConfigError(f"{place}: {error.message}", hint=error.hint, detail=error.detail)
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        kind = type(error).__name__
        return ConfigError(
            f"{place}: {what} raised {kind}: {said}".rstrip(": .") + ".",
            hint=_CONFINED if isinstance(error, PermissionError) else _HINT,
            detail="".join(traceback.format_list(frames)),
        )


def _checked(inputs: Any, specs: tuple[TensorSpec, ...]) -> dict[str, NDArray[Any]]:
    """What the script gives to ``run``. Raises ConfigError where the model does not take it."""
    import numpy as np

    names = ", ".join(spec.name for spec in specs)
    if not isinstance(inputs, Mapping) or set(inputs) != {spec.name for spec in specs}:
        given = ", ".join(map(str, inputs)) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise ConfigError(
            f"run takes a dictionary with an array for each input ({names}), not {given or 'an empty one'}.",
            hint=_HINT,
        )
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    for spec in specs:
        array = arrays[spec.name]
        if (str(array.dtype), array.shape) != (spec.dtype, spec.shape):
            raise ConfigError(
                f"run takes {spec.dtype} {list(spec.shape)} for {spec.name}, not {array.dtype} "
                f"{list(array.shape)}.",
                hint="Convert it with numpy.asarray(x, dtype); give one run's samples at a time.",
            )
    return arrays
