"""Runs a bundle in this process: its shared library through its C ABI, numpy arrays in and out."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from edgepack import abi
from edgepack.boundary import guarded
from edgepack.bundle.layout import find_bundle
from edgepack.bundle.libraries import check_library, check_whole_file
from edgepack.bundle.manifest import load_manifest
from edgepack.bundle.paths import inside
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.option_checks import check_whole
from edgepack.options import PathLike
from edgepack.plan.types import TensorSpec
from edgepack.runners import native

__all__ = ["Session"]

# numpy has no bfloat16: its bits.
_NUMPY = {"bfloat16": "uint16"}


class HasPath(Protocol):
    """A bundle: what has its folder."""

    @property
    def path(self) -> Path:
        """The folder."""
        ...


class Session:
    """An opened model with its arena and threads. One run at a time (a second one, in another thread, is a
    CheckFailedError that says so); several sessions may run at once. Any thread may close it at any time.

    Args:
        bundle: a bundle for this machine, or its folder.
        threads: how many compute; default what the device's profile says.
        check: compare all of the library and of the params with their hashes first. Without it, the library's
            size, headers and what the system's loader reads are looked at, and of the params the header.

    Raises:
        ConfigError: no bundle, one without a shared library, one for another machine, or a wrong option.
        CheckFailedError: the library is damaged, or refuses (a CPU without its features, params that are not
            its own, ...).

    Attributes:
        path: the bundle's folder.
        inputs, outputs: name, dtype and shape of each, in the model's order.
    """

    @guarded
    def __init__(
        self, bundle: HasPath | PathLike, *, threads: int | None = None, check: bool = False
    ) -> None:
        self._users = abi.Users()
        self._handle: abi.SessionHandle | None = None
        self._model = abi.Model()
        self.path = find_bundle(_folder(bundle))
        check_whole("threads", threads, least=1)
        manifest = load_manifest(self.path)
        artifact = manifest.artifact("shared")
        if artifact is None:
            raise ConfigError(
                f"The bundle {self.path} has no shared library.",
                hint="Pack for a device whose artifacts include `shared`.",
            )
        ok, _, hint = native.available(manifest.device)
        if not ok:
            raise ConfigError(
                f"The bundle {self.path} is for {manifest.device.name} and cannot be loaded here.", hint=hint
            )
        if check and manifest.params.file:
            check_whole_file(self.path, manifest, manifest.params.file)
        self._library = _open_library(check_library(self.path, manifest, artifact, whole=check))
        self._descriptor = _descriptor(self._library, manifest.symbol)
        self._api = self._descriptor.api.contents
        self.inputs = _specs(self._descriptor.inputs, self._descriptor.input_count)
        self.outputs = _specs(self._descriptor.outputs, self._descriptor.output_count)
        params = inside(self.path, manifest.params.file) if manifest.params.file else None
        self._open(params, threads or 0)

    @guarded
    def run(self, *inputs: Mapping[str, Any] | Any) -> dict[str, NDArray[Any]]:
        """Run the model once: ``run({"ids": x, "mask": y})``, ``run(x, y)``, or ``run(x)`` for one input.

        Args:
            inputs: a mapping of the inputs' names to arrays; or the arrays, in the order of ``inputs``. Each
                has exactly its input's dtype and shape (bfloat16: uint16, its bits). An array that is not
                C-contiguous or not aligned is copied.

        Returns:
            new arrays by output name.

        Raises:
            ConfigError: a name, type, dtype, shape or the number of arrays is wrong, or the session is
                closed.
            CheckFailedError: the library reports an error.
        """
        self._check_open()
        arrays = _check_inputs(self.inputs, _by_name(self.inputs, inputs))
        results = {spec.name: np.empty(spec.shape, _numpy_dtype(spec)) for spec in self.outputs}
        sources = (abi.ConstBuffer * max(1, len(arrays)))(
            *(abi.ConstBuffer(array.ctypes.data, array.nbytes) for array in arrays)
        )
        targets = (abi.Buffer * max(1, len(results)))(
            *(abi.Buffer(array.ctypes.data, array.nbytes) for array in results.values())
        )
        with self._in_use() as handle:
            status = self._api.session_run(handle, sources, len(arrays), targets, len(results))
        self._check(status, "run")
        return results

    @property
    def backend(self) -> str:
        """What computes: ``cpu``; a GPU's interface and name (``opencl: Mali-G78``); or ``cpu`` and, in
        brackets, why it is not the GPU that the bundle has kernels for."""
        with self._in_use():
            return abi.backend_of(self._api, self._model)

    @guarded
    def check_params(self) -> None:
        """Hash all params; raises CheckFailedError if a byte of them has changed."""
        with self._in_use():
            status = self._api.model_check_params(ctypes.byref(self._model))
        self._check(status, "check its params")

    def close(self) -> None:
        """End the session's threads and give its memory back, once what other threads began with it is done.
        Closing twice is fine.

        Raises:
            ConfigError: a signal's handler closes the session whose call it interrupted.
        """
        try:
            self._users.end(self._destroy)
        except RuntimeError as error:
            raise ConfigError(
                f"The session of {self.path} cannot be closed by the call that it would have to wait for.",
                hint="Close it when the call has returned, not in a signal's handler.",
            ) from error

    def _destroy(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._api.session_destroy(handle)
            self._api.model_close(ctypes.byref(self._model))

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"The session of {self.path} cannot be copied; edgepack.load makes another one.")

    def _open(self, params: Path | None, threads: int) -> None:
        path = None if params is None else os.fsencode(params.absolute())
        if os.name == "nt" and params is not None:
            path = str(params.absolute()).encode("utf-8")
        descriptor = ctypes.byref(self._descriptor)
        self._check(self._api.model_open(descriptor, path, ctypes.byref(self._model)), "open")
        options = abi.Options(struct_size=ctypes.sizeof(abi.Options), threads=threads)
        handle = abi.SessionHandle()
        status = self._api.session_create(
            ctypes.byref(self._model), ctypes.byref(options), ctypes.byref(handle)
        )
        if status != 0:
            self._api.model_close(ctypes.byref(self._model))
        self._check(status, "make a session")
        self._handle = handle

    def _check_open(self) -> None:
        if not self._users.open:
            raise ConfigError(
                f"The session of {self.path} is closed.", hint="Make a new one: edgepack.load(bundle)."
            )

    @contextmanager
    def _in_use(self) -> Iterator[abi.SessionHandle | None]:
        """Keeps the session open for a call of the library. ConfigError if it is closed."""
        with self._users.call() as entered:
            if not entered:
                self._check_open()
            yield self._handle

    def _check(self, status: int, what: str) -> None:
        if status == 0:
            return
        known = abi.header().statuses.get(status, abi.Status(f"status {status}", "Unknown status."))
        missing = ""
        if known.name == "EP_E_CPU":
            text = ctypes.create_string_buffer(512)
            self._api.missing_features(ctypes.byref(self._descriptor), text, len(text))
            missing = f" Missing: {text.value.decode()}."
        raise CheckFailedError(f"{self.path} could not {what} ({known.name}): {known.text}{missing}")


def _open_library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise CheckFailedError(
            f"{path} cannot be loaded: {error}.", hint="Check the bundle with `edgepack verify`."
        ) from error


def _descriptor(library: ctypes.CDLL, symbol: str) -> abi.Descriptor:
    """The library's descriptor, if this header may talk to it: what the C header's ep_descriptor_check
    does."""
    try:
        descriptor = abi.Descriptor.in_dll(library, symbol)
    except ValueError as error:
        raise CheckFailedError(f"{library._name} does not export {symbol}.") from error
    header = abi.header()
    if descriptor.magic != header.magic:
        raise CheckFailedError(f"{library._name} is no edgepack model library.")
    if descriptor.abi_version != header.abi_version or descriptor.struct_size < ctypes.sizeof(abi.Descriptor):
        raise CheckFailedError(
            f"{library._name} has ABI version {descriptor.abi_version}, this edgepack speaks "
            f"{header.abi_version}.",
            hint="Pack the model again, or use the edgepack that packed it.",
        )
    return descriptor


def _specs(tensors: Any, count: int) -> tuple[TensorSpec, ...]:
    dtypes = abi.header().dtypes
    return tuple(
        TensorSpec(
            tensors[index].name.decode("utf-8"),
            dtypes[tensors[index].dtype],
            tuple(tensors[index].shape[axis] for axis in range(tensors[index].rank)),
        )
        for index in range(count)
    )


def _numpy_dtype(spec: TensorSpec) -> np.dtype[Any]:
    return np.dtype(_NUMPY.get(spec.dtype, spec.dtype))


def _folder(bundle: Any) -> Path:
    """The path of a bundle or of its folder."""
    path = getattr(bundle, "path", bundle)
    if not isinstance(path, str | os.PathLike):
        kind = type(bundle).__name__
        raise ConfigError(
            f"A bundle or the path of its folder is loaded, not a value of type {kind}.",
            hint="edgepack.pack returns a bundle.",
        )
    return Path(path)


def _by_name(specs: tuple[TensorSpec, ...], given: tuple[Any, ...]) -> Mapping[str, Any]:
    """What was given to ``run``, by the inputs' names."""
    if len(given) == 1 and isinstance(given[0], Mapping):
        return given[0]
    names = ", ".join(spec.name for spec in specs) or "none"
    if len(given) != len(specs):
        raise ConfigError(
            f"{len(given)} array{'s are' if len(given) != 1 else ' is'} given, the model has {len(specs)} "
            f"input{'s' if len(specs) != 1 else ''}: {names}.",
            hint="Give run() the arrays in this order, or a mapping of the inputs' names to them.",
        )
    return dict(zip((spec.name for spec in specs), given, strict=True))


def _array(spec: TensorSpec, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception as error:  # of whatever type's own conversion
        raise ConfigError(
            f"Input {spec.name}: no array can be made of a value of type {type(value).__name__}: {error}",
            hint=f"The model takes a NumPy array of {_numpy_dtype(spec)} with shape {spec.shape}.",
        ) from error
    if array.dtype.kind in "OSUMm":
        raise ConfigError(
            f"Input {spec.name} is a value of type {type(value).__name__}, no array of numbers.",
            hint=f"The model takes a NumPy array of {_numpy_dtype(spec)} with shape {spec.shape}.",
        )
    return array


def _check_inputs(specs: tuple[TensorSpec, ...], inputs: Mapping[str, Any]) -> list[NDArray[Any]]:
    names = [spec.name for spec in specs]
    missing = [name for name in names if name not in inputs]
    unknown = [str(name) for name in inputs if name not in names]
    if missing or unknown:
        parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [
            f"unknown: {', '.join(unknown)}"
        ] * bool(unknown)
        raise ConfigError(
            f"The inputs are not the model's; {'; '.join(parts)}.", hint=f"It has: {', '.join(names)}."
        )
    arrays = []
    for spec in specs:
        array = _array(spec, inputs[spec.name])
        wanted = _numpy_dtype(spec)
        if array.dtype != wanted:
            raise ConfigError(
                f"Input {spec.name} is {array.dtype}, the model takes {wanted}.",
                hint=f'Convert it: x.astype("{wanted}").',
            )
        if array.shape != spec.shape:
            raise ConfigError(f"Input {spec.name} has shape {array.shape}, the model takes {spec.shape}.")
        arrays.append(np.require(array, requirements=["C", "A"]))
    return arrays
