"""How much of an arena is in use at each step of a run, and what is there at the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgepack.bundle.manifest import BufferRecord, Manifest, VariantRecord
from edgepack.errors import ConfigError

__all__ = ["ArenaUse", "LiveBuffer", "StepUse", "all_arena_uses", "arena_uses", "bytes_in_use"]


@dataclass(frozen=True)
class StepUse:
    """A step, and how many bytes of the arena are in use during it: what it reads and writes, its scratch,
    and what waits for a later step."""

    step: int
    nbytes: int
    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class LiveBuffer:
    """A buffer that is in use at the peak, and the nodes of the step that makes it."""

    buffer: BufferRecord
    nodes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.buffer.model_dump(mode="json"), "nodes": list(self.nodes)}


@dataclass(frozen=True)
class ArenaUse:
    """An arena over a run. Inputs, outputs and params are not in it.

    Attributes:
        variant: of a library with several kinds of kernels, whose steps these are; "" for the device's own.
        gpu: whether it is in the GPU's memory.
        arena: its size in bytes; what is in use is less where buffers do not fit into each other's places.
        steps: in the order in which they run.
        peak: index of the first step with the most bytes in use.
        live: what is in use then, the largest first.
    """

    variant: str
    gpu: bool
    arena: int
    steps: tuple[StepUse, ...]
    peak: int
    live: tuple[LiveBuffer, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "variant": self.variant,
            "gpu": self.gpu,
            "arena": self.arena,
            "peak": self.peak,
            "steps": [asdict(step) for step in self.steps],
            "live_at_peak": [one.to_json() for one in self.live],
        }


def arena_uses(record: Manifest | VariantRecord) -> list[ArenaUse]:
    """The arena over a run, and that of the GPU; without those that are empty, or of a bundle of an older
    version, which did not say where its buffers are.

    Raises:
        ConfigError: a buffer is outside of the arena, or of steps that there are not.
    """
    memory, steps = record.memory, record.steps
    variant = record.name if isinstance(record, VariantRecord) else ""
    found = []
    for gpu, buffers, size in (
        (False, memory.buffers, memory.arena),
        (True, memory.gpu_buffers, memory.gpu_arena),
    ):
        if not buffers or not size:
            continue
        if any(one.last_step >= len(steps) or not _placed(one, size) for one in buffers):
            raise ConfigError(
                "The manifest's arena has a buffer outside of it, or of steps that there are not.",
                hint="Pack the model again.",
            )
        used = bytes_in_use(buffers, len(steps))
        peak = used.index(max(used))
        live = sorted(
            (one for one in buffers if one.first_step <= peak <= one.last_step),
            key=lambda one: (-one.nbytes, one.offset),
        )
        uses = [
            StepUse(index, nbytes, step.kernel, step.nodes)
            for index, (step, nbytes) in enumerate(zip(steps, used, strict=True))
        ]
        made = tuple(LiveBuffer(one, steps[one.first_step].nodes) for one in live)
        found.append(ArenaUse(variant, gpu, size, tuple(uses), peak, made))
    return found


def all_arena_uses(manifest: Manifest) -> list[ArenaUse]:
    """:func:`arena_uses` of the device's own kernels, and of all variants."""
    records: list[Manifest | VariantRecord] = [manifest, *manifest.variants]
    return [use for record in records for use in arena_uses(record)]


def bytes_in_use(buffers: Sequence[BufferRecord], steps: int) -> list[int]:
    """Bytes of the arena that buffers take in each of so many steps: where a result lies over what it is made
    of, they count once."""
    live: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for buffer in sorted(buffers, key=lambda one: one.offset):
        for step in range(buffer.first_step, buffer.last_step + 1):
            live[step].append((buffer.offset, buffer.offset + buffer.nbytes))
    return [_covered(places) for places in live]


def _covered(places: Sequence[tuple[int, int]]) -> int:
    """Bytes that lie in some of the places, which are sorted by their beginnings."""
    total = end = 0
    for first, last in places:
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def _placed(buffer: BufferRecord, arena: int) -> bool:
    """Whether it lies in the arena, and ends after it begins."""
    return buffer.first_step <= buffer.last_step and buffer.offset + buffer.nbytes <= arena
