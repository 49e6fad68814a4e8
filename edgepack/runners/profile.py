"""Where a run's time goes: the measured steps with what their kernels compute and move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from edgepack.bundle.manifest import KernelRecord, Manifest, VariantRecord
from edgepack.errors import ConfigError

__all__ = ["ProfileEntry", "profile_entries"]


@dataclass(frozen=True)
class ProfileEntry:
    """A step, or the steps in a row that compute the same nodes (the stages of a Winograd convolution).

    Attributes:
        first_step, last_step: indices into the manifest's steps, both included.
        us: time in microseconds, of all its steps.
        share: of the run.
        flops: floating point operations of direct computation; Winograd's algorithm does fewer.
        bytes_moved: least bytes read and written.
        of_peak: fraction of the peak that the caller named, times the rate at which the kernel's instruction
            multiplies in place of float32 (4 for VNNI's); None without one, or without operations.
    """

    first_step: int
    last_step: int
    us: float
    share: float
    rule: str
    parameters: dict[str, Any]
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    flops: int
    bytes_moved: int
    of_peak: float | None

    @property
    def gflops(self) -> float | None:
        """1e9 operations per second."""
        return self.flops / self.us / 1e3 if self.us > 0 and self.flops else None

    @property
    def gbs(self) -> float | None:
        """1e9 bytes per second."""
        return self.bytes_moved / self.us / 1e3 if self.us > 0 and self.bytes_moved else None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "gflops": self.gflops, "gbs": self.gbs}


def profile_entries(
    manifest: Manifest | VariantRecord, steps_us: Sequence[float], peak_gflops: float | None = None
) -> list[ProfileEntry]:
    """What each step of a run computes and how long it took, in the order in which they run.

    Args:
        manifest: or the record of the variant that was measured: :meth:`Manifest.code`.
        steps_us: microseconds of each step.
        peak_gflops: what all the threads together can do at most in float32, in 1e9 operations per second.

    Raises:
        ConfigError: a step of the manifest names a kernel that it has not; one without a name is a copy.
    """
    kernels = {kernel.symbol: kernel for kernel in manifest.kernels}
    if unknown := {step.kernel for step in manifest.steps if step.kernel} - kernels.keys():
        raise ConfigError(
            f"The manifest's steps name the kernel {min(unknown)!r}, which it has not.",
            hint="Pack the model again.",
        )
    total = sum(steps_us) or 1.0

    def what_it_computes(index: int) -> tuple[object, ...]:
        step = manifest.steps[index]
        rule = kernels[step.kernel].rule if step.kernel else "copy"
        return (rule, step.nodes) if step.nodes else (rule, index)

    entries = []
    for _, grouped in groupby(range(len(steps_us)), key=what_it_computes):
        indices = list(grouped)
        us = sum(steps_us[i] for i in indices)
        steps = [manifest.steps[i] for i in indices]
        members = [
            kernels[s.kernel] if s.kernel else KernelRecord(symbol="copy", rule="copy", bytes_moved=s.copied)
            for s in steps
        ]
        flops = sum(step.times * kernel.flops for step, kernel in zip(steps, members, strict=True))
        # What multiplies bytes does several in the time of one of float32.
        most = peak_gflops * max(float(k.parameters.get("rate", 1)) for k in members) if peak_gflops else 0.0
        of_peak = flops / us / 1e3 / most if most and us > 0 and flops else None
        entries.append(
            ProfileEntry(
                first_step=indices[0],
                last_step=indices[-1],
                us=us,
                share=us / total,
                rule=members[0].rule,
                parameters=_parameters(members),
                nodes=manifest.steps[indices[0]].nodes,
                ops=members[0].ops,
                flops=flops,
                bytes_moved=sum(
                    step.times * kernel.bytes_moved for step, kernel in zip(steps, members, strict=True)
                ),
                of_peak=of_peak,
            )
        )
    return entries


def _parameters(kernels: Sequence[KernelRecord]) -> dict[str, Any]:
    return {key: value for kernel in kernels for key, value in kernel.parameters.items()}
