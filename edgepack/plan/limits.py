"""How much may become of a small file: a model is somebody else's, and a few bytes can ask for terabytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DEFAULT_LIMITS", "DEFAULT_TRIPS", "LEAST_CONSTANT_BYTES", "Limits"]

#: What constants may grow to by default: so many bytes, or so many times those in the file.
LEAST_CONSTANT_BYTES, CONSTANT_GROWTH = 512 << 20, 8

#: Trips that a loop may make by default.
DEFAULT_TRIPS = 1_000_000


@dataclass(frozen=True)
class Limits:
    """How much may become of a model before it is refused.

    Attributes:
        constant_bytes: that constants which are computed from others may take; 0: eight times what those in
            the file take, and at least 512 MiB.
        nodes: that the model may have with its functions and loops written out.
        trips: that each loop may make. One that the model says makes more is refused; where the data decide,
            a run that would make more fails.
    """

    constant_bytes: int = 0
    nodes: int = 100_000
    trips: int = DEFAULT_TRIPS

    def constants(self, given: int) -> int:
        """Bytes that computed constants may take in a model whose own take ``given``."""
        return self.constant_bytes or max(LEAST_CONSTANT_BYTES, CONSTANT_GROWTH * given)

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        return cls(int(data["constant_bytes"]), int(data["nodes"]), int(data["trips"]))


DEFAULT_LIMITS = Limits()
