"""Two models or bundles side by side on the same inputs: what ``edgepack compare`` shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgepack.plan.types import TensorSpec

__all__ = ["ComparedLayer", "ComparedOutput", "ComparisonFigures", "Side", "plain_number"]


@dataclass(frozen=True)
class Side:
    """One of the two that are compared, as the worker is told of it.

    Attributes:
        name: path of the model's file, or of the bundle's folder.
        bundle: whether it is a bundle, whose results lie in ``folder``.
        inputs, outputs: of a bundle; those of a model are in its file.
        folder: with ``<sample>/output_<index>.bin`` for each output of a bundle.
    """

    name: str
    bundle: bool = False
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Side:
        """The side that :meth:`to_json` wrote."""
        sides = {
            key: tuple(TensorSpec(one["name"], one["dtype"], tuple(one["shape"])) for one in data[key])
            for key in ("inputs", "outputs")
        }
        return cls(**{**data, **sides})


@dataclass(frozen=True)
class ComparedOutput:
    """An output of the second beside that of the first, on all samples.

    Attributes:
        name: as the first calls it.
        dtype: of the first's elements; the second's may be others.
        elements: of all samples.
        sqnr: signal-to-noise ratio in dB: the first's values against the differences; None where these are
            all 0.
        cosine: similarity of the two as vectors, 1 for the same direction; None where one is all 0.
        max_error, mean_error: of the differences' magnitudes; infinite where one has NaN or infinity and the
            other has not the same.
        largest: largest magnitude of the first's.
        top1: share of rows whose largest element is the same one, 0 to 1; None where it does not look like
            scores of classes.
    """

    name: str
    dtype: str
    elements: int
    sqnr: float | None
    cosine: float | None
    max_error: float
    mean_error: float
    largest: float
    top1: float | None = None


@dataclass(frozen=True)
class ComparedLayer:
    """A tensor that both models compute, with the errors of all layers before it.

    Attributes:
        name: of the first's node that computes it.
        operator: of that node.
        tensor: as the first calls it.
        sqnr: as of an output; None where it is exact.
        lost: by how many dB that is below the least of what it was computed from; None where it is exact, or
            the first that is not.
        max_error, largest: as of an output.
    """

    name: str
    operator: str
    tensor: str
    sqnr: float | None
    lost: float | None
    max_error: float
    largest: float


@dataclass(frozen=True)
class ComparisonFigures:
    """What the worker finds.

    Attributes:
        outputs: in the first's order.
        layers: of two models, in the first's order; empty where one is a bundle.
        samples: how many inputs both were run on.
        warnings: a sentence each.
    """

    outputs: tuple[ComparedOutput, ...]
    layers: tuple[ComparedLayer, ...]
    samples: int
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; floats that JSON cannot hold are texts (``"inf"``)."""
        data = asdict(self)
        for key in ("outputs", "layers"):
            data[key] = [{name: plain_number(value) for name, value in one.items()} for one in data[key]]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ComparisonFigures:
        """The figures that :meth:`to_json` wrote."""
        return cls(
            outputs=tuple(ComparedOutput(**_numbers(one)) for one in data["outputs"]),
            layers=tuple(ComparedLayer(**_numbers(one)) for one in data["layers"]),
            samples=int(data["samples"]),
            warnings=tuple(data["warnings"]),
        )


def plain_number(value: Any) -> Any:
    """A value as JSON can hold it: floats that are not finite become texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    errors = ("max_error", "mean_error", "largest")
    return {key: float(value) if key in errors else value for key, value in record.items()}
