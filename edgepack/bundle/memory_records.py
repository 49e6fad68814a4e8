"""What a manifest says of memory: params, arena, and what firmware takes of flash, RAM and other memories."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from edgepack.bundle.fields import OptionalSha256, OptionalWord, SectionName, Sha256, Word, distinct
from edgepack.bundle.paths import PathInBundle
from edgepack.bundle.records import Record

__all__ = [
    "ArenaSection",
    "BufferRecord",
    "Footprint",
    "FootprintMemory",
    "FootprintPart",
    "Memory",
    "Params",
    "ParamsSection",
    "without_empty",
]


def without_empty(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """Plain data of a record without these fields where they are empty: what bundles said before there were
    any."""
    return {name: value for name, value in data.items() if value or name not in names}


class ParamsSection(Record):
    """A part of the params that firmware has in one memory."""

    memory: Word = Field(description="the device's name of it")
    section: SectionName = Field(description="for the linker script")
    offset: int = Field(ge=0, description="bytes from the start of the params data")
    nbytes: int = Field(ge=0)
    loaded_from: OptionalWord = Field(
        default="", description="the memory from which start code copies them; empty: from none"
    )


class Params(Record):
    """The parameters (weights)."""

    mode: Literal["file", "embed", "caller"]
    file: PathInBundle | None = Field(default=None, description="path in the bundle; none when embedded")
    nbytes: int = Field(ge=0, description="bytes of the tensors' data")
    id: Sha256 = Field(description="hex; the library accepts only params with this id")
    tensors: int = Field(ge=0, description="how many there are")
    growth: int = Field(default=0, ge=0, description="bytes more than the model's constants, for speed")
    read: int = Field(
        default=0, ge=0, description="of a library with variants: bytes that the device's own kernels read"
    )
    own: int = Field(default=0, ge=0, description="of these, bytes that no variant's kernels read")
    layout: OptionalSha256 = Field(
        default="", description="hex; params of packs with the same fit its library"
    )
    key: OptionalSha256 = Field(
        default="", description="hex; of Ed25519: the library takes params that it signed"
    )
    sections: tuple[ParamsSection, ...] = Field(
        default=(), description="of firmware whose device names memories; left out elsewhere"
    )

    address: int = Field(
        default=0,
        ge=0,
        lt=1 << 32,
        multiple_of=64,
        description="of firmware that is handed its params: where its program expects them; else left out",
    )

    @model_serializer(mode="wrap")
    def _without_sections(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "sections", "read", "own", "address")


class BufferRecord(Record):
    """A region of the arena, and the steps during which it is in use, both included."""

    name: str = Field(description="of the tensor, or what it holds; not unique")
    offset: int = Field(ge=0, description="bytes from the arena's start")
    nbytes: int = Field(ge=0)
    first_step: int = Field(ge=0, description="index into the steps")
    last_step: int = Field(ge=0, description="index into the steps")


class ArenaSection(Record):
    """A part of the arena in one memory: the first so many bytes, the next ones, and so on."""

    memory: Word = Field(description="the device's name of it")
    section: SectionName = Field(description="for the linker script")
    nbytes: int = Field(ge=0)


class Memory(Record):
    """What a session needs, in bytes."""

    arena: int = Field(ge=0, description="all intermediate tensors, planned")
    lower_bound: int = Field(ge=0, description="most bytes live at once; no plan can be smaller")
    peak_step: int = Field(description="index of the step at which the most bytes are live; -1: none")
    scratch_threads: int = Field(default=1, ge=1, description="threads whose scratch the arena holds")
    scratch_per_thread: int = Field(ge=0, description="beside the arena, if there are more threads")
    gpu_arena: int = Field(default=0, ge=0, description="on the GPU, beside the params")
    buffers: tuple[BufferRecord, ...] = Field(default=(), description="the arena's layout")
    gpu_buffers: tuple[BufferRecord, ...] = Field(default=(), description="the layout of the GPU's arena")
    sections: tuple[ArenaSection, ...] = Field(
        default=(),
        description="of firmware whose device names memories: the arena's parts; left out elsewhere",
    )

    @model_serializer(mode="wrap")
    def _without_sections(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "sections")


class FootprintPart(Record):
    """A part of a firmware image, in bytes."""

    name: str
    flash: int = Field(ge=0)
    ram: int = Field(ge=0)
    note: str = ""
    memories: dict[Word, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="by name: of the device's other memories; left out where it takes none"
    )

    @model_serializer(mode="wrap")
    def _without_other_memories(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "memories")


class FootprintMemory(Record):
    """What an image takes of a memory beside flash and RAM, in bytes."""

    name: Word
    used: int = Field(ge=0)
    budget: int = Field(ge=0, description="what the device allows")


class Footprint(Record):
    """What the model takes in firmware, of a linked image with nothing else in it; in bytes."""

    parts: tuple[FootprintPart, ...]
    flash: int = Field(ge=0, description="of all parts")
    ram: int = Field(ge=0, description="of all parts, the stack of a run among them")
    flash_budget: int = Field(default=0, ge=0, description="what the device allows; 0 is not limited")
    ram_budget: int = Field(default=0, ge=0, description="what the device allows; 0 is not limited")
    memories: Annotated[tuple[FootprintMemory, ...], distinct("name")] = Field(
        default=(), description="the device's others; left out where it names none"
    )

    @model_serializer(mode="wrap")
    def _without_other_memories(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(handler(self), "memories")
