"""How the arguments and results of a module were nested, whose tensors are a bundle's inputs and outputs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgepack.bundle.records import Record

__all__ = ["NestedRecord", "Structure"]


class Structure(Record):
    """A tensor, a constant, or what holds some."""

    kind: Literal["tensor", "constant", "tuple", "list", "dict", "namedtuple", "object"]
    name: str = Field(default="", description="of the tensor; of the type of an object or named tuple")
    value: bool | int | float | str | None = Field(default=None, description="of a constant")
    keys: tuple[str | int, ...] = Field(default=(), description="of a dict, or the fields' names")
    items: tuple[Structure, ...] = ()


class NestedRecord(Record):
    """Of a PyTorch module."""

    arguments: Structure = Field(
        description="a tuple: those by position, as a tuple, and those by name, as a dict"
    )
    results: Structure
