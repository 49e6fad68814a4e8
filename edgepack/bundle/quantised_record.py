"""What a manifest says of a float model that was quantised on the way to the bundle."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgepack.bundle.fields import Sha256
from edgepack.bundle.records import Record

__all__ = ["QuantisedLayerRecord", "QuantisedOutputRecord", "QuantisedRecord"]


class QuantisedLayerRecord(Record):
    """What became of a layer of the float model, on the calibration data."""

    name: str = Field(description="of the node")
    operator: str
    quantised: bool = Field(description="whether it computes with integers")
    low: float | None = Field(default=None, description="least value that its result can have; null: float")
    high: float | None = Field(default=None, description="greatest one")
    outside: float = Field(default=0.0, ge=0, le=1, description="share of its result's values beyond these")
    weight_sqnr: float | None = Field(
        default=None, description="decibels of its weights; null: exact, or none"
    )
    sqnr: float | None = Field(default=None, description="decibels of its result; null: exact, or not known")


class QuantisedOutputRecord(Record):
    """An output of the quantised model beside the float model's, on the calibration data."""

    name: str
    sqnr: float | None = Field(default=None, description="decibels; null: exact")
    max_error: float = Field(ge=0, description="largest difference")
    largest: float = Field(ge=0, description="largest magnitude of the float model's")
    top1: float | None = Field(
        default=None, description="share of rows with the same largest; null: no scores"
    )


class QuantisedRecord(Record):
    """How a float model was quantised on the way to the bundle, whose recorded outputs are those of the
    quantised model."""

    mode: Literal["int8", "dynamic"]
    sha256: Sha256 = Field(description="of the quantised model")
    calibration: Sha256 | None = Field(
        default=None, description="over the files of the calibration data; null: random ones, or none"
    )
    samples: int = Field(ge=0, description="of these data that were used")
    exclude: tuple[str, ...] = Field(default=(), description="patterns of layers that stayed float")
    min_sqnr: float | None = Field(default=None, description="decibels that each output was to have")
    reduce_range: bool = Field(default=False, description="whether weights have 7 bits")
    activation_tables: bool | None = Field(
        default=None,
        description="whether products are rounded before their activations too; null: before expensive ones",
    )
    kept_float: tuple[str, ...] = Field(default=(), description="layers that stayed float for these")
    sqnr: dict[str, float | None] = Field(
        default={}, description="by output: decibels beside the float model on these data; null: exact"
    )
    outputs: tuple[QuantisedOutputRecord, ...] = Field(default=(), description="in the model's order")
    layers: tuple[QuantisedLayerRecord, ...] = Field(
        default=(), description="in the model's order; none: it was quantised dynamically"
    )
