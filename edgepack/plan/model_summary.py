"""What is in a model file, at a glance: what ``edgepack inspect MODEL`` shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edgepack.plan.types import LinearQuantisation

__all__ = ["Dim", "ModelSummary", "TensorSummary"]

#: A dimension: its size, its name, or None if it has neither.
Dim = int | str | None


@dataclass(frozen=True)
class TensorSummary:
    """An input or output as declared; dimensions are sizes, names, or None. A shape can be missing, and what
    its integers mean."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    quantisation: LinearQuantisation | None = None


@dataclass(frozen=True)
class ModelSummary:
    """A model file at a glance.

    Attributes:
        producer: exporter and its version, "" if the file does not say.
        opsets: version of each operator set, by domain ("" is the standard one).
        nodes: how many there are, those of branches and bodies too.
        operators: how often each operator occurs in them, the most frequent first.
        params: number of elements of all initializers of at least one dimension, those of branches too.
        params_bytes: bytes of all initializers.
        denormals: how many of these numbers are denormal: too small for a normal float (float32: below
            1.18e-38).
        unbound: names of the inputs that need ``--shape`` or ``--dim``, with their open dimensions.
        unsupported: names of the nodes that edgepack cannot compile, by operator. Some may still be folded
            away.
        external: names of the external data files.
    """

    name: str
    producer: str
    ir_version: int
    opset: int
    opsets: dict[str, int]
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    nodes: int
    operators: dict[str, int]
    params: int
    params_bytes: int
    denormals: int
    unbound: dict[str, list[str]]
    unsupported: dict[str, list[str]]
    external: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ModelSummary:
        """Inverse of :meth:`to_json`, also where lists stand for tuples."""

        def tensors(role: str) -> tuple[TensorSummary, ...]:
            return tuple(_tensor(one) for one in data[role])

        changed = {"inputs": tensors("inputs"), "outputs": tensors("outputs")}
        return cls(**{**data, **changed, "external": tuple(data["external"])})


def _tensor(data: dict[str, Any]) -> TensorSummary:
    shape, said = data["shape"], data["quantisation"]
    meaning = None if said is None else LinearQuantisation(**said)
    return TensorSummary(data["name"], data["dtype"], None if shape is None else tuple(shape), meaning)
