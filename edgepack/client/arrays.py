"""NumPy arrays that runs read and write: checked against the model's tensors, and their addresses."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgepack.abi.pool import address_of
from edgepack.errors import ConfigError
from edgepack.plan.types import TensorSpec

__all__ = ["Inputs", "Outputs", "numpy_dtype"]

# numpy has no bfloat16: its bits.
_NUMPY = {"bfloat16": "uint16"}
_Array, _empty = np.ndarray, np.empty
_PLAIN = {dict, list, tuple}
_address, _view = ctypes.addressof, ctypes.c_char.from_buffer


def numpy_dtype(spec: TensorSpec) -> np.dtype[Any]:
    """NumPy's dtype of a tensor; bfloat16 is uint16, its bits."""
    return np.dtype(_NUMPY.get(spec.dtype, spec.dtype))


class _Side(ABC):
    """All inputs or all outputs of a model."""

    kind: str

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._names = [spec.name for spec in specs]
        # Tuples of no class of their own, which are taken apart sooner.
        self._by_name = tuple((spec.name, numpy_dtype(spec), spec.shape) for spec in specs)
        self._by_index = tuple((index, *place[1:]) for index, place in enumerate(self._by_name))

    def take(self, given: Any, addresses: list[int]) -> Sequence[Any]:
        """The arrays that the library gets for what a caller gave; ``addresses`` gets theirs.

        Args:
            given: a mapping of names to arrays; the arrays in the model's order, a list or tuple; or the one.

        Raises:
            ConfigError: they do not fit the model.
        """
        # Each of these lines is a part of every run: what is wrong, or has to be copied, is looked for once
        # it is known that something is. `is` takes a quarter of the time of `==` of dtypes; `carray`, which
        # says contiguous, aligned and writable, a third of asking for each; an index half of a strict `zip`.
        before, kind = len(addresses), type(given)
        if kind is _Array:
            given, kind = (given,), tuple
        places = self._by_name if kind is dict else self._by_index
        values = []  # of their own: a caller's list or mapping may change during the run
        try:
            if kind in _PLAIN and len(given) == len(places):
                for key, dtype, shape in places:
                    value = given[key]
                    if (
                        type(value) is not _Array
                        or value.dtype is not dtype
                        or value.shape != shape
                        or not value.flags.carray
                    ):
                        break
                    addresses.append(_address(_view(value)))  # type: ignore[arg-type]
                    values.append(value)
                else:
                    return values
        except (IndexError, KeyError, ValueError):  # ValueError: an array without elements
            pass
        del addresses[before:]
        return self._take_slowly(given, addresses)

    def _take_slowly(self, given: Any, addresses: list[int]) -> Sequence[Any]:
        arrays = [
            self._checked(name, dtype, shape, value)
            for (name, dtype, shape), value in zip(self._by_name, self._in_order(given), strict=True)
        ]
        addresses += [address_of(array) for array in arrays]
        return arrays

    @abstractmethod
    def _checked(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], value: Any) -> NDArray[Any]:
        """An array that the library takes for this tensor."""

    def _in_order(self, given: Any) -> Sequence[Any]:
        """What was given, in the model's order."""
        if isinstance(given, Mapping):
            if list(given) != self._names and set(given) != set(self._names):
                raise self._other_names(given)
            return [given[name] for name in self._names]
        values = given if isinstance(given, list | tuple) else (given,)
        if len(values) != len(self._names):
            raise ConfigError(
                f"{len(values)} array{'s are' if len(values) != 1 else ' is'} given, the model has "
                f"{len(self._names)} {self.kind}{'s' if len(self._names) != 1 else ''}: "
                f"{', '.join(self._names) or 'none'}.",
                hint=f"Give the arrays in this order, or a mapping of the {self.kind}s' names to them.",
            )
        return values

    def _other_names(self, given: Mapping[Any, Any]) -> ConfigError:
        missing = [name for name in self._names if name not in given]
        unknown = [str(name) for name in given if name not in self._names]
        parts = [f"missing: {', '.join(missing)}"] * bool(missing)
        parts += [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        return ConfigError(
            f"The {self.kind}s are not the model's; {'; '.join(parts)}.",
            hint=f"It has: {', '.join(self._names)}.",
        )


class Inputs(_Side):
    """The inputs of a model. What the library cannot read as it is becomes an array that it can."""

    kind = "input"

    def _checked(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], value: Any) -> NDArray[Any]:
        hint = f"The model takes a NumPy array of {dtype} with shape {shape}."
        try:
            array = np.asarray(value)
        except Exception as error:  # of whatever type's own conversion
            raise ConfigError(
                f"Input {name}: no array can be made of a value of type {type(value).__name__}: {error}",
                hint=hint,
            ) from error
        if array.dtype.kind in "OSUMm":
            raise ConfigError(
                f"Input {name} is a value of type {type(value).__name__}, no array of numbers.", hint=hint
            )
        if array.dtype != dtype:
            raise ConfigError(
                f"Input {name} is {array.dtype}, the model takes {dtype}.",
                hint=f'Convert it: x.astype("{dtype}").',
            )
        if array.shape != shape:
            raise ConfigError(f"Input {name} has shape {array.shape}, the model takes {shape}.")
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        return np.require(array, requirements=["C", "A"])


class Outputs(_Side):
    """The outputs of a model."""

    kind = "output"

    def make(self, addresses: list[int]) -> dict[str, NDArray[Any]]:
        """New arrays by name; ``addresses`` gets theirs."""
        arrays = {}
        for name, dtype, shape in self._by_name:
            arrays[name] = array = _empty(shape, dtype)
            addresses.append(address_of(array))
        return arrays

    def _checked(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], value: Any) -> NDArray[Any]:
        if not isinstance(value, _Array):
            wrong = f"Output {name} is a value of type {type(value).__name__}, no array."
        elif value.dtype != dtype:
            wrong = f"Output {name} is {value.dtype}, the model gives {dtype}."
        elif value.shape != shape:
            wrong = f"Output {name} has shape {value.shape}, the model gives {shape}."
        elif not value.flags.writeable:
            wrong = f"The array for output {name} is read-only."
        elif not value.flags.c_contiguous:
            wrong = f"The array for output {name} is not C-contiguous."
        elif not value.flags.aligned:
            wrong = f"The array for output {name} is not aligned to its elements."
        else:
            return value
        raise ConfigError(wrong, hint=f"Make it so: numpy.empty({shape}, {dtype.name!r}).")
