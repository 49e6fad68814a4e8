"""Records of a bundle's manifest: what was linked."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from edgepack.bundle.fields import OptionalSha256
from edgepack.bundle.paths import PathInBundle
from edgepack.bundle.records import Record

__all__ = ["Artifact", "ThreadsModule"]


class Artifact(Record):
    """A library or program of the bundle."""

    kind: Literal["shared", "static", "program"]
    path: PathInBundle
    nbytes: int = Field(ge=0)
    loader_sha256: OptionalSha256 = Field(
        default="",
        description="of a shared library: over what the system's loader reads of it; see bundle.md",
    )
    audit: dict[str, Any] = Field(default={}, description="what was found in the file when packing")


class ThreadsModule(Record):
    """A module of WebAssembly whose memory threads share."""

    path: PathInBundle
    nbytes: int = Field(ge=0)
    threads: int = Field(ge=2, le=64, description="that compute at most, unless the caller asks otherwise")
    audit: dict[str, Any] = Field(default={}, description="what was found in the file when packing")

    @property
    def kind(self) -> str:
        """What tables call it, beside the kinds of artifacts."""
        return "threads"
