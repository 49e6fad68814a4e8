"""A subgraph as plain data: the same for the same computation, in each process.

What a subgraph computes is said by its nodes, by the values in it, and by what of PyTorch's state its
operators read. A graph with anything else in it (a function of the user's, an object of an unknown class) has
no such form: it may change without its graph changing.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

__all__ = ["UnknownError", "digests", "graph_data", "tensor_layout", "torch_state"]

#: Packages whose functions are what the versions of Python and PyTorch say.
_KNOWN = {"torch", "_operator", "operator", "math", "builtins"}
#: Operators of PyTorch's own, which are what its version says.
_NAMESPACES = {"aten", "prims", "prim"}
#: Values that are what they print.
_PRINTED = (torch.dtype, torch.device, torch.layout, torch.memory_format)
#: Bytes of tensors from which on several threads pay.
_MANY = 8 << 20


class UnknownError(Exception):
    """Something in a graph is not known to be the same in another process."""


def graph_data(gm: torch.fx.GraphModule) -> list[Any]:
    """The graph's nodes as lists, numbers, strings and None, whatever they are called.

    Raises:
        UnknownError: there is something in it that has no such form.
    """
    numbers = {node: index for index, node in enumerate(gm.graph.nodes)}
    return [
        [node.op, _target(node, gm), _value(node.args, numbers), _value(node.kwargs, numbers)]
        for node in gm.graph.nodes
    ]


def torch_state() -> dict[str, Any]:
    """What of PyTorch's state operators read when a subgraph is run.

    Raises:
        UnknownError: functions of the user's take part in each call (``torch.overrides``).
    """
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        raise UnknownError("a mode of torch.overrides")
    return {
        "autocast": str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else "",
        "default": str(torch.get_default_dtype()),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
    }


def tensor_layout(tensor: torch.Tensor) -> list[Any]:
    """Dtype, shape and strides."""
    return [str(tensor.dtype), list(tensor.shape), list(tensor.stride())]


def digests(tensors: Sequence[torch.Tensor]) -> list[str]:
    """SHA-256, in hex, over each tensor's values in the order of its axes, several at a time."""
    if sum(one.numel() * one.element_size() for one in tensors) < _MANY:
        return list(map(_digest, tensors))
    with ThreadPoolExecutor(min(4, max(1, torch.get_num_threads()))) as pool:
        return list(pool.map(_digest, tensors))


def _digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy()).hexdigest()


def _target(node: torch.fx.Node, gm: torch.fx.GraphModule) -> Any:
    if node.op in ("placeholder", "output"):
        return ""
    if node.op == "call_method":
        return node.target
    if node.op == "call_function":
        return _function(node.target)
    if node.op == "get_attr":
        held = operator.attrgetter(node.target)(gm)
        if isinstance(held, torch.fx.GraphModule):
            return graph_data(held)
        if type(held) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and _is_plain(held):
            return [*tensor_layout(held), _digest(held)]
    raise UnknownError(f"{node.op} {node.target}")


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized


def _function(target: Callable[..., Any]) -> str:
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        text = str(target)
        if text.partition(".")[0] in _NAMESPACES:
            return f"operator {text}"
        raise UnknownError(text)
    if isinstance(target, torch._ops.HigherOrderOperator):
        if type(target).__module__.partition(".")[0] == "torch":
            return f"higher order {target.name()}"
        raise UnknownError(target.name())
    try:
        name = str(torch.fx.node._get_qualified_name(target))
    except Exception as error:  # of a callable without a name
        raise UnknownError(repr(target)) from error
    if name.partition(".")[0] not in _KNOWN or "<" in name:
        raise UnknownError(name)
    return name


def _value(value: Any, numbers: dict[torch.fx.Node, int]) -> Any:
    """An argument of a node. Each kind is a list that begins with what it is, but for what JSON has."""
    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind in (float, complex):
        return [kind.__name__, repr(value)]
    if kind is str:
        return ["str", value]
    if isinstance(value, torch.fx.Node):
        return ["node", numbers[value]]
    if isinstance(value, _PRINTED):
        return [kind.__name__, str(value)]
    if value is Ellipsis:
        return ["..."]
    if kind is slice:
        return ["slice", *_values((value.start, value.stop, value.step), numbers)]
    if isinstance(value, torch.Size) or kind.__name__ in ("tuple", "list", "immutable_list"):
        return ["list" if isinstance(value, list) else "tuple", *_values(value, numbers)]
    if isinstance(value, dict) and all(type(name) is str for name in value):
        return ["dict", *([name, _value(one, numbers)] for name, one in value.items())]
    raise UnknownError(f"a value of {kind.__module__}.{kind.__qualname__}")


def _values(values: Iterable[Any], numbers: dict[torch.fx.Node, int]) -> list[Any]:
    return [_value(one, numbers) for one in values]
