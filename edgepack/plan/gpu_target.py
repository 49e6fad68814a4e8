"""What the compiler needs to know of a GPU, and of the CPU beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from edgepack.plan.gpu_speed import GpuSpeed, usual_speed
from edgepack.plan.opt_level import OptLevel
from edgepack.plan.target import CpuTarget

__all__ = ["TF32_CAPABILITY", "GpuApi", "GpuTarget", "Precision"]

#: By what the GPU is driven.
GpuApi = Literal["opencl", "cuda", "metal"]

#: What kernels compute with: float32; products of factors that are rounded to TF32; tensors that are float16
#: in the GPU's memory. Sums are float32.
Precision = Literal["fp32", "tf32", "fp16"]

#: First compute capability whose units multiply numbers of TF32.
TF32_CAPABILITY = 80

#: Pointers that a kernel can have: OpenCL promises 1024 bytes of arguments, Metal has a table of 31 buffers.
_MOST_PARAMETERS = {"opencl": 128, "cuda": 128, "metal": 31}


@dataclass(frozen=True)
class GpuTarget:
    """A GPU as the kernel rules see it.

    Attributes:
        api: the language of the kernels, and by what they are launched.
        host: the CPU, which computes what the GPU's kernels do not serve.
        group_size: work items (threads) of a work group that every device of the target can have.
        local_bytes: memory that the work items of a group share, in bytes.
        least_groups: work groups that a kernel should have to keep the device busy.
        capabilities: of NVIDIA's GPUs, the compute capabilities that machine code is made for, 10 * major +
            minor.
        cuda: of NVIDIA's GPUs, the CUDA version of the oldest driver ("10.2"); "" for one as new as NVRTC.
        family: of Apple's GPUs, the least family (7: A14, M1); 0 for any.
        precision: "fp16" keeps weights and what lies between kernels as float16; "tf32" rounds the factors of
            products.
        float16_weights: weights that are float16 numbers are stored as such, whatever the precision.
        speed: for estimates; None: that of a common GPU of the kind.
    """

    kind: ClassVar[str] = "gpu"

    api: GpuApi
    host: CpuTarget
    group_size: int = 256
    local_bytes: int = 32 * 1024
    least_groups: int = 32
    capabilities: tuple[int, ...] = ()
    cuda: str = ""
    family: int = 0
    precision: Precision = "fp32"
    float16_weights: bool = False
    speed: GpuSpeed | None = None

    @property
    def cpu_kind(self) -> str:
        """That of the CPU beside it, by which schedules of its kernels are tuned."""
        return self.host.cpu_kind

    @property
    def gpu_kind(self) -> str:
        """A text that is the same for GPUs on which schedules of kernels take the same time, relative to each
        other: what drives them, what they can do and have, how fast they are, in what precision and for what
        kernels are chosen. It is no kind of CPU."""
        able = [f"sm_{capability}" for capability in self.capabilities]
        able += [f"family={self.family}"] if self.family else []
        speed = self.estimated_speed
        sizes = f"group={self.group_size},local={self.local_bytes},groups={self.least_groups}"
        fast = f"{speed.bandwidth:g}GB/s,{speed.peak:g}GFLOPS"
        words = ["gpu", self.api, ",".join(able), sizes, fast, self.precision, self.host.optimize]
        return " ".join(filter(None, words))

    @property
    def tuned_kinds(self) -> tuple[str, ...]:
        """The kinds whose tuned schedules are taken: the GPU's, and that of the CPU beside it."""
        return self.gpu_kind, self.cpu_kind

    @property
    def opt_level(self) -> OptLevel:
        """How much is done for speed, here and on the host."""
        return self.host.opt_level

    @property
    def estimated_speed(self) -> GpuSpeed:
        """What is known of the GPU's speed, or that of a common one of its kind."""
        return self.speed or usual_speed(self.api, self.host.triple, self.capabilities)

    @property
    def most_parameters(self) -> int:
        """Pointers that a kernel can have at most."""
        return _MOST_PARAMETERS[self.api]

    @property
    def tensor_cores(self) -> bool:
        """Whether every such GPU of NVIDIA's multiplies matrices of float16 with float32 sums, as those since
        Turing do (``mma.sync.m16n8k8``)."""
        return bool(self.capabilities) and min(self.capabilities) >= 75

    @property
    def simdgroup_matrices(self) -> bool:
        """Whether every such GPU of Apple's multiplies matrices by SIMD-groups, as those since family 7 do
        (Metal Feature Set Tables, "SIMD-scoped matrix multiply operations")."""
        return self.api == "metal" and self.family >= 7

    def to_json(self) -> dict[str, Any]:
        """Plain data with the target's ``kind``, for a job file or a cache key."""
        return {"kind": self.kind, **asdict(self), "host": self.host.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GpuTarget:
        """Inverse of :meth:`to_json`."""
        fields = {key: value for key, value in data.items() if key != "kind"}
        fields["host"] = CpuTarget.from_json(data["host"])
        fields["capabilities"] = tuple(data["capabilities"])
        fields["speed"] = GpuSpeed(**data["speed"]) if data["speed"] is not None else None
        return cls(**fields)
