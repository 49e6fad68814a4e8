"""Example inputs and open sizes as plain data: what the process that has them hands to the one that exports.

Tensors, numbers, texts and None in tuples, lists and dicts become a file that is read without calling
anything; ``dynamic_shapes`` becomes JSON. What is more than that belongs to a module in memory, which is
exported where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgepack.errors import ConfigError

__all__ = [
    "check_example",
    "decoded_dims",
    "encoded_dims",
    "read_examples",
    "refuse_other_devices",
    "write_examples",
]

_GIVE_MODULE = "Give the module itself, in the place of the file: it is exported in this process."
_TUPLE_OR_DICT = "example_inputs=(x,): a tuple of positional arguments, or a dict of keywords."


def check_example(example_inputs: Any) -> None:
    """Raises ConfigError for what is neither a tensor nor a tuple, list or dict."""
    import torch

    if not isinstance(example_inputs, torch.Tensor | Mapping | tuple | list):
        raise ConfigError(
            f"example_inputs is a value of type {type(example_inputs).__name__}.", hint=_TUPLE_OR_DICT
        )


def refuse_other_devices(what: str, tensors: Iterable[Any]) -> None:
    """Raises ConfigError where one of the tensors is not on the CPU; what is no tensor is left out.

    Args:
        what: has them, for the message: ``module``, ``example``.
    """
    import torch

    devices = (one.device for one in tensors if isinstance(one, torch.Tensor))
    other = next((str(one) for one in devices if one.type != "cpu"), "")
    if other:
        raise ConfigError(
            f"The {what} is on the device {other}, and modules are exported on the CPU.",
            hint="Give module.cpu() and example inputs on the CPU; edgepack's device says for which GPU "
            "it is packed.",
        )


def write_examples(example_inputs: Any, path: Path) -> None:
    """Write a file of example inputs for :func:`read_examples`.

    Raises:
        ConfigError: there is more in them than tensors on the CPU and plain values.
    """
    import torch

    check_example(example_inputs)
    torch.save(_plain(example_inputs), path)


def read_examples(path: Path) -> Any:
    """What :func:`write_examples` wrote."""
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _plain(value: Any) -> Any:
    """A value of the types that are read again, without what subclasses add."""
    import torch

    if isinstance(value, torch.Tensor):
        refuse_other_devices("example", [value])
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return value.detach()
    elif value is None:
        return None
    elif isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    elif isinstance(value, Mapping):
        return {_plain_key(key): _plain(one) for key, one in value.items()}
    else:
        kinds: tuple[type[Any], ...] = (bool, int, float, complex, str)
        for kind in kinds:
            if isinstance(value, kind):
                return kind(value)
    raise ConfigError(
        f"example_inputs holds a value of type {type(value).__name__}; with a file they hold tensors, "
        "numbers, texts and None, in tuples, lists and dicts.",
        hint=_GIVE_MODULE,
    )


def _plain_key(key: Any) -> Any:
    if isinstance(key, str | int | float):
        return _plain(key)
    raise ConfigError(
        f"example_inputs holds a dict with a key of type {type(key).__name__}; with a file keys are texts "
        "and numbers.",
        hint=_GIVE_MODULE,
    )


def encoded_dims(shapes: Any) -> Any:
    """``dynamic_shapes`` as JSON for :func:`decoded_dims`: None and numbers as they are, all else a list that
    begins with what it is.

    Raises:
        ConfigError: a size is computed of another one, or this is no ``dynamic_shapes``.
    """
    from torch.export import Dim

    if shapes is None or type(shapes) is int:
        return shapes
    if isinstance(shapes, Mapping):
        pairs = [[key, encoded_dims(one)] for key, one in shapes.items() if isinstance(key, str | int)]
        if len(pairs) == len(shapes):
            return ["dict", pairs]
    elif isinstance(shapes, tuple | list):
        return ["tuple" if isinstance(shapes, tuple) else "list", [encoded_dims(one) for one in shapes]]
    elif type(shapes) is Dim:
        return ["dim", shapes.__name__, _bound(shapes.min), _bound(shapes.max)]
    elif type(shapes) is type(Dim.AUTO):
        return ["hint", shapes.type.name, _bound(shapes.min), _bound(shapes.max)]
    raise ConfigError(
        f"dynamic_shapes holds {shapes!r}; with a file it holds torch.export.Dim, Dim.AUTO, Dim.DYNAMIC, "
        "Dim.STATIC, whole numbers and None, in dicts, tuples and lists.",
        hint=_GIVE_MODULE,
    )


def _bound(size: Any) -> int | None:
    """None for PyTorch's infinity, which is no ``int``."""
    return size if type(size) is int else None


def decoded_dims(data: Any) -> Any:
    """What :func:`encoded_dims` encoded."""
    from torch.export import Dim

    if not isinstance(data, list):
        return data
    kind, *rest = data
    if kind == "dict":
        return {key: decoded_dims(one) for key, one in rest[0]}
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(map(decoded_dims, rest[0]))
    name, least, most = rest
    if kind == "dim":
        return Dim(name, min=least, max=most)
    hint = getattr(Dim, name)
    return hint if least is None and most is None else hint(min=least, max=most)
