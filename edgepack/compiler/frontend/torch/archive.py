"""Reads a ``.pt2`` file without running anything of it.

``torch.export.load`` trusts its file: it unpickles what calls itself a tensor, evaluates symbolic sizes as
Python, and resolves any name below ``torch`` as an operator. So the archive is looked through first, and what
is more than data is refused (pickles, compiled libraries, and what :mod:`.program_json` finds).
PyTorch then reads a copy that is written of what was looked at, for two readers of zip files may see two
archives in one file. Example inputs are read with ``weights_only=True``.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.user_arrays import read_array
from edgepack.compiler.frontend.torch.foreign import refuse_programs_of_others
from edgepack.compiler.frontend.torch.program_json import libraries, more_than_data
from edgepack.errors import EdgepackError, ModelError
from edgepack.programs.exporting import EXTRA, exported_program
from edgepack.programs.quantised import define_operators
from edgepack.programs.torchscript import example_of_script, load_script

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["check_archive", "load_program", "script_program"]

#: What torch.export.save writes, below a folder of any name.
_ENTRIES = re.compile(
    r"models/\w+\.json|data/(?:weights|constants)/\w+(?:\.\w+)?|data/sample_inputs/\w+\.pt|extra/.+"
    r"|archive_format|archive_version|byteorder|version|\.format_version|\.storage_alignment"
    r"|\.data/(?:version|serialization_id)"
)
_PROGRAM = re.compile(r"models/\w+\.json")
_CONFIG = re.compile(r"data/(?:weights|constants)/.*\.json", re.IGNORECASE)
#: What an archive's JSON raises where it is of another form.
_ODD = (AttributeError, KeyError, TypeError)


def load_program(model: Path, folder: Path) -> tuple[ExportedProgram, dict[str, Any]]:
    """A program, and what edgepack's exporter said of it (:data:`EXTRA`; {} where it is another's).

    Args:
        folder: where the copy is while PyTorch reads it.

    Raises:
        ModelError: the file is damaged, of another version, or holds more than data; or PyTorch is missing.
    """
    torch = _torch()
    copy = folder / "checked.pt2"
    called = check_archive(model, copy)
    extra = {EXTRA: ""}
    try:
        refuse_programs_of_others(model, copy)
        define_operators(called, str(model))
        with _nothing_is_unpickled(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(copy, extra_files=extra)
    except EdgepackError:
        raise
    except Exception as error:  # PyTorch's own, of many classes
        raise ModelError(
            f"{model} cannot be read by PyTorch {torch.__version__}: {_first_line(error)}",
            hint="Save it again with the version of PyTorch that is installed here. Types of inputs and "
            "outputs that are not PyTorch's (dataclasses, model outputs) are known to the program only "
            "that exported it: give edgepack.pack the module there.",
        ) from error
    finally:
        copy.unlink(missing_ok=True)
    try:
        said = json.loads(extra[EXTRA]) if extra[EXTRA] else {}
    except ValueError as error:
        raise ModelError(f"{model} is damaged: {EXTRA} in it is no JSON.", hint="Export it again.") from error
    return program, said if isinstance(said, dict) else {}


def script_program(
    model: Path, folder: Path, shapes: Mapping[str, Sequence[int]], files: Mapping[str, Path]
) -> ExportedProgram:
    """The program of a file of TorchScript, with example inputs of these shapes or files.

    Args:
        folder: where a copy is while PyTorch reads it.
        shapes: of inputs of float32, by name.
        files: ``.npy`` files of inputs, by name.

    Raises:
        ModelError: the file cannot be read or exported; or PyTorch is missing.
        ConfigError: nothing is said of an input.
    """
    _torch()
    script = load_script(model, folder)
    arrays = {name: read_array("--input", name, path) for name, path in files.items()}
    return exported_program(script, example_of_script(script, arrays, shapes, str(model)))


def check_archive(model: Path, copy: Path | None = None) -> set[str]:
    """Looks through an archive; :class:`ModelError` names what is not data in it.

    Args:
        copy: what was looked at is written there, an archive of these entries and nothing else.

    Returns:
        the libraries whose operators its programs call (``aten``).
    """
    try:
        with zipfile.ZipFile(model) as archive:
            called = _check_entries(model, archive)
            if copy is not None:
                _write(archive, copy)
            return called
    except FileNotFoundError:
        raise ModelError(f"There is no model file {model}.", hint="Check the path.") from None
    except (zipfile.BadZipFile, OSError, ValueError, RecursionError, NotImplementedError, *_ODD) as error:
        raise ModelError(
            f"{model} is no file of torch.export.save, or it is damaged: {_first_line(error)}",
            hint="Save the program again: torch.export.save(torch.export.export(module, example), path).",
        ) from error


def _check_entries(model: Path, archive: zipfile.ZipFile) -> set[str]:
    called: set[str] = set()
    entries = [(one, *one.filename.partition("/")[::2]) for one in archive.infolist()]
    if not any(_PROGRAM.fullmatch(name) for _, _, name in entries):
        raise ModelError(
            f"{model} holds no exported program (models/model.json).",
            hint="TorchScript files are called .pt; pickled modules are not read.",
        )
    if (
        len({name.lower() for _, _, name in entries}) < len(entries)
        or len({top for _, top, _ in entries}) > 1
    ):
        raise _not_data(model, "two entries in it have one name, or it has two folders")
    for one, _, name in entries:
        if name.startswith("data/aotinductor/"):
            raise _not_data(model, "it holds libraries that AOTInductor compiled")
        if not _ENTRIES.fullmatch(name):
            raise _not_data(model, f"{name!r:.80} in it is nothing that torch.export.save writes")
        if one.compress_type != zipfile.ZIP_STORED:
            raise _not_data(model, f"{name} is compressed, which torch.export.save never does")
        if _PROGRAM.fullmatch(name):
            text = archive.read(one).decode("utf-8")
            if said := more_than_data(json.loads(text)):
                raise _not_data(model, said)
            called |= libraries(text)
        if _CONFIG.fullmatch(name):
            for key, payload in json.loads(archive.read(one))["config"].items():
                if payload["use_pickle"] is not False:
                    raise _not_data(model, f"{key!r} in it is pickled")
    return called


def _write(archive: zipfile.ZipFile, copy: Path) -> None:
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as made:
        for one in archive.infolist():
            with archive.open(one) as read, made.open(one.filename, "w", force_zip64=True) as written:
                shutil.copyfileobj(read, written, 1 << 20)


@contextmanager
def _nothing_is_unpickled() -> Iterator[None]:
    """While it is open, PyTorch reads tensors only (``weights_only=True``), whatever its loaders ask for."""
    import torch
    from torch.export.pt2_archive import _package

    package: Any = _package

    def tensors_only(*args: Any, **keywords: Any) -> Any:
        return original(*args, **{**keywords, "weights_only": True})

    class Refusing:
        """In the place of the module ``pickle`` there."""

        def __getattr__(self, name: str) -> Any:
            if name in {"load", "loads", "Unpickler"}:
                raise RuntimeError("the file holds pickled objects")
            return getattr(pickle, name)

    original, torch.load = torch.load, tensors_only
    module, package.pickle = package.pickle, Refusing()
    try:
        yield
    finally:
        torch.load, package.pickle = original, module


def _torch() -> Any:
    """The module; ModelError says how to get it."""
    if sys.modules.get("torch", 0) is None:  # the worker's doing, see there
        del sys.modules["torch"]
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise ModelError(
            f"PyTorch is needed to read .pt2 files, and is not installed here ({_first_line(error)})",
            hint='pip install "edgepack[torch]" (PyTorch without CUDA is enough).',
        ) from error
    return torch


def _not_data(model: Path, what: str) -> ModelError:
    return ModelError(
        f"{model} is not read: {what}, and reading it could run code of whoever made the file.",
        hint="If it is yours, give edgepack.pack the module itself, or export it again.",
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{lines[0].rstrip('.')}." if lines else f"{type(error).__name__}."
