"""Makes an ONNX model of an exported program in memory, by PyTorch's own exporter."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.errors import ModelError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["onnx_program", "quiet"]

#: Newest operator set that edgepack's tests and ONNX Runtime both know well.
_OPSET = 20


def onnx_program(program: ExportedProgram, names: Sequence[str], results: Sequence[str], where: str) -> Any:
    """A ``torch.onnx.ONNXProgram``.

    Args:
        names, results: what its inputs and outputs are called.
        where: of the program, for messages.

    Raises:
        ModelError: an operator has no equivalent (all are listed), or the exporter fails.
    """
    import torch

    with quiet():
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=list(names),
                output_names=list(results),
                opset_version=_OPSET,
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
    missing: Counter[tuple[str, str]] = Counter()
    try:
        from torch.onnx._internal.exporter import _registration

        registry = _registration.ONNXRegistry.from_torchlib()
        for node in program.run_decompositions().graph.nodes:
            if (
                node.op == "call_function"
                and hasattr(node.target, "_schema")
                and not registry.is_registered(node.target)
            ):
                stack = node.meta.get("nn_module_stack") or {}
                module = next(reversed([path for path, _ in stack.values()]), "")
                missing[str(node.target), str(module)] += 1
    except Exception:  # the exporter's insides change between versions
        missing.clear()
    if missing:
        listed = [f"{operator} ({module or 'the module itself'})" for operator, module in missing]
        return ModelError(
            f"{where} has operators that PyTorch's ONNX exporter has no equivalent of: "
            f"{', '.join(listed[:20])}.",
            hint="Write these layers by other operators, or leave them out of the exported module.",
        )
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return ModelError(
        f"{where} cannot be exported to ONNX: {lines[0].strip() if lines else type(error).__name__}",
        hint="Does torch.onnx.export(module, example, dynamo=True) export it?",
        detail="\n".join(lines[:40]),
    )
