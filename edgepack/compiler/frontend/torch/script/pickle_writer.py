"""Writes the pickles of a TorchScript archive again, of the values that were found right in them."""

from __future__ import annotations

import struct
from typing import Any

from edgepack.compiler.frontend.torch.script.pickles import (
    CALLS,
    DeviceName,
    Items,
    Made,
    Pairs,
    Row,
    Stored,
    Tensor,
)
from edgepack.compiler.frontend.torch.script.types import Refused

__all__ = ["write"]


def write(value: Any) -> bytes:
    """A value that :func:`read` made, in the opcodes of PyTorch's own writer.

    Raises:
        Refused: it holds itself, or a number of more than 64 bits.
    """
    writer = _Writer()
    try:
        writer.value(value)
    except (struct.error, RecursionError):
        raise Refused("a pickle with a number that is too large, or nested too deeply") from None
    return b"\x80\x02" + b"".join(writer.out) + b"."


class _Writer:
    """What is there once is written once, and taken from the memo after that."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self._memo: dict[int, int] = {}
        self._within: set[int] = set()

    def value(self, value: Any) -> None:
        """Write a value, or where it is in the memo."""
        if not isinstance(value, Items | Pairs | Row | Stored | Tensor | Made):
            self._plain(value)
            return
        if (at := self._memo.get(id(value))) is not None:
            self.out.append(b"j" + struct.pack("<I", at))
            return
        if id(value) in self._within:
            raise Refused("a list that holds itself")
        self._within.add(id(value))
        self._structure(value)
        self._within.discard(id(value))
        self._memo[id(value)] = len(self._memo)
        self.out.append(b"r" + struct.pack("<I", self._memo[id(value)]))

    def _plain(self, value: Any) -> None:
        match value:
            case None:
                self.out.append(b"N")
            case bool():
                self.out.append(b"\x88" if value else b"\x89")
            case int():
                self.out.append(
                    bytes([75, value]) if 0 <= value < 256 else b"\x8a\x08" + struct.pack("<q", value)
                )
            case float():
                self.out.append(b"G" + struct.pack(">d", value))
            case str():
                data = value.encode("utf-8", "surrogatepass")
                self.out.append(b"X" + struct.pack("<I", len(data)) + data)
            case complex():
                self._global(CALLS["complex"])
                self._reduced(value.real, value.imag)
            case DeviceName():
                self._global(CALLS["device"])
                self._reduced(value.name)
            case _:
                raise Refused("a pickle in an order that PyTorch does not write")

    def _structure(self, value: Any) -> None:
        match value:
            case Items() | Pairs() if value.tag:
                self._global(CALLS["tag"])
                self.out.append(b"(")
                self._filled(value)
                self.value(value.tag)
                self.out.append(b"tR")
            case Items() | Pairs():
                self._filled(value)
            case Row():
                self._row(*value.items)
            case Stored():
                self.out.append(b"(")
                self.value("storage")
                self._global(f"torch {value.kind}Storage")
                for one in (value.key, "cpu", value.count):
                    self.value(one)
                self.out.append(b"tQ")
            case Tensor():
                self._tensor(value)
            case Made():
                self._made(value)

    def _tensor(self, value: Tensor) -> None:
        self._global(CALLS["tensor"])
        self.out.append(b"(")
        self.value(value.stored)
        self.value(value.offset)
        self._row(*value.sizes)
        self._row(*value.strides)
        self.value(value.needs_gradient)
        self._global(CALLS["hooks"])
        self.out.append(b")R")
        if value.negative:
            self._filled(Pairs([(name, True) for name in value.negative]))
        self.out.append(b"tR")

    def _made(self, value: Made) -> None:
        self._global(" ".join(value.name.rsplit(".", 1)))
        if not value.member:
            self.out.append(b")\x81")
        self.value(value.state)
        self.out.append(b"R" if value.member else b"b")

    def _filled(self, value: Items | Pairs) -> None:
        items = value.items if isinstance(value, Items) else [one for pair in value.pairs for one in pair]
        self.out.append(b"](" if isinstance(value, Items) else b"}(")
        for one in items:
            self.value(one)
        self.out.append(b"e" if isinstance(value, Items) else b"u")

    def _row(self, *items: Any) -> None:
        self.out.append(b"(")
        for one in items:
            self.value(one)
        self.out.append(b"t")

    def _reduced(self, *items: Any) -> None:
        self._row(*items)
        self.out.append(b"R")

    def _global(self, name: str) -> None:
        module, _, own = name.partition(" ")
        self.out.append(f"c{module}\n{own}\n".encode("ascii"))
