"""A bundle's shared library, loaded, with its model opened: what :class:`edgepack.Session` runs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgepack.abi import structs
from edgepack.abi.header import Status, header
from edgepack.abi.pool import PreparedCall
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.plan.types import TensorSpec

__all__ = ["OpenedModel"]


class OpenedModel:
    """A model in this process.

    Args:
        library: the shared library's file, which has been looked at.
        symbol: of its descriptor.
        params: the params file; None where the library holds them.
        threads: that compute in each session; None for what the device's profile says.
        where: the bundle's folder, as errors name it.

    Raises:
        CheckFailedError: the library is damaged, or refuses.

    Attributes:
        api: the library's functions.
        inputs, outputs: name, dtype and shape of each, in the model's order.
    """

    def __init__(
        self, library: Path, symbol: str, params: Path | None, threads: int | None, where: Path
    ) -> None:
        self._where = where
        self._threads = threads
        self._library = _open_library(library)
        self._descriptor = _descriptor(self._library, symbol)
        self.api: Any = self._descriptor.api.contents
        self.inputs = _specs(self._descriptor.inputs, self._descriptor.input_count)
        self.outputs = _specs(self._descriptor.outputs, self._descriptor.output_count)
        self._model = structs.Model()
        path = None if params is None else os.fsencode(params.absolute())
        if os.name == "nt" and params is not None:
            path = str(params.absolute()).encode("utf-8")
        descriptor = ctypes.byref(self._descriptor)
        self.check(self.api.model_open(descriptor, path, ctypes.byref(self._model)), "open")

    @property
    def backend(self) -> str:
        """What computes, as :attr:`edgepack.Session.backend` says it."""
        return structs.backend_of(self.api, self._model)

    def make_session(self) -> PreparedCall:
        """Another session of the library. Raises CheckFailedError where memory or threads do not suffice."""
        options = structs.Options(struct_size=ctypes.sizeof(structs.Options), threads=self._threads or 0)
        handle = structs.SessionHandle()
        status = self.api.session_create(
            ctypes.byref(self._model), ctypes.byref(options), ctypes.byref(handle)
        )
        self.check(status, "make a session")
        descriptor = self._descriptor
        inputs = [descriptor.inputs[index].nbytes for index in range(descriptor.input_count)]
        outputs = [descriptor.outputs[index].nbytes for index in range(descriptor.output_count)]
        return PreparedCall(self.api.session_run, handle, inputs, outputs)

    def check_params(self) -> None:
        """Hash all params. Raises CheckFailedError if a byte of them has changed."""
        self.check(self.api.model_check_params(ctypes.byref(self._model)), "check its params")

    def close(self, sessions: Sequence[PreparedCall] = ()) -> None:
        """Ends these, which are all of its sessions, and gives back what it has."""
        for session in sessions:
            self.api.session_destroy(session.handle)
        self.api.model_close(ctypes.byref(self._model))

    def check(self, status: int, what: str) -> None:
        """Raise CheckFailedError, or ConfigError for buffers that overlap, unless a status says success.

        Args:
            what: was to be done: ``run``.
        """
        if status == 0:
            return
        known = header().statuses.get(status, Status(f"status {status}", "Unknown status."))
        if known.name == "EP_E_OVERLAP":
            raise ConfigError(
                f"{self._where} could not {what}: an array for an output overlaps another array.",
                hint="Give each output memory of its own.",
            )
        missing = ""
        if known.name == "EP_E_CPU":
            text = ctypes.create_string_buffer(512)
            self.api.missing_features(ctypes.byref(self._descriptor), text, len(text))
            missing = f" Missing: {text.value.decode()}."
        raise CheckFailedError(f"{self._where} could not {what} ({known.name}): {known.text}{missing}")


def _open_library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise CheckFailedError(
            f"{path} cannot be loaded: {error}.", hint="Check the bundle with `edgepack verify`."
        ) from error


def _descriptor(library: ctypes.CDLL, symbol: str) -> structs.Descriptor:
    """The library's descriptor, if this header may talk to it: what the C header's ep_descriptor_check
    does."""
    try:
        descriptor = structs.Descriptor.in_dll(library, symbol)
    except ValueError as error:
        raise CheckFailedError(f"{library._name} does not export {symbol}.") from error
    known = header()
    if descriptor.magic != known.magic:
        raise CheckFailedError(f"{library._name} is no edgepack model library.")
    if descriptor.abi_version != known.abi_version or descriptor.struct_size < ctypes.sizeof(
        structs.Descriptor
    ):
        raise CheckFailedError(
            f"{library._name} has ABI version {descriptor.abi_version}, this edgepack speaks "
            f"{known.abi_version}.",
            hint="Pack the model again, or use the edgepack that packed it.",
        )
    return descriptor


def _specs(tensors: Any, count: int) -> tuple[TensorSpec, ...]:
    dtypes = header().dtypes
    return tuple(
        TensorSpec(
            tensors[index].name.decode("utf-8"),
            dtypes[tensors[index].dtype],
            tuple(tensors[index].shape[axis] for axis in range(tensors[index].rank)),
        )
        for index in range(count)
    )
