"""An opened bundle, as Python programs use it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgepack.abi.pool import ClosedError, Pool, cores
from edgepack.bundle.layout import MANIFEST, find_bundle
from edgepack.bundle.libraries import check_library, check_whole_file
from edgepack.bundle.manifest import Tensor, load_manifest
from edgepack.bundle.paths import inside
from edgepack.bundle.structure import NestedRecord
from edgepack.client.arrays import Inputs, Outputs
from edgepack.client.nested import flat_inputs, nested_results
from edgepack.client.opened_model import OpenedModel
from edgepack.config.option_checks import check_whole
from edgepack.errors import ConfigError
from edgepack.options import PathLike
from edgepack.plan.types import LinearQuantisation, TensorSpec
from edgepack.runners import native
from edgepack.system.boundary import guarded
from edgepack.text.printable import printable

__all__ = ["Session"]


class HasPath(Protocol):
    """A bundle: what has its folder."""

    @property
    def path(self) -> Path:
        """The folder."""
        ...


class Session:
    """An opened model, for any number of threads: each run has a session of the library to itself, with its
    arena and threads. Any thread may close it at any time.

    Python's lock is released while the model computes, so a server gives runs to threads::

        import asyncio

        import numpy as np

        import edgepack

        async def main() -> None:
            with edgepack.load("dist/resnet18-host", threads=1) as session:

                async def answer(image):  # as a handler of FastAPI does
                    return await asyncio.to_thread(session.run, image)

                images = [np.full((1, 3, 224, 224), value, np.float32) for value in range(8)]
                for outputs in await asyncio.gather(*map(answer, images)):
                    print(*outputs)

        asyncio.run(main())

    It pickles as the bundle's path and these options, and is opened again where it is unpickled: in a process
    of multiprocessing or joblib. A child of a fork uses the one it has.

    Args:
        bundle: a bundle for this machine, or its folder.
        threads: how many compute in a run; default what the device's profile says.
        sessions: how many runs there are at once; further ones wait. Default the number of cores. Each has
            the memory of an arena, and is made when it is needed.
        check: compare all of the library and of the params with their hashes first. Without it, the library's
            size, headers and what the system's loader reads are looked at, and of the params the header.

    Raises:
        ConfigError: no bundle, one without a shared library, one for another machine, or a wrong option.
        CheckFailedError: the library is damaged, or refuses (a CPU without its features, params that are not
            its own, ...).

    Attributes:
        path: the bundle's folder.
        inputs, outputs: name, dtype and shape of each, in the model's order; ``quantisation`` has the
            ``scale`` and ``zero_point`` by which its integers mean numbers, or is None.
    """

    @guarded
    def __init__(
        self,
        bundle: HasPath | PathLike,
        *,
        threads: int | None = None,
        sessions: int | None = None,
        check: bool = False,
    ) -> None:
        self._pool: Pool | None = None
        self.path = find_bundle(_folder(bundle))
        check_whole("threads", threads, least=1)
        check_whole("sessions", sessions, least=1)
        self._options: dict[str, Any] = {"threads": threads, "sessions": sessions, "check": check}
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
        self._about = f"{printable(manifest.name)} on {printable(manifest.device.name)}"
        self._params_id = manifest.params.id
        self._nested = manifest.nested
        library = check_library(self.path, manifest, artifact, whole=check)
        params = inside(self.path, manifest.params.file) if manifest.params.file else None
        self._model = OpenedModel(library, manifest.symbol, params, threads, self.path)
        self.inputs = _with_quantisation(self._model.inputs, manifest.inputs)
        self.outputs = _with_quantisation(self._model.outputs, manifest.outputs)
        self._sources, self._results = Inputs(self.inputs), Outputs(self.outputs)
        try:
            # Of the model, not of this object, which would never be forgotten then.
            self._pool = Pool(self._model.make_session, sessions or cores())
        except BaseException:
            self._model.close()
            raise

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
        pool = self._opened()
        addresses: list[int] = []
        given: Any = inputs
        if len(inputs) == 1 and type(inputs[0]) is not np.ndarray:  # sooner than to ask for a mapping
            (only,) = inputs
            if type(only) is dict or isinstance(only, Mapping):
                given = only
        # Nobody else may keep these arrays until the run is over.
        values = self._sources.take(given, addresses)
        results = self._results.make(addresses)
        self._compute(pool, addresses)
        del values
        return results

    @guarded
    def call(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the model once as the PyTorch module was called that it was made of: ``session.call(batch)``.

        Args:
            arguments, keywords: nested as the example that the module was exported with, with arrays in the
                place of tensors. Constants of the example may be left out at the end.

        Returns:
            what the module returns, as :meth:`nested` makes it.

        Raises:
            ConfigError: the model was made of no module, or of one that keeps state, which :meth:`run` takes
                and gives by name; or the arguments do not fit.
            CheckFailedError: the library reports an error.
        """
        record = self._module()
        inputs = flat_inputs(record, arguments, keywords)
        given = [one.name for one in self.inputs]
        if state := [name for name in given if name not in inputs]:
            raise ConfigError(
                f"The model keeps state: its input {state[0]} is no argument of the module.",
                hint="outputs = session.run({...}) takes and gives it by name; session.nested(outputs) makes "
                "what the module returns of them.",
            )
        return self.nested(self.run({name: value for name, value in inputs.items() if name in given}))

    @guarded
    def nested(self, outputs: Mapping[str, Any]) -> Any:
        """Outputs, as :meth:`run` returns them, nested as what the PyTorch module returns: dicts, tuples and
        lists are such, named tuples are named tuples, and objects (dataclasses, model outputs)
        ``types.SimpleNamespace`` with the same fields.

        Raises:
            ConfigError: the model was made of no module, or an output is missing.
        """
        return nested_results(self._module(), outputs)

    @guarded
    def run_into(
        self,
        inputs: Mapping[str, Any] | Sequence[Any] | Any,
        outputs: Mapping[str, Any] | Sequence[Any] | Any,
    ) -> None:
        """Run the model once, with the results in arrays that are there: nothing is allocated, and nothing
        copied where inputs are C-contiguous and aligned.

        Args:
            inputs: a mapping of the inputs' names to arrays, a list of the arrays in the order of ``inputs``,
                or the one array. Dtypes and shapes as for :meth:`run`.
            outputs: the same of the outputs, each of exactly its output's dtype and shape, C-contiguous,
                aligned and writable. None overlaps another array.

        Raises:
            ConfigError: a name, type, dtype, shape or the number of arrays is wrong, an output cannot be
                written to or overlaps another array, or the session is closed.
            CheckFailedError: the library reports an error.
        """
        pool = self._opened()
        addresses: list[int] = []
        values = self._sources.take(inputs, addresses), self._results.take(outputs, addresses)
        self._compute(pool, addresses)
        del values

    def run_at(self, addresses: Sequence[int]) -> None:
        """Run the model once on memory that the caller answers for, such as tensors of PyTorch's.

        Args:
            addresses: of the inputs' memory, then of the outputs', in the model's order; the same tuple again
                takes less time than a list. Nothing is checked: each must be that of a C-contiguous tensor
                of its dtype and shape, aligned to its elements, in this process, and stay so until the run is
                over; no output overlaps another tensor.

        Raises:
            ConfigError: the session is closed.
            CheckFailedError: the library reports an error.
        """
        self._compute(self._opened(), addresses)

    @property
    def backend(self) -> str:
        """What computes: ``cpu``; a GPU's interface and name (``opencl: Mali-G78``); or ``cpu`` and, in
        brackets, why it is not the GPU that the bundle has kernels for."""
        with self._in_use():
            return self._model.backend

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._pool is None or not self._pool.open

    @guarded
    def check_params(self) -> None:
        """Hash all params; raises CheckFailedError if a byte of them has changed."""
        with self._in_use():
            self._model.check_params()

    def close(self) -> None:
        """End the threads and give the memory back, once what other threads began with it is done. Closing
        twice is fine.

        Raises:
            ConfigError: a signal's handler closes the session whose call it interrupted.
        """
        if self._pool is None:
            return
        try:
            self._pool.end(self._model.close)
        except RuntimeError as error:
            raise ConfigError(
                f"The session of {self.path} cannot be closed by the call that it would have to wait for.",
                hint="Close it when the call has returned, not in a signal's handler.",
            ) from error

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{printable(one.name)} {one.dtype}{list(one.shape)}" for one in side)
            for side in (self.inputs, self.outputs)
        )
        state = ", closed" if self.closed else ""
        return f"<edgepack.Session {self._about}: {inputs or 'nothing'} -> {outputs or 'nothing'}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        self._opened()
        return _reopened, (str(self.path.absolute()), self._params_id, self._options)

    def _module(self) -> NestedRecord:
        """How the module's arguments and results are nested. ConfigError if that is unknown."""
        if self._nested is None:
            raise ConfigError(
                f"The bundle {self.path} does not say how a module's arguments are nested.",
                hint="It is known of PyTorch modules and .pt2 files that are packed whole; Session.run takes "
                "arrays by name.",
            )
        return self._nested

    def _opened(self) -> Pool:
        """The sessions of the library. ConfigError if they are closed."""
        pool = self._pool
        if pool is None or not pool.open:
            raise self._closed()
        return pool

    def _compute(self, pool: Pool, addresses: Sequence[int]) -> None:
        """Run once on the arrays at these addresses, which the caller keeps until then."""
        try:
            status = pool.run(addresses)
        except ClosedError:
            raise self._closed() from None
        if status != 0:
            self._model.check(status, "run")

    def _closed(self) -> ConfigError:
        return ConfigError(
            f"The session of {self.path} is closed.", hint="Make a new one: edgepack.load(bundle)."
        )

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keeps the session open for a call of the library. ConfigError if it is closed."""
        try:
            with self._opened().held():
                yield
        except ClosedError:
            raise self._closed() from None


def _with_quantisation(specs: Sequence[TensorSpec], said: Sequence[Tensor]) -> tuple[TensorSpec, ...]:
    """A library's tensors, with what the manifest says of their integers."""
    known = {one.name: one.quantisation for one in said if one.quantisation is not None}
    meanings = {name: LinearQuantisation(one.scale, one.zero_point) for name, one in known.items()}
    return tuple(replace(spec, quantisation=meanings.get(spec.name)) for spec in specs)


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


def _reopened(path: str, params_id: str, options: dict[str, Any]) -> Session:
    """A session that was pickled, opened where it is unpickled."""
    if not os.path.lexists(Path(path) / MANIFEST):
        raise ConfigError(
            f"A pickled session cannot be opened: its bundle {path} is not there.",
            hint="A session pickles as its bundle's path: have the bundle at the same one here.",
        )
    session = Session(path, **options)
    if session._params_id != params_id:
        session.close()
        raise ConfigError(
            f"A pickled session cannot be opened: at {path} is another bundle than when it was pickled.",
            hint="Load the bundle here: edgepack.load(path).",
        )
    return session
