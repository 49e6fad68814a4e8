"""The GPU of a device, as its file has it."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from edgepack.config.models import Frozen, Size
from edgepack.errors import ConfigError
from edgepack.plan.gpu_speed import GpuSpeed
from edgepack.plan.gpu_target import TF32_CAPABILITY, Precision

__all__ = ["GpuModel", "GpuSpeedModel", "check_precision"]


class GpuSpeedModel(Frozen):
    """How fast the GPU is, for estimates of where an operator is computed."""

    bandwidth: float = Field(default=0, ge=0, description="Of its memory, in GB/s; 0: that of its kind.")
    peak: float = Field(
        default=0,
        ge=0,
        description="Float32 operations, a multiply-add counted as two, in 10^9 a second; 0: that of its "
        "kind.",
    )
    link: float = Field(
        default=0, ge=0, description="Copies from and to its memory, in GB/s; 0: that of its kind."
    )
    launch: float = Field(
        default=0, ge=0, description="Microseconds from one kernel to the next; 0: those of its kind."
    )
    copy_time: float = Field(
        default=0,
        ge=0,
        description="Microseconds of a copy beside its bytes, waiting included; 0: those of its kind.",
    )

    def of(self, usual: GpuSpeed) -> GpuSpeed:
        """What is given, and the rest of what is usual."""
        return GpuSpeed(
            bandwidth=self.bandwidth or usual.bandwidth,
            peak=self.peak or usual.peak,
            launch=self.launch or usual.launch,
            copy=self.copy_time or usual.copy,
            link=self.link or usual.link,
        )


class GpuModel(Frozen):
    """A GPU that the device has, and what kernels for it may count on."""

    api: Literal["none", "opencl", "cuda", "metal"] = Field(
        default="none",
        description="By what its GPU is driven, for which a bundle has kernels too; without it the CPU is "
        "taken.",
    )
    group_size: int = Field(
        default=256, ge=64, le=1024, description="Work items that a work group can have on every such GPU."
    )
    local_memory: Size = Field(
        default=32 * 1024, description="Memory that the work items of a group share, at least."
    )
    groups: int = Field(
        default=32, ge=1, description="Work groups that a kernel should have to keep the GPU busy."
    )
    capabilities: tuple[int, ...] = Field(
        default=(),
        description="Of NVIDIA's GPUs: compute capabilities that machine code is made for (87 is 8.7); later "
        "ones get PTX of the last.",
    )
    cuda: str = Field(
        default="",
        pattern=r"^([1-9][0-9]\.[0-9])?$",
        description="Of NVIDIA's GPUs: the CUDA version of the oldest driver (`10.2`), where that may be "
        "older than NVRTC. The bundle's PTX is then of the version that this driver takes, for the least of "
        "the capabilities, and there is machine code only if NVRTC is of a version whose machine code it "
        "takes.",
    )
    family: int = Field(
        default=0,
        ge=0,
        description="Of Apple's GPUs: the least family of those that the kernels are for (7: A14 and M1, "
        "which multiply matrices by SIMD-groups). The library does not take a GPU of an earlier one.",
    )
    speed: GpuSpeedModel = GpuSpeedModel()
    missing: str = Field(
        default="", description="Why a device whose GPU is looked for here (`detect: gpu`) has none."
    )

    @field_validator("group_size")
    @classmethod
    def _square(cls, value: int) -> int:
        if value not in {64, 256, 1024}:
            raise ValueError(f"must be 64, 256 or 1024, found {value}")
        return value

    @model_validator(mode="after")
    def _is_of_its_maker(self) -> GpuModel:
        if (self.api == "cuda") != bool(self.capabilities):
            raise ValueError("capabilities: NVIDIA's GPUs (api: cuda) have some, and no others have")
        if self.cuda and self.api != "cuda":
            raise ValueError("cuda: only the driver of NVIDIA's GPUs (api: cuda) has this version")
        if self.family and self.api != "metal":
            raise ValueError("family: only Apple's GPUs (api: metal) have one")
        return self


def check_precision(value: str | None, *, gpu: GpuModel, able: bool, device: str) -> None:
    """Raise ConfigError unless kernels for a device, whose name is given, can have this precision; ``able``:
    to compute in fp16."""
    if value not in (None, *get_args(Precision)):
        raise ConfigError(f"No kernels compute with precision {value!r}.", hint="Use fp32, tf32 or fp16.")
    if value == "tf32" and min(gpu.capabilities, default=0) < TF32_CAPABILITY:
        raise ConfigError(
            f"--precision tf32 is for NVIDIA's GPUs since compute capability 8.0, and {device} has others.",
            hint="Use --precision fp16, or a device of your own with `gpu: {capabilities: [80, ...]}`.",
        )
    if value == "fp16" and not able:
        raise ConfigError(
            f"--precision fp16 is for GPUs and for CPUs that compute in float16, and {device} has neither.",
            hint="--weights float16 stores the weights in half the space on any CPU.",
        )
