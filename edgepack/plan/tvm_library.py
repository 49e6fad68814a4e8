"""What TVM's compiler left of a program, to be linked: plain data beside the objects."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DESCRIBED", "TvmObjects"]

#: The file with what :meth:`TvmObjects.to_json` gives.
DESCRIBED = "executable.json"


@dataclass(frozen=True)
class TvmObjects:
    """The objects of TVM's executable, and the interface of its function ``main``.

    Attributes:
        files: the objects' names, in the order in which they are linked.
        inputs: names of the tensors that ``main`` takes, in order.
        outputs: names of the tensors in the tuple that it returns, in order.
        states: pairs of an input and an output: what a run returns is given to the next.
        version: of the TVM that compiled them.
    """

    files: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...]
    version: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TvmObjects:
        """What :meth:`to_json` gave."""
        return cls(
            tuple(data["files"]),
            tuple(data["inputs"]),
            tuple(data["outputs"]),
            tuple((given, returned) for given, returned in data["states"]),
            data["version"],
        )
