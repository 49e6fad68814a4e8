"""An exported subgraph, packed for this machine and opened in this process."""

from __future__ import annotations

import atexit
import itertools
import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch

from edgepack.api import load, pack
from edgepack.client.session import Session
from edgepack.config.device import Device, load_device
from edgepack.errors import EdgepackWarning, ModelError
from edgepack.programs.onnx_program import onnx_program, quiet
from edgepack.system.temporary import temporary_folder
from edgepack.torch.capture import Captured
from edgepack.torch.options import CompileOptions

__all__ = ["Compiled", "compiled"]

#: How far results may be off those of PyTorch's, by the largest: a mistake of an exporter is far more.
_OFF, _OFF_ROUNDED = 1e-3, 5e-2
#: NumPy has no bfloat16.
_BITS = torch.bfloat16
_numbers = itertools.count()


class Compiled:
    """Runs a subgraph for certain sizes, in any thread. Inputs that are contiguous are not copied; results
    are new tensors that the library writes to.

    Args:
        session: of its library.
        captured: the subgraph.
        read: for each of the session's inputs, which of the subgraph's arguments it is.
    """

    def __init__(self, session: Session, captured: Captured, read: Sequence[int]) -> None:
        self._session = session
        self._inputs = tuple(read)
        self._given = captured.given
        self._results = captured.results
        self._constants = captured.constants  # as long as they are there, no other tensor has their identity

    def __call__(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The subgraph's results, of all its arguments."""
        computed = self.compute([args[index] for index in self._inputs])
        return tuple([make(computed) for make in self._results])

    def compute(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The library's results, of its inputs."""
        computed = [torch.empty(shape, dtype=dtype) for shape, dtype in self._given]
        self._session.run_into(list(map(_array, tensors)), list(map(_array, computed)))
        return computed


def compiled(captured: Captured, options: CompileOptions) -> Compiled:
    """Pack a subgraph, and open it.

    Raises:
        ModelError, ToolchainError, CheckFailedError, InternalError: why it cannot be compiled.
        ConfigError: an option does not fit this machine.
    """
    names = [f"x{index}" for index in captured.taken]
    results = [f"y{index}" for index in range(len(captured.given))]
    with torch.inference_mode(False), torch.no_grad():
        model = onnx_program(captured.program, names, results, "it")
        with quiet():
            proto = model.model_proto
    _forget_where(proto)
    folder = _folder() / f"{next(_numbers)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgepackWarning)
        bundle = pack(proto, _device(), folder, name="subgraph", **options.packing())
        session = load(bundle, threads=options.threads or torch.get_num_threads())
    places = dict(zip(names, captured.taken, strict=True))
    read = [places[one.name] for one in session.inputs]
    if [one.name for one in session.outputs] != results:
        raise ModelError(f"its results are called {', '.join(one.name for one in session.outputs)}")
    found = Compiled(session, captured, read)
    _check(found, captured, read, rounded=bool(options.of_numbers()))
    return found


def _array(tensor: torch.Tensor) -> Any:
    """The tensor's memory, or that of a contiguous copy, as NumPy has it."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return (tensor.view(torch.uint16) if tensor.dtype is _BITS else tensor).numpy()


def _check(found: Compiled, captured: Captured, read: Sequence[int], *, rounded: bool) -> None:
    """Raise ModelError where the library computes something else than PyTorch: an exporter's mistake."""
    examples = dict(zip(captured.taken, captured.examples, strict=True))
    with torch.inference_mode(False), torch.no_grad():
        computed = found.compute([examples[index] for index in read])
        for one, other in zip(computed, captured.expected, strict=True):
            if one.shape != other.shape or one.dtype != other.dtype or not one.numel():
                if one.shape == other.shape and one.dtype == other.dtype:
                    continue
                raise ModelError("the exported model gives results of other sizes")
            if one.dtype.is_floating_point:
                both = one.isfinite() & other.isfinite()
                known, wanted = one[both].double(), other[both].double()
                least = max(torch.finfo(one.dtype).eps * 32, _OFF_ROUNDED if rounded else _OFF)
                off = float((known - wanted).abs().max()) if known.numel() else 0.0
                largest = float(wanted.abs().max()) if known.numel() else 0.0
                wrong = off > least * (1 + largest)
            else:
                wrong = int((one != other).sum()) > max(1, one.numel() // 50)
            if wrong:
                raise ModelError("the exported model computes something else than PyTorch")


def _forget_where(proto: Any) -> None:
    """Leave out which lines of Python operators come from: the cache finds the same model by its bytes."""
    graphs = [proto.graph, *proto.functions]
    for graph in graphs:
        del graph.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        for value in (*graph.value_info, *getattr(graph, "input", ()), *getattr(graph, "initializer", ())):
            if hasattr(value, "metadata_props"):
                del value.metadata_props[:]
    del proto.metadata_props[:]


@cache
def _device() -> Device:
    """This machine, of whose bundle nothing but the library is needed."""
    return load_device("host").model_copy(update={"artifacts": ("shared",)})


@cache
def _folder() -> Path:
    """Where this process has its libraries; removed when it ends."""
    held, owner = ExitStack(), os.getpid()

    def leave() -> None:
        if os.getpid() == owner:  # no child of a fork
            held.close()

    folder = held.enter_context(temporary_folder())
    atexit.register(leave)
    return folder
