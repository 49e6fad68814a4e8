"""Imports and compiles a model: each step by the worker, or from the cache of what it did before."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from edgepack.errors import ModelError
from edgepack.pipeline.cache import Cache, compile_key, import_key, quantise_key
from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import (
    CheckJob,
    CompareJob,
    DrawJob,
    ImportJob,
    Job,
    LayersJob,
    QuantiseJob,
    ReadJob,
    SummariseJob,
)
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.model_summary import ModelSummary
from edgepack.plan.quantisation import CALIBRATION_SUFFIXES, QuantisationFigures
from edgepack.system.confinement import Access
from edgepack.system.files import combined_digest, is_file
from edgepack.system.progress import Stages
from edgepack.system.temporary import temporary_folder

__all__ = [
    "Compiler",
    "Imported",
    "ModelIdentity",
    "Quantised",
    "data_files",
    "identified",
    "identify",
    "quantisation_figures",
    "summarise",
]

#: How long a file may be looked at.
_SECONDS, _BYTES_A_SECOND = 120, 10_000_000

#: A job that reads a model.
_J = TypeVar("_J", CheckJob, CompareJob, DrawJob, ImportJob, LayersJob, QuantiseJob)


@dataclass(frozen=True)
class Imported:
    """A model that was prepared for any target.

    Attributes:
        model: its file.
        folder: with the results of its :class:`~edgepack.pipeline.job.ImportJob`.
        digest: SHA-256 over the model's files, in hex.
        key: what names these results in the cache.
        frontend: name of what made them.
    """

    model: Path
    folder: Path
    digest: str
    key: str
    frontend: str


@dataclass(frozen=True)
class Quantised:
    """A model that was quantised on the way to a bundle.

    Attributes:
        folder: with the results of its :class:`~edgepack.pipeline.job.QuantiseJob`.
        digest: SHA-256 over the float model's files, in hex.
        calibration_digest: that over the files of the calibration data; "" for random ones.
        figures: what became of it.
    """

    folder: Path
    digest: str
    calibration_digest: str
    figures: QuantisationFigures

    @property
    def file(self) -> Path:
        """The quantised model."""
        return self.folder / "quantised.onnx"


@dataclass(frozen=True)
class ModelIdentity:
    """What a model is, wherever it lies.

    Attributes:
        digest: SHA-256 over its files, in hex.
        frontend: name of what reads them.
        data: the files that belong to it besides its own.
    """

    digest: str
    frontend: str
    data: tuple[Path, ...] = ()


def identify(model: Path, worker: Worker, folder: Path) -> ModelIdentity:
    """Have the worker look what reads a model, and which files belong to it.

    Args:
        folder: for the worker's job; must exist.

    Raises:
        EdgepackError: as :meth:`Worker.run`.
        ModelError: a file that belongs to it does not lie beside it.
    """
    frontend, files = _read(model, worker, folder)
    return ModelIdentity(combined_digest(files), frontend, _but(model, files))


def identified(job: _J, worker: Worker, folder: Path) -> _J:
    """A job that knows what reads its model, and which files belong to it; otherwise as :func:`identify`."""
    frontend, files = _read(job.model, worker, folder)
    return replace(job, frontend=frontend, data=_but(job.model, files))


def data_files(model: Path, worker: Worker, folder: Path) -> tuple[Path, ...]:
    """The files that belong to a model besides its own; otherwise as :func:`identify`."""
    return _but(model, _read(model, worker, folder)[1])


def _read(model: Path, worker: Worker, folder: Path) -> tuple[str, list[Path]]:
    """What reads a model, and its files, which lie beside it."""
    answer = worker.run(ReadJob(model), folder)
    # The worker's encoding is UTF-8, whatever this process's is.
    files = [Path(os.fsdecode(file.encode("utf-8", "surrogateescape"))) for file in answer["files"]]
    for file in files:
        _check_beside(model, file)
    return answer["frontend"], files


def _but(model: Path, files: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(file for file in files if file != model.absolute())


def _check_beside(model: Path, file: Path) -> None:
    """The worker is given what it names as a part of the model, if that lies in the model's folder, also
    behind links."""
    real, beside = file.resolve(), model.absolute().parent
    folders = {beside.resolve(), model.resolve().parent}
    below = file.is_relative_to(beside) and ".." not in file.relative_to(beside).parts
    if not below or not any(folder in real.parents for folder in folders):
        raise ModelError(
            f"{model} keeps weights in {file.name}, which leads out of its folder, to {real}.",
            hint=f"Put the file itself beside the model, in {model.parent}.",
        )


class Compiler:
    """Imports and compiles models by a worker, and keeps what it did.

    Args:
        worker: does the work.
        cache: where to look first, and to keep results; None for neither.
    """

    def __init__(self, worker: Worker, cache: Cache | None) -> None:
        self._worker = worker
        self._cache = cache

    def import_model(self, job: ImportJob, folder: Path) -> Imported:
        """Prepare a model for any target, and record what it computes, in ``folder``, which is made.

        Raises:
            EdgepackError: as :meth:`Worker.run`.
        """
        folder.mkdir(parents=True)
        self._worker.progress("read model", "")
        found = identify(job.model, self._worker, folder)
        job = replace(job, frontend=found.frontend, data=found.data)
        key = import_key(job, found.digest)
        self._do(job, key, folder)
        return Imported(job.model, folder, found.digest, key, found.frontend)

    def quantise_model(self, job: QuantiseJob, folder: Path) -> Quantised:
        """Make a quantised model of a float one in ``folder``, which is made.

        Raises:
            EdgepackError: as :meth:`Worker.run`.
        """
        folder.mkdir(parents=True)
        self._worker.progress("read model", "")
        found = identify(job.model, self._worker, folder)
        job = replace(job, frontend=found.frontend, data=found.data)
        calibration = _calibration_digest(job.calibration)
        self._do(job, quantise_key(job, found.digest, calibration), folder)
        return Quantised(folder, found.digest, calibration, quantisation_figures(folder))

    def compile_model(self, job: CompileJob, imported: Imported, folder: Path) -> None:
        """Compile an imported model for a target, in ``folder``, which is made. A job that leaves texts of
        its stages is done anew: the cache gets its results, but has no such texts.

        Raises:
            EdgepackError: as :meth:`Worker.run`.
        """
        folder.mkdir(parents=True)
        self._do(job, compile_key(job, imported.key), folder, anew=job.stages is not None)

    def _do(self, job: Job, key: str, folder: Path, *, anew: bool = False) -> None:
        """``anew``: even where the cache has the results."""
        progress = self._worker.progress
        if self._cache is not None:
            progress("look in the cache", "")
            if not anew and self._cache.fetch(key, folder):
                return
            with self._cache.reserved(key, progress):
                if not anew and self._cache.fetch(key, folder):  # another process has made it meanwhile
                    return
                self._run(job, folder)
                self._cache.store(key, folder)
            return
        self._run(job, folder)

    def _run(self, job: Job, folder: Path) -> None:
        self._worker.progress("start the compiler", "")
        self._worker.run(job, folder)


def quantisation_figures(folder: Path) -> QuantisationFigures:
    """What a :class:`~edgepack.pipeline.job.QuantiseJob` found, whose results lie in ``folder``."""
    return QuantisationFigures.from_json(json.loads((folder / "figures.json").read_text(encoding="utf-8")))


def _calibration_digest(path: Path | None) -> str:
    """SHA-256, in hex, over the files of calibration data; "" for random ones. What is wrong with them is
    said by the worker: a path that is not there is no random data, whose results may be kept."""
    if path is None:
        return ""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return combined_digest(
        file for file in files if file.is_file() and (file == path or file.suffix in CALIBRATION_SUFFIXES)
    )


def summarise(model: Path) -> ModelSummary:
    """What is in a model's file.

    Raises:
        ModelError: it cannot be read.
        OutOfTimeError: not in two minutes and a second for each 10 MB.
    """
    seconds = _SECONDS + (model.stat().st_size // _BYTES_A_SECOND if is_file(model) else 0)
    stages = Stages(None)
    hint = "Look whether its files can be read: they may lie on a disk that does not answer."
    with (
        stages.within(seconds, f"Reading {model.name}", hint=hint),
        temporary_folder() as folder,
        Worker(progress=stages, access=SummariseJob(model).access | Access(writes=(folder,))) as worker,
    ):
        job = SummariseJob(model, data_files(model, worker, folder))
        return ModelSummary.from_json(worker.run(job, folder))
