"""Makes an ONNX model of an exported program in memory, by PyTorch's own exporter."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.errors import ModelError
from edgepack.programs.checks import CHECKS, drop_checks
from edgepack.programs.places import place_of
from edgepack.programs.quantised import is_quantised, written_out
from edgepack.programs.quantised_onnx import OPSET, odd_form, translations

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["onnx_program", "quiet"]

#: Of escape sequences that PyTorch prints words with.
_COLOUR = re.compile(r"\x1b\[\d*m")

#: Newest operator set that edgepack's tests and ONNX Runtime both know well.
_OPSET = 20


def onnx_program(program: ExportedProgram, names: Sequence[str], results: Sequence[str], where: str) -> Any:
    """A ``torch.onnx.ONNXProgram``.

    Args:
        program: nobody else's: its checks at run time are taken out of it.
        names, results: what its inputs and outputs are called.
        where: of the program, for messages.

    Raises:
        ModelError: an operator has no equivalent (all are listed), or the exporter fails.
    """
    import torch

    quantised = is_quantised(program)
    with quiet():
        try:
            program = written_out(program)
            drop_checks(program)
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=list(names),
                output_names=list(results),
                opset_version=OPSET if quantised else _OPSET,
                custom_translation_table=translations() if quantised else None,
                verbose=False,
            )
        except Exception as error:  # PyTorch's own, of many classes
            raise _refusal(program, error, where) from error
    assert made is not None
    return made


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """PyTorch's exporter prints its progress, and logs what is not installed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _refusal(program: ExportedProgram, error: Exception, where: str) -> ModelError:
    """What PyTorch's exporter could not do: all operators without an equivalent, or its own sentence."""
    try:
        missing = _missing(program)
    except Exception:  # the exporter's insides change between versions
        missing = []
    if missing:
        return ModelError(
            f"{where} has operators that PyTorch's ONNX exporter has no equivalent of: "
            f"{', '.join(missing[:20])}{' ...' if len(missing) > 20 else ''}.",
            hint="Write these layers by other operators, or leave them out of the exported module.",
        )
    lines = [line for line in _COLOUR.sub("", str(error)).strip().splitlines() if line.strip()]
    causes = [line.partition(">: ")[2] for line in lines if line.startswith("<class ")] or lines
    return ModelError(
        f"{where} cannot be exported to ONNX: {causes[0].strip() if causes else type(error).__name__}",
        hint="Does torch.onnx.export(module, example, dynamo=True) export it?",
        detail="\n".join(lines[:40]),
    )


def _missing(program: ExportedProgram) -> list[str]:
    """Each operator without an equivalent, its module, and the line of Python that calls it."""
    from torch.onnx._internal.exporter import _registration

    registry = _registration.ONNXRegistry.from_torchlib()
    known = translations() if is_quantised(program) else {}
    found: dict[str, None] = {}
    program = written_out(program)
    for node in program.graph.nodes:
        if node.target in known and (odd := odd_form(node)):
            found[f"{node.target} {odd} ({place_of(node)})"] = None
    for node in program.run_decompositions().graph.nodes:
        called = node.op == "call_function" and hasattr(node.target, "_schema")
        if not called or node.target in known or str(node.target) in CHECKS:
            continue
        if not registry.is_registered(node.target):
            found[f"{node.target} ({place_of(node)})"] = None
    return list(found)
