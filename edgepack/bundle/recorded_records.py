"""What a manifest says of the recorded data: tensors, tolerances, and how sure the reference is."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, StringConstraints, model_serializer

from edgepack.bundle.fields import DtypeName, Extent, distinct
from edgepack.bundle.memory_records import without_empty
from edgepack.bundle.paths import PathInBundle
from edgepack.bundle.records import Record

__all__ = ["CornerRecord", "Recorded", "RecordedTensor"]

#: Of a run on corner data, and of its folder.
CornerName = Annotated[str, StringConstraints(pattern=r"^[a-z]+$", max_length=30)]


class RecordedTensor(Record):
    """A recorded input or expected output, and how near a result must be: |out-ref| <= atol + rtol*|ref|."""

    name: str
    dtype: DtypeName
    shape: tuple[Extent, ...]
    file: PathInBundle = Field(description="path in the bundle: raw, little-endian, row-major")
    atol: float = 0.0
    rtol: float = 0.0
    max_abs: float | None = Field(default=None, description="largest finite absolute value expected")
    noise: float | None = Field(
        default=None,
        description="how far off the reference is itself at most, part of the tolerance; null: unknown",
    )
    noisy: bool = Field(default=False, description="whether the tolerance is wider for that than otherwise")

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = without_empty(handler(self), "noisy")
        return data if self.noise is not None else without_empty(data, "noise")


class CornerRecord(Record):
    """A run on corner data: the recorded inputs with other numbers in some places."""

    name: CornerName = Field(
        description="its folder in test/ too; special: NaN, infinities; large: numbers; ends: of ranges"
    )
    inputs: tuple[RecordedTensor, ...] = ()
    outputs: tuple[RecordedTensor, ...] = ()


class Recorded(Record):
    """Recorded data that proves that the bundle works."""

    reference: str = Field(description="what computed the outputs")
    noise_of: str = Field(default="", description="what shows how far off these are; empty: nothing")
    drawn: str = Field(default="", description="how the inputs were drawn; empty: by the seed asked for")
    inputs: tuple[RecordedTensor, ...] = ()
    outputs: tuple[RecordedTensor, ...] = ()
    corners: Annotated[tuple[CornerRecord, ...], distinct("name")] = Field(
        default=(), description="runs on corner data; a bundle without was made before there were any"
    )
    corners_left_out: dict[CornerName, str] = Field(
        default={}, description="by name, why such a run is not there"
    )

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "noise_of", "drawn", "corners", "corners_left_out")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the tolerances and of the inputs, in sentences without a full stop."""
        found = [
            f"the reference is itself off by up to {output.noise:.2g} of {output.max_abs or 0:.3g} in output "
            f"{output.name} ({self.noise_of}), and its tolerance is wider for that"
            for output in self.outputs
            if output.noisy and output.noise is not None
        ]
        if self.drawn:
            found.append(f"the recorded inputs are drawn with {self.drawn}: others say less, for rounding")
        return tuple(found)
