"""Calls a model library that edgepack made, through its C interface (``edgepack/runtime.h``).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._header import ABI_VERSION, MAGIC, STATUSES
from ._pool import ClosedError, Pool, PreparedCall, address_of, cores
from ._structs import Api, Descriptor, Model, Options, SessionHandle, backend_of


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

    def __init__(self, program: Program, threads: int | None, sessions: int | None) -> None:
        self._pool: Pool | None = None
        if threads is not None and not 1 <= threads <= 256:
            raise ValueError(f"threads is {threads}; give 1 to 256, or None for the model's own")
        if sessions is not None and sessions < 1:
            raise ValueError(f"sessions is {sessions}; give 1 or more, or None for the number of cores")
        self._options = (threads, sessions)
        self._model = _Model(program, threads or 0)
        self._inputs = [(one.name, np.dtype(one.dtype), one.shape) for one in program.inputs]
        self._outputs = [(one.name, np.dtype(one.dtype), one.shape) for one in program.outputs]
        try:
            # Of the model, not of this object, which would never be forgotten then.
            self._pool = Pool(self._model.make_session, sessions or cores())
        except BaseException:
            self._model.close()
            raise

    def _run(self, values: Sequence[npt.ArrayLike]) -> list[npt.NDArray[Any]]:
        """The outputs, as new arrays. An array that is not contiguous or not aligned is copied."""
        results = [np.empty(shape, dtype) for _, dtype, shape in self._outputs]
        self._call(self._read(values), results)
        return results

    def _run_into(self, values: Sequence[npt.ArrayLike], results: Sequence[npt.NDArray[Any]]) -> None:
        """Writes the outputs into arrays that are there."""
        for (name, dtype, shape), array in zip(self._outputs, results, strict=True):
            if not (isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == shape):
                raise _wrong(name, dtype, shape, array)
            if not array.flags.carray:
                raise ValueError(f"{name} has to be C-contiguous, aligned and writable")
        self._call(self._read(values), results)

    def _read(self, values: Sequence[npt.ArrayLike]) -> list[npt.NDArray[Any]]:
        arrays = []
        for (name, dtype, shape), value in zip(self._inputs, values, strict=True):
            array = np.asarray(value)
            if array.dtype != dtype or array.shape != shape:
                raise _wrong(name, dtype, shape, array)
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = np.require(array, requirements=["C", "A"])
            arrays.append(array)
        return arrays

    def _call(self, arrays: Sequence[npt.NDArray[Any]], results: Sequence[npt.NDArray[Any]]) -> None:
        addresses = [address_of(array) for array in (*arrays, *results)]
        try:
            status = self._opened().run(addresses)
        except ClosedError:
            raise _closed() from None
        if status != 0:
            self._model.check(status, "run")

    @property
    def backend(self) -> str:
        """What computes: ``cpu``; a GPU and its name; or ``cpu`` and, in brackets, why it is not the GPU."""
        with self._in_use():
            return self._model.backend

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._pool is None or not self._pool.open

    def check_params(self) -> None:
        """Hash the params file; raises Error where a byte of it has changed."""
        with self._in_use():
            self._model.check_params()

    def close(self) -> None:
        """End the session's threads and give its memory back, once what other threads began with it is done.
        Closing twice is fine. RuntimeError where a signal's handler closes the session whose call it
        interrupted."""
        if self._pool is not None:
            self._pool.end(self._model.close)

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{name!a} {dtype}{list(shape)}" for name, dtype, shape in side)
            for side in (self._inputs, self._outputs)
        )
        module = type(self).__module__
        return f"<{module}.Session: {inputs} -> {outputs}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """The options: where it is unpickled, the package opens its model anew."""
        self._opened()
        return type(self), self._options

    def _opened(self) -> Pool:
        """The sessions of the library. Raises ValueError if they are closed."""
        pool = self._pool
        if pool is None or not pool.open:
            raise _closed()
        return pool

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keeps the session open for a call of the library. Raises ValueError if it is closed."""
        try:
            with self._opened().held():
                yield
        except ClosedError:
            raise _closed() from None


class _Model:
    """The library, with the model opened. Raises Error where it refuses."""

    def __init__(self, program: Program, threads: int) -> None:
        self._threads = threads
        self._library = _load(program.library)
        self._descriptor = _descriptor(self._library, program)
        self._api: Api = self._descriptor.api.contents
        self._model = Model()
        path = None
        if program.params is not None:
            path = str(program.params).encode() if os.name == "nt" else os.fsencode(program.params)
        self.check(self._api.model_open(c.byref(self._descriptor), path, c.byref(self._model)), "open")

    @property
    def backend(self) -> str:
        return backend_of(self._api, self._model)

    def make_session(self) -> PreparedCall:
        options = Options(struct_size=c.sizeof(Options), threads=self._threads)
        handle = SessionHandle()
        status = self._api.session_create(c.byref(self._model), c.byref(options), c.byref(handle))
        self.check(status, "make a session")
        given = self._descriptor
        inputs = [given.inputs[index].nbytes for index in range(given.input_count)]
        outputs = [given.outputs[index].nbytes for index in range(given.output_count)]
        return PreparedCall(self._api.session_run, handle, inputs, outputs)

    def check_params(self) -> None:
        self.check(self._api.model_check_params(c.byref(self._model)), "check its params")

    def close(self, sessions: Sequence[PreparedCall] = ()) -> None:
        for session in sessions:
            self._api.session_destroy(session.handle)
        self._api.model_close(c.byref(self._model))

    def check(self, status: int, what: str) -> None:
        if status == 0:
            return
        name, text = STATUSES.get(status, ("", "Unknown status."))
        if name == "EP_E_OVERLAP":
            raise ValueError("an array for an output overlaps another array; give each its own memory")
        if name == "EP_E_CPU":
            missing = c.create_string_buffer(512)
            self._api.missing_features(c.byref(self._descriptor), missing, len(missing))
            text += f" Missing: {missing.value.decode()}."
        raise Error(f"The model could not {what} ({name or status}): {text}", status, name)


def _closed() -> ValueError:
    return ValueError("the session is closed")


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


def _wrong(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], array: Any) -> Exception:
    """Why an array is not one of the model's."""
    if not isinstance(array, np.ndarray):
        return TypeError(f"{name} is a value of type {type(array).__name__}, the model takes a NumPy array")
    if array.dtype != dtype:
        return TypeError(f'{name} is {array.dtype}, the model takes {dtype}: convert it, x.astype("{dtype}")')
    return ValueError(f"{name} has shape {array.shape}, the model takes {shape}")
