"""A subgraph that PyTorch captured: compiled for each sizes that it is called with, or run as it is."""

from __future__ import annotations

import itertools
import logging
import operator
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from edgepack.errors import ConfigError, EdgepackError
from edgepack.torch.compiled import Compiled, compiled
from edgepack.torch.options import CompileOptions

__all__ = ["Subgraph"]

_LOG = logging.getLogger("edgepack.torch")
_numbers = itertools.count(1)


class Subgraph:
    """What takes a subgraph's place. It is called from any number of threads.

    Parameters and buffers are constants of what is compiled. That they are the same, unchanged, is asked in
    each call (``Tensor._version``, which all of PyTorch's operations count up, but for those on ``.data``
    and on memory that NumPy shares): with other parameters it is compiled again, and buffers that change are
    inputs from then on.

    Args:
        gm, example_inputs: as of :func:`edgepack.torch.backend`.
        options: of this call of ``torch.compile``.

    Attributes:
        label: of the subgraph, for messages.
        operators: how many there are of each.
        reason: why it is not compiled, or not always; "" where it is.
        compiles: how many times it was compiled.
    """

    def __init__(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: CompileOptions
    ) -> None:
        self._gm, self._options = gm, options
        self.operators = operators_of(gm)
        names = list(self.operators)
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        self.label = f"subgraph {next(_numbers)} ({shown or 'no operators'})"
        self.reason, self.compiles = "", 0
        self._lock = threading.Lock()
        places = [node for node in gm.graph.nodes if node.op == "placeholder"]
        tensors = [index for index, one in enumerate(example_inputs) if isinstance(one, torch.Tensor)]
        self._buffers = {index for index in tensors if _is_buffer(places[index])}
        parameters = {index for index in tensors if isinstance(example_inputs[index], torch.nn.Parameter)}
        self._constants = sorted(
            index for index in self._buffers | parameters if not example_inputs[index].is_inference()
        )
        # By sizes and the state of the constants; None: eager.
        self._found: dict[Any, Compiled | None] = {}
        self._last: dict[int, Any] = {}
        self._others: list[int] = []
        self._split(len(example_inputs))
        if not self._returns_tensors():
            self._stay_eager("it returns no tensor")
        elif torch.is_grad_enabled() and any(example_inputs[index].requires_grad for index in tensors):
            self._stay_eager(
                "gradients are recorded, and edgepack computes none: call it under torch.inference_mode() or "
                "torch.no_grad()"
            )

    def __call__(self, *args: Any) -> Any:
        if self._always_eager:
            return self._gm(*args)
        key = self._key(args)
        try:
            found = self._found[key]
        except KeyError:
            found = self._compile(args)
        return self._gm(*args) if found is None else found(args)

    _always_eager = False

    def _split(self, count: int) -> None:
        constant = set(self._constants)
        self._others = [index for index in range(count) if index not in constant]

    def _key(self, args: Sequence[Any]) -> Any:
        sizes = [_layout(args[index]) for index in self._others]
        return tuple(sizes), tuple([_state(args[index]) for index in self._constants])

    def _compile(self, args: Sequence[Any]) -> Compiled | None:
        with _tracing_lock(), self._lock:
            self._thaw(args)
            key = self._key(args)
            if key in self._found:
                return self._found[key]
            if self.compiles >= self._options.shapes:
                if not self.reason:
                    self._say(
                        f"it was compiled {self.compiles} times, for as many sizes or states of its "
                        'parameters, and is eager for others (options={"shapes": ...})'
                    )
                return None  # not kept: there may be any number
            self._found[key] = found = self._attempt(args)
            self._last = {index: _state(args[index]) for index in self._constants}
            return found

    def _thaw(self, args: Sequence[Any]) -> None:
        """Buffers that changed since the last compile are inputs from now on."""
        changed = {
            index for index in self._buffers & set(self._last) if self._last[index] != _state(args[index])
        }
        if changed:
            self._constants = [index for index in self._constants if index not in changed]
            self._last = {index: self._last[index] for index in self._constants}
            self._split(len(args))
            self._found = {}

    def _attempt(self, args: Sequence[Any]) -> Compiled | None:
        try:
            found = compiled(self._gm, args, self._constants, self.label, self._options)
        except EdgepackError as error:
            if isinstance(error, ConfigError) and self._options.of_numbers():
                raise  # an option that this machine has not
            self._say(_sentence(error.message))
            return None
        self.compiles += 1
        _LOG.info("%s is compiled", self.label)
        return found

    def _returns_tensors(self) -> bool:
        (node,) = (node for node in self._gm.graph.nodes if node.op == "output")
        found = torch.fx.node.map_arg(node.args[0], lambda one: one)
        return bool(found) and any(isinstance(one, torch.fx.Node) for one in _leaves(found))

    def _stay_eager(self, reason: str) -> None:
        self._always_eager = True
        self._say(reason)

    def _say(self, reason: str) -> None:
        if reason != self.reason:
            _LOG.warning("%s stays eager: %s", self.label, reason)
        self.reason = reason


def _tracing_lock() -> AbstractContextManager[Any]:
    """PyTorch traces one model at a time in a process, and holds this lock meanwhile: what it exports here is
    traced too."""
    from torch._dynamo import convert_frame

    lock: AbstractContextManager[Any] = getattr(convert_frame, "compile_lock", nullcontext())
    return lock


def operators_of(gm: torch.fx.GraphModule) -> Counter[str]:
    """How many there are of each operator in a graph, in the order in which they occur."""
    return Counter(
        _name(node.target)
        for node in gm.graph.nodes
        if node.op in ("call_function", "call_method", "call_module") and node.target is not operator.getitem
    )


def _name(target: str | Callable[..., Any]) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target)).strip("_")


def _state(tensor: torch.Tensor) -> tuple[int, int, int]:
    """What says that a constant is the same tensor with the same values. Who keeps it keeps the tensor."""
    return id(tensor), tensor._version, tensor.data_ptr()


def _layout(arg: Any) -> Any:
    """What an argument that varies is compiled for: a tensor's dtype and sizes, and strides of its own; a
    number."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return (arg.dtype, arg.shape) if arg.is_contiguous() else (arg.dtype, arg.shape, arg.stride())


def _is_buffer(node: torch.fx.Node) -> bool:
    """Whether a subgraph's input is a module's buffer, by where PyTorch found it."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    while source is not None:
        if getattr(source, "member", None) == "_buffers":
            return True
        source = getattr(source, "base", None)
    return False


def _leaves(nested: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    return list(pytree.tree_leaves(nested))


def _sentence(message: str) -> str:
    return message.rstrip(".")
