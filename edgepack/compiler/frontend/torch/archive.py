"""Reads a ``.pt2`` file without running anything of it.

``torch.export.load`` trusts its file: it executes ``guards_code``, writes names into Python source,
unpickles, evaluates symbolic sizes, resolves any name below ``torch``. So the archive is read by a schema
first (:mod:`.pt2`), what is not known is refused, and PyTorch reads a copy that is written of what was
looked at.
"""

from __future__ import annotations

import json
import pickle
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.user_arrays import read_array
from edgepack.compiler.frontend.torch.operators import refuse_other_operators
from edgepack.compiler.frontend.torch.pt2.copying import LookedThrough, look_through
from edgepack.compiler.frontend.torch.pt2.forms import RefusedError
from edgepack.compiler.frontend.torch.script.loading import example_of_script, load_script
from edgepack.errors import EdgepackError, ModelError
from edgepack.programs.examples import decoded_dims, read_examples
from edgepack.programs.exporting import EXTRA, exported_program
from edgepack.programs.quantised import define_operators
from edgepack.system.installation import extra_command

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["check_archive", "exported_script", "load_program", "script_program"]

#: What readers of zip files, JSON and pickles raise of damaged ones.
_DAMAGED = (
    zipfile.BadZipFile, OSError, ValueError, RecursionError, NotImplementedError, RuntimeError, EOFError,
    struct.error, AttributeError, KeyError, TypeError,
)  # fmt: skip


def load_program(model: Path, folder: Path) -> tuple[ExportedProgram, dict[str, Any]]:
    """A program, and what edgepack's exporter said of it (:data:`EXTRA`; {} where it is another's).

    Args:
        folder: where the copy is while PyTorch reads it.

    Raises:
        ModelError: the file is damaged, of another version, or holds more than data; or PyTorch is missing.
    """
    copy = folder / "checked.pt2"
    found = _looked_through(model, copy)
    torch = _torch()
    try:
        define_operators(found.libraries, str(model))
        refuse_other_operators(found.program)
        with _nothing_is_unpickled(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.export.pt2_archive._package import load_pt2  # torch.export.load hides what went wrong

            contents = load_pt2(str(copy))
            program = contents.exported_programs["model"]
    except EdgepackError:
        raise
    except RefusedError as refused:
        raise _not_read(model, refused) from None
    except Exception as error:  # PyTorch's own, of many classes
        raise ModelError(
            f"{model} cannot be read by PyTorch {torch.__version__}: {_first_line(error)}",
            hint="Save it again with the version of PyTorch that is installed here. Types of inputs and "
            "outputs that are not PyTorch's (dataclasses, model outputs) are known to the program only "
            "that exported it: give edgepack.pack the module there.",
        ) from error
    finally:
        copy.unlink(missing_ok=True)
    return program, json.loads(contents.extra_files.get(EXTRA, "{}"))


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


def exported_script(model: Path, examples: Path, dims: Any) -> ExportedProgram:
    """The program of a file of TorchScript, with the example inputs in a file, beside which a copy is while
    PyTorch reads it.

    Args:
        examples, dims: as :mod:`edgepack.programs.examples` writes and encodes them.

    Raises:
        ModelError: the file cannot be read or exported; or PyTorch is missing.
        ConfigError: the examples do not fit.
    """
    _torch()
    script = load_script(model, examples.parent)
    return exported_program(script, read_examples(examples), decoded_dims(dims))


def check_archive(model: Path, copy: Path | None = None) -> set[str]:
    """Looks through an archive; :class:`ModelError` names what is not data in it.

    Args:
        copy: what was looked at is written there, an archive of these entries and nothing else.

    Returns:
        the libraries whose operators its program calls (``aten``).
    """
    return _looked_through(model, copy).libraries


def _looked_through(model: Path, copy: Path | None) -> LookedThrough:
    try:
        with zipfile.ZipFile(model) as archive:
            found = look_through(archive, model.stat().st_size)
            if copy is not None:
                found.write(archive, copy)
            return found
    except RefusedError as refused:
        raise _not_read(model, refused) from None
    except FileNotFoundError:
        raise ModelError(f"There is no model file {model}.", hint="Check the path.") from None
    except _DAMAGED as error:
        raise ModelError(
            f"{model} is no file of torch.export.save, or it is damaged: {_first_line(error)}",
            hint="Save the program again: torch.export.save(torch.export.export(module, example), path).",
        ) from error


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
            hint=extra_command("torch") + " (PyTorch without CUDA is enough)",
        ) from error
    return torch


def _not_read(model: Path, refused: RefusedError) -> ModelError:
    """What is said of a file that is not of the schema."""
    if refused.instead:
        reader = "edgepack"
        if "{reader}" in refused.instead and sys.modules.get("torch") is not None:
            reader = f"the installed PyTorch {sys.modules['torch'].__version__}"
        said = refused.instead.replace("{reader}", reader).replace("{model}", str(model))
        return ModelError(said, hint=refused.hint)
    what = f"{refused.place().strip()} {refused.what}".strip()
    return ModelError(
        f"{model} is not read: {what}, and reading it could run code of whoever made the file.",
        hint=refused.hint or "If it is yours, give edgepack.pack the module itself, or export it again.",
    )


def _first_line(error: BaseException) -> str:
    """What an error says in a line; of one that PyTorch found in a node, not the node but the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    said = lines[-1] if any("Original exception" in line for line in lines) else lines[0]
    return f"{said[:300].rstrip('.')}."
