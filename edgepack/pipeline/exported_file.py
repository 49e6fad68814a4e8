"""The file of a model that ``torch.export`` makes of what the user gives, with example inputs.

A module in memory is the user's own, and exported here. A file of TorchScript may be a stranger's: the worker
reads, runs and exports it, and this process sees nothing of it but the ``.pt2`` file, a stranger's as well.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgepack.errors import EdgepackError, InternalError
from edgepack.options import DEFAULT_TIMEOUT
from edgepack.pipeline.job import ExportJob
from edgepack.pipeline.model_objects import file_stem, model_file
from edgepack.pipeline.worker_process import Worker
from edgepack.programs.examples import encoded_dims, write_examples
from edgepack.programs.exporting import exported
from edgepack.system.confinement import Access
from edgepack.system.disk_errors import writing_to
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder

__all__ = ["exported_file"]

#: Suffixes of files that no example inputs make a program of.
_OTHERS = (".onnx", ".tflite", ".pt2")


@contextmanager
def exported_file(
    model: Any,
    name: str | None,
    example_inputs: Any,
    dynamic_shapes: Any,
    *,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Iterator[Path]:
    """The file of a model: as :func:`~edgepack.pipeline.model_objects.model_file` gives it, once what comes
    with ``example_inputs`` has been exported. Errors that leave the block name the user's file.

    Args:
        model: a path, or a model in memory.
        name: of the model, where the user chose one.
        example_inputs, dynamic_shapes: as of :func:`edgepack.pack`.
        timeout: seconds that the export of a file and the block may take together; 0 for no limit.

    Raises:
        ConfigError: an example is missing, does not fit, or is given for what is no module.
        ModelError: the module or file cannot be exported, or not in time.
    """
    if example_inputs is not None and isinstance(model, str | os.PathLike):
        script = Path(model)
        if script.suffix.lower() not in _OTHERS:  # the worker looks whether it is TorchScript
            stages = Stages(progress)
            seconds = DEFAULT_TIMEOUT if timeout is None else timeout
            with stages.within(seconds, f"Exporting {script.name}"), temporary_folder() as folder:
                file = folder / f"{file_stem(name or script.stem)}.pt2"
                _export(script, example_inputs, dynamic_shapes, file, stages)
                with _naming(script, file):
                    yield file
            return
    name, model = exported(name, model, example_inputs, dynamic_shapes)
    with model_file(model, name) as file:
        yield file


def _export(script: Path, example_inputs: Any, dynamic_shapes: Any, file: Path, stages: Stages) -> None:
    """Have the worker export a file of TorchScript into ``file``."""
    job = ExportJob(script, dims=encoded_dims(dynamic_shapes))
    folder = file.parent / "export"
    folder.mkdir()
    with writing_to({"temporary folder": Path(tempfile.gettempdir())}):
        write_examples(example_inputs, folder / job.examples)
    with Worker(progress=stages, access=job.access | Access(writes=(folder,))) as worker:
        worker.run(job, folder)
    made = folder / job.results[0]
    # The next worker is granted what lies here: a link that a taken one left would lead to another file.
    if not stat.S_ISREG(made.lstat().st_mode):
        raise InternalError(f"What exports {script.name} left no file.")
    made.rename(file)


@contextmanager
def _naming(script: Path, file: Path) -> Iterator[None]:
    """In errors that leave the block, the private ``file`` has the name of the user's."""
    try:
        yield
    except EdgepackError as error:
        for text in ("message", "hint", "detail"):
            said = getattr(error, text).replace(str(file), str(script))
            setattr(error, text, said.replace(file.name, script.name))
        raise
