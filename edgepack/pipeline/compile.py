"""Imports and compiles a model: each step by the worker, or from the cache of what it did before."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from edgepack.options import DEFAULT_TIMEOUT
from edgepack.pipeline.cache import Cache, compile_key, import_key
from edgepack.pipeline.job import CompileJob, ImportJob, Job, ReadJob, SummariseJob
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.model_summary import ModelSummary
from edgepack.system.files import combined_digest
from edgepack.system.progress import Stages
from edgepack.system.temporary import temporary_folder

__all__ = ["Compiler", "Imported", "ModelIdentity", "identify", "summarise"]


@dataclass(frozen=True)
class Imported:
    """A model that was prepared for any target.

    Attributes:
        folder: with the results of its :class:`~edgepack.pipeline.job.ImportJob`.
        digest: SHA-256 over the model's files, in hex.
        key: what names these results in the cache.
        frontend: name of what made them.
    """

    folder: Path
    digest: str
    key: str
    frontend: str


@dataclass(frozen=True)
class ModelIdentity:
    """What a model is, wherever it lies.

    Attributes:
        digest: SHA-256 over its files, in hex.
        frontend: name of what reads them.
    """

    digest: str
    frontend: str


def identify(model: Path, worker: Worker, folder: Path) -> ModelIdentity:
    """Have the worker look what reads a model, and which files belong to it.

    Args:
        folder: for the worker's job; must exist.

    Raises:
        EdgepackError: as :meth:`Worker.run`.
    """
    answer = worker.run(ReadJob(model), folder)
    # The worker's encoding is UTF-8, whatever this process's is.
    files = (os.fsdecode(file.encode("utf-8", "surrogateescape")) for file in answer["files"])
    return ModelIdentity(combined_digest(Path(file) for file in files), answer["frontend"])


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
        job = replace(job, frontend=found.frontend)
        key = import_key(job, found.digest)
        self._do(job, key, folder)
        return Imported(folder, found.digest, key, found.frontend)

    def compile_model(self, job: CompileJob, imported: Imported, folder: Path) -> None:
        """Compile an imported model for a target, in ``folder``, which is made.

        Raises:
            EdgepackError: as :meth:`Worker.run`.
        """
        folder.mkdir(parents=True)
        self._do(job, compile_key(job, imported.key), folder)

    def _do(self, job: Job, key: str, folder: Path) -> None:
        progress = self._worker.progress
        if self._cache is not None:
            progress("look in the cache", "")
            if self._cache.fetch(key, folder):
                return
            with self._cache.reserved(key, progress):
                if self._cache.fetch(key, folder):  # another process has made it meanwhile
                    return
                self._run(job, folder)
                self._cache.store(key, folder)
            return
        self._run(job, folder)

    def _run(self, job: Job, folder: Path) -> None:
        self._worker.progress("start the compiler", "")
        self._worker.run(job, folder)


def summarise(model: Path) -> ModelSummary:
    """What is in a model's file. Raises ModelError for one that cannot be read."""
    stages = Stages(None)
    hint = "Look whether its files can be read: they may lie on a disk that does not answer."
    with (
        stages.within(DEFAULT_TIMEOUT, f"Reading {model.name}", hint=hint),
        Worker(progress=stages) as worker,
        temporary_folder() as folder,
    ):
        return ModelSummary.from_json(worker.run(SummariseJob(model), Path(folder)))
