"""Reads a ``.pt2`` file without running anything of it.

``torch.export.load`` trusts its file: it unpickles what calls itself a tensor, evaluates symbolic sizes as
Python (``sympy.sympify``), and resolves any name below ``torch`` as an operator. So the archive is looked
through first, and what is more than data is refused: pickles (but for example inputs, which are read with
``weights_only=True``), compiled libraries of AOTInductor, expressions that are no arithmetic, and calls of
anything but operators.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.errors import ModelError
from edgepack.programs.exporting import EXTRA

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["check_archive", "load_program"]


#: What an archive's JSON raises where it is of another form.
_ODD = (AttributeError, KeyError, TypeError)
#: Functions that serialised graphs call: operators of these libraries, and arithmetic of sizes.
_CALLED = re.compile(
    r"torch\.ops\.(?:aten|prims|prim|quantized_decomposed|torchao|torchvision|higher_order|_quantized)\.\w+(?:\.\w+)?"
    r"|_operator\.(?:getitem|add|sub|mul|floordiv|mod|truediv|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|math\.(?:ceil|floor|trunc|sqrt)"
    r"|torch\.(?:sym_\w+|_sym_\w+|_check|_check_is_size)"
)
#: A token of a symbolic size; two names or numbers never stand side by side, and nothing is an attribute.
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*|'[suz][fi]?\d+')|(?P<number>\d+(?:\.\d+)?)|(?P<other>\*\*|//|[<>=!]=|[-+*/%(),=<>&|~]))"
)
_SYMBOL = re.compile(r"'?[suz][fi]?\d+'?")
#: Functions in PyTorch's symbolic sizes (torch/utils/_sympy/functions.py) and SymPy's own that it prints.
_FUNCTIONS = {
    *("Max", "Min", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilDiv", "CeilToInt", "FloorToInt"),
    *("TruncToInt", "RoundToInt", "RoundDecimal", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "PowByNatural"),
    *(
        "FloatPow",
        "ModularIndexing",
        "Where",
        "Identity",
        "Eq",
        "Ne",
        "Lt",
        "Le",
        "Gt",
        "Ge",
        "And",
        "Or",
        "Not",
    ),
    *(
        "Symbol",
        "Integer",
        "Rational",
        "Float",
        "Add",
        "Mul",
        "Pow",
        "positive",
        "integer",
        "nonnegative",
        "real",
    ),
    *(
        "nonzero",
        "zero",
        "finite",
        "negative",
        "StrictLessThan",
        "StrictGreaterThan",
        "LessThan",
        "GreaterThan",
    ),
    *("Equality", "Unequality", "true", "false"),
    *("Abs", "ceiling", "floor", "Piecewise", "True", "False", "oo", "int_oo", "LShift", "RShift"),
}


def load_program(model: Path) -> tuple[ExportedProgram, dict[str, Any]]:
    """A program, and what edgepack's exporter said of it (:data:`EXTRA`; {} where it is another's).

    Raises:
        ModelError: the file is damaged, of another version, or holds more than data; or PyTorch is missing.
    """
    torch = _torch()
    check_archive(model)
    extra = {EXTRA: ""}
    with _nothing_is_unpickled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.load(model, extra_files=extra)
        except Exception as error:  # PyTorch's own, of many classes
            raise ModelError(
                f"{model} cannot be read by PyTorch {torch.__version__}: {_first_line(error)}",
                hint="Save it again with the version of PyTorch that is installed here. Types of inputs and "
                "outputs that are not PyTorch's (dataclasses, model outputs) are known to the program only "
                "that exported it: give edgepack.pack the module there.",
            ) from error
    try:
        said = json.loads(extra[EXTRA]) if extra[EXTRA] else {}
    except ValueError as error:
        raise ModelError(f"{model} is damaged: {EXTRA} in it is no JSON.", hint="Export it again.") from error
    return program, said if isinstance(said, dict) else {}


def check_archive(model: Path) -> None:
    """Looks through an archive; :class:`ModelError` names what is not data in it."""
    try:
        with zipfile.ZipFile(model) as archive:
            _check_entries(model, archive)
    except FileNotFoundError:
        raise ModelError(f"There is no model file {model}.", hint="Check the path.") from None
    except (zipfile.BadZipFile, OSError, ValueError, RecursionError, NotImplementedError, *_ODD) as error:
        raise ModelError(
            f"{model} is no file of torch.export.save, or it is damaged: {_first_line(error)}",
            hint="Save the program again: torch.export.save(torch.export.export(module, example), path).",
        ) from error


def _check_entries(model: Path, archive: zipfile.ZipFile) -> None:
    names = [one.filename.partition("/")[2] for one in archive.infolist()]
    if not any(re.fullmatch(r"models/\w+\.json", name) for name in names):
        raise ModelError(
            f"{model} holds no exported program (models/model.json).",
            hint="TorchScript and pickled modules are not read: export the module with torch.export.export.",
        )
    for one, name in zip(archive.infolist(), names, strict=True):
        if one.compress_type != zipfile.ZIP_STORED:
            raise _not_data(model, f"{name} is compressed, which torch.export.save never does")
        if name.startswith("data/aotinductor/"):
            raise _not_data(model, "it holds libraries that AOTInductor compiled")
        if re.fullmatch(r"models/\w+\.json", name):
            _check_graph(model, json.loads(archive.read(one)))
        elif re.fullmatch(r"data/(?:weights|constants)/\w+_config\.json", name):
            _check_config(model, json.loads(archive.read(one)))


def _check_config(model: Path, config: Any) -> None:
    for key, payload in config.get("config", {}).items():
        if payload.get("use_pickle"):
            raise _not_data(model, f"{key!r} in it is pickled")


def _check_graph(model: Path, value: Any) -> None:
    """Every call and every symbolic size in the JSON of a program."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            todo += one.values()
            target, symbol = one.get("target"), one.get("expr_str")
            if isinstance(target, str) and "inputs" in one and not _CALLED.fullmatch(target):
                raise _not_data(
                    model, f"it calls {target[:80]!r}, which is no operator that is known to be one"
                )
            if isinstance(symbol, str) and not _is_arithmetic(symbol):
                raise _not_data(model, f"the size {symbol[:80]!r} in it is no arithmetic")
            for name in one.get("range_constraints") or {}:
                if not _is_arithmetic(str(name)):
                    raise _not_data(model, f"the size {str(name)[:80]!r} in it is no arithmetic")


def _is_arithmetic(text: str) -> bool:
    """Whether a symbolic size consists of symbols, numbers, PyTorch's functions and operators."""
    at, operand, closed = 0, False, False
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(text) > 10_000:
            return False
        name = found["name"]
        if name and not (_SYMBOL.fullmatch(name) or name in _FUNCTIONS):
            return False
        if (operand and (name or found["number"])) or (closed and found["other"] == "("):
            return False
        closed = bool(found["number"]) or found["other"] == ")"
        operand = bool(name) or closed
        at = found.end()
    return bool(text)


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

    import pickle

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
