"""How a float model is quantised, and what became of it: what ``edgepack quantize`` asks for and shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "CALIBRATION_SUFFIXES",
    "SYNTHETIC",
    "CalibrationMethod",
    "QuantisationFigures",
    "QuantiseSettings",
    "QuantisedLayer",
    "QuantisedOutput",
    "Quantize",
    "UserFiles",
]

#: How a tensor's range follows from its values on the calibration data.
CalibrationMethod = Literal["minmax", "entropy", "percentile"]

#: How a model is quantised on the way to a bundle.
Quantize = Literal["int8", "dynamic"]

#: Of the files that hold calibration data; others in a folder are left.
CALIBRATION_SUFFIXES = (".npy", ".npz")

#: Stands for random calibration data in the place of a path.
SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class QuantiseSettings:
    """How a float model is quantised.

    Attributes:
        method: of choosing the range of activations: all values ("minmax"), the clipping that changes their
            distribution least ("entropy"), or all but the outermost ("percentile").
        percentile: of the values, that the range holds; for that method.
        symmetric: activations are int8 with zero point 0, instead of uint8 with any.
        dynamic: ranges of activations are computed when the model runs.
        exclude: patterns (``fnmatch``) of nodes' names and operators that stay float.
        min_sqnr: signal-to-noise ratio in dB that each output has at least; as few layers as possible stay
            float for it. None: no layer does.
        min_accuracy: accuracy, by the user's script, that the quantised model has at least.
        max_drop: by how much its accuracy is less than the float model's at most.
        bias_correction: the mean error that rounded weights make on the calibration data is taken off biases,
            unless that takes an output further off.
        reduce_range: weights have 7 bits, so that no sum of two products of theirs exceeds 16 bits.
        activation_tables: products are rounded before their activations too, which are tables then; None:
            before those that are expensive to compute.
        samples: of the calibration data that are used at most.
        seed: of random calibration data.
    """

    method: CalibrationMethod = "minmax"
    percentile: float = 99.99
    symmetric: bool = False
    dynamic: bool = False
    exclude: tuple[str, ...] = ()
    min_sqnr: float | None = None
    min_accuracy: float | None = None
    max_drop: float | None = None
    bias_correction: bool = True
    reduce_range: bool = False
    activation_tables: bool | None = None
    samples: int = 128
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "exclude": list(self.exclude)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QuantiseSettings:
        """The settings that :meth:`to_json` wrote."""
        known = {field.name: data[field.name] for field in fields(cls)}
        return cls(**{**known, "exclude": tuple(known["exclude"])})


@dataclass(frozen=True)
class UserFiles:
    """What of the user's is read to quantise a model.

    Attributes:
        calibration: file or folder of the calibration data; None for random ones.
        accuracy: the script that measures a model; None for none.
        folder: the working folder in which the script runs.
        like: a quantised model whose scales are kept; None for none.
    """

    calibration: Path | None = None
    accuracy: Path | None = None
    folder: Path = Path()
    like: Path | None = None


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer of the float model beside what became of it.

    Attributes:
        name: of the node.
        operator: as the model has it.
        quantised: whether it computes with integers; False for one that stays float.
        low, high: ends of the range that its result can have, None where that is float.
        outside: share of the result's values beyond these on the calibration data, 0 to 1.
        weight_sqnr: signal-to-noise ratio of its weights in dB; None where they are exact, or there are none.
        sqnr: that of its result, with the errors of all layers before it; None where it is exact or not
            known.
    """

    name: str
    operator: str
    quantised: bool
    low: float | None = None
    high: float | None = None
    outside: float = 0.0
    weight_sqnr: float | None = None
    sqnr: float | None = None


@dataclass(frozen=True)
class QuantisedOutput:
    """An output of the quantised model beside the float model's, on the calibration data.

    Attributes:
        name: of the output.
        sqnr: signal-to-noise ratio in dB; None where it is exact.
        max_error: largest difference.
        largest: largest magnitude of the float model's.
        top1: share of rows whose largest element is the same one, 0 to 1; None where it does not look like
            scores of classes.
    """

    name: str
    sqnr: float | None
    max_error: float
    largest: float
    top1: float | None = None


@dataclass(frozen=True)
class QuantisationFigures:
    """What became of a float model.

    Attributes:
        layers: in the model's order.
        outputs: in the model's order.
        samples: how many were calibrated and compared with.
        kept_float: names of layers that stay float for the sake of ``min_sqnr``, those that it helps most
            first; then those for the accuracy.
        accuracy, float_accuracy: of the quantised and the float model, as the user's script measures them.
        weight_bytes_before, weight_bytes_after: of all constants, in the float and the quantised model.
        warnings: a sentence each.
    """

    layers: tuple[QuantisedLayer, ...]
    outputs: tuple[QuantisedOutput, ...]
    samples: int
    kept_float: tuple[str, ...] = ()
    weight_bytes_before: int = 0
    weight_bytes_after: int = 0
    accuracy: float | None = None
    float_accuracy: float | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QuantisationFigures:
        """The figures that :meth:`to_json` wrote."""
        return cls(
            layers=tuple(QuantisedLayer(**one) for one in data["layers"]),
            outputs=tuple(QuantisedOutput(**one) for one in data["outputs"]),
            samples=int(data["samples"]),
            kept_float=tuple(data["kept_float"]),
            weight_bytes_before=int(data["weight_bytes_before"]),
            weight_bytes_after=int(data["weight_bytes_after"]),
            accuracy=data["accuracy"],
            float_accuracy=data["float_accuracy"],
            warnings=tuple(data["warnings"]),
        )
