"""Calls a model library that edgepack made, through its C interface (``edgepack/runtime.h``).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ._header import ABI_VERSION, MAGIC, STATUSES
from ._structs import Api, Buffer, ConstBuffer, Descriptor, Model, Options, SessionHandle, Users, backend_of


class Error(RuntimeError):
    """The library refused or failed; the text says why and what to do.

    Attributes:
        status: number of the library's status, 0 where the library itself could not be loaded.
        name: its name, such as ``EP_E_CPU``; "" where it has none.
    """

    def __init__(self, text: str, status: int = 0, name: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.name = name


class Tensor(NamedTuple):
    """An input or an output.

    Attributes:
        name: as the model has it.
        dtype: of NumPy; bfloat16 is passed as its bits, uint16.
        shape: extents.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


class Program(NamedTuple):
    """The files of a model and what they hold.

    Attributes:
        library: its shared library.
        params: its params file; None where the library holds the params itself.
        symbol: what the library exports.
        inputs, outputs: in the model's order.
    """

    library: Path
    params: Path | None
    symbol: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class SessionBase:
    """An opened model with its memory and threads."""

    def __init__(self, program: Program, threads: int | None) -> None:
        self._users = Users()
        self._handle: SessionHandle | None = None
        self._program = program
        if threads is not None and not 1 <= threads <= 256:
            raise ValueError(f"threads is {threads}; give 1 to 256, or None for the model's own")
        self._library = _load(program.library)
        self._descriptor = _descriptor(self._library, program)
        self._api: Api = self._descriptor.api.contents
        self._model = Model()
        path = None
        if program.params is not None:
            path = str(program.params).encode() if os.name == "nt" else os.fsencode(program.params)
        self._check(self._api.model_open(c.byref(self._descriptor), path, c.byref(self._model)), "open")
        options = Options(struct_size=c.sizeof(Options), threads=threads or 0)
        handle = SessionHandle()
        status = self._api.session_create(c.byref(self._model), c.byref(options), c.byref(handle))
        if status != 0:
            self._api.model_close(c.byref(self._model))
        self._check(status, "make a session")
        self._handle = handle

    def _run(self, values: Sequence[npt.ArrayLike]) -> list[npt.NDArray[Any]]:
        """The outputs, as new arrays. An array that is not contiguous or not aligned is copied."""
        self._check_open()
        program = self._program
        arrays = [_checked(spec, value) for spec, value in zip(program.inputs, values, strict=True)]
        results = [np.empty(spec.shape, spec.dtype) for spec in program.outputs]
        sources = (ConstBuffer * max(1, len(arrays)))(
            *(ConstBuffer(array.ctypes.data, array.nbytes) for array in arrays)
        )
        targets = (Buffer * max(1, len(results)))(
            *(Buffer(array.ctypes.data, array.nbytes) for array in results)
        )
        with self._in_use():
            status = self._api.session_run(self._handle, sources, len(arrays), targets, len(results))
        self._check(status, "run")
        return results

    @property
    def backend(self) -> str:
        """What computes: ``cpu``; a GPU and its name; or ``cpu`` and, in brackets, why it is not the GPU."""
        with self._in_use():
            return backend_of(self._api, self._model)

    def check_params(self) -> None:
        """Hash the params file; raises Error where a byte of it has changed."""
        with self._in_use():
            status = self._api.model_check_params(c.byref(self._model))
        self._check(status, "check its params")

    def close(self) -> None:
        """End the session's threads and give its memory back, once what other threads began with it is done.
        Closing twice is fine. RuntimeError where a signal's handler closes the session whose call it
        interrupted."""
        self._users.end(self._destroy)

    def _destroy(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._api.session_destroy(handle)
            self._api.model_close(c.byref(self._model))

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be copied; make another one")

    def _check_open(self) -> None:
        if not self._users.open:
            raise ValueError("the session is closed")

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keeps the session open for a call of the library. Raises ValueError if it is closed."""
        with self._users.call() as entered:
            if not entered:
                self._check_open()
            yield

    def _check(self, status: int, what: str) -> None:
        if status == 0:
            return
        name, text = STATUSES.get(status, ("", "Unknown status."))
        if name == "EP_E_CPU":
            missing = c.create_string_buffer(512)
            self._api.missing_features(c.byref(self._descriptor), missing, len(missing))
            text += f" Missing: {missing.value.decode()}."
        raise Error(f"The model could not {what} ({name or status}): {text}", status, name)


def _load(path: Path) -> c.CDLL:
    try:
        return c.CDLL(str(path))
    except OSError as error:
        raise Error(f"{path} cannot be loaded: {error}. Install the package again.") from error


def _descriptor(library: c.CDLL, program: Program) -> Descriptor:
    try:
        descriptor = Descriptor.in_dll(library, program.symbol)
    except ValueError as error:
        raise Error(f"{program.library} is not the library of this package. Install it again.") from error
    right = descriptor.magic == MAGIC and descriptor.abi_version == ABI_VERSION
    if not right or descriptor.struct_size < c.sizeof(Descriptor):
        raise Error(f"{program.library} is not the library of this package. Install it again.")
    return descriptor


def _checked(spec: Tensor, value: npt.ArrayLike) -> npt.NDArray[Any]:
    array = np.asarray(value)
    if array.dtype != np.dtype(spec.dtype):
        raise TypeError(
            f"{spec.name} is {array.dtype}, the model takes {spec.dtype}: "
            f'convert it, x.astype("{spec.dtype}")'
        )
    if array.shape != spec.shape:
        raise ValueError(f"{spec.name} has shape {array.shape}, the model takes {spec.shape}")
    return np.require(array, requirements=["C", "A"])
