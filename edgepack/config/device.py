"""Devices: what to build for. One YAML file each; see docs/reference/device-files.md."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from edgepack import resources
from edgepack.config.aliases import alias_documents, load_aliases, no_device
from edgepack.config.device_sections import (
    ArtifactKind,
    AuditPolicy,
    Budget,
    CompilerTarget,
    CpuModel,
    Library,
    LlvmTarget,
    RunnerChoice,
    Word,
)
from edgepack.config.gpu import GpuModel
from edgepack.config.host import detect
from edgepack.config.host_gpu import detect_with_gpu
from edgepack.config.load import Kind, Resolved
from edgepack.config.memories import RAM, MemoryRegion, arena_room, mistake_in
from edgepack.config.models import Frozen, Name, Size
from edgepack.config.xtensa import NO_XTENSA
from edgepack.errors import ConfigError
from edgepack.plan.costs import InstructionCosts
from edgepack.plan.gpu_speed import usual_speed
from edgepack.plan.gpu_target import GpuTarget, Precision
from edgepack.plan.target import CPU_FEATURES, CpuTarget
from edgepack.plan.types import ParamsMode

__all__ = [
    "DEVICES",
    "Device",
    "alias_note",
    "computes_float16",
    "device_names",
    "load_device",
    "load_variant",
    "resolve_device",
]

#: First parts of LLVM triples, by architecture.
_TRIPLE_ARCH = {
    "x86_64": ("x86_64",),
    "aarch64": ("aarch64", "arm64"),
    "arm": ("arm", "thumb"),
    "riscv32": ("riscv32",),
    "riscv64": ("riscv64",),
    "wasm32": ("wasm32",),
}

Arch = Literal["x86_64", "aarch64", "arm", "riscv32", "riscv64", "wasm32"]
Os = Literal["linux", "android", "macos", "ios", "windows", "wasi", "emscripten", "none"]
Libc = Literal["glibc", "musl", "bionic", "libsystem", "mingw", "wasi", "emscripten", "newlib"]


class Device(Frozen):
    """A device, all of its fields given.

    Made by :func:`load_device`.
    """

    name: Name = Field(description="The file's name without .yaml, unless given.")
    description: str = Field(default="", description="One line for the list of devices.")
    arch: Arch = Field(description="Architecture.")
    os: Os = Field(description="Operating system; `none` is bare metal.")
    libc: Libc = Field(description="C library.")
    llvm: LlvmTarget
    cpu: CpuModel
    variants: tuple[Word, ...] = Field(
        default=(),
        description="Devices whose kernels a bundle holds too. When it is loaded, the first whose "
        "`cpu_requires` the CPU has is taken, else this device's own.",
    )
    threads: int = Field(
        default=1, ge=1, le=1024, description="Threads of a session unless the caller asks otherwise."
    )
    web_threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Of WebAssembly: where threads help a model, its npm package holds a second module that "
        "computes on so many, for pages that may share memory, and node. Kernels are planned for them.",
    )
    heterogeneous: bool = Field(
        default=False,
        description="Cores of unequal speed: threads claim tasks instead of sharing them out evenly.",
    )
    cpu_requires: tuple[str, ...] = Field(
        default=(), description="CPU features that the runtime checks before any kernel runs."
    )
    toolchain: Word = Field(default="zig", description="The toolchain unless `--toolchain` says otherwise.")
    compilers: dict[str, CompilerTarget] = Field(
        default={}, description="By compiler family: how it spells this device."
    )
    libraries: tuple[Library, ...] = Field(
        default=(), description="System libraries to link (`m`, `pthread`)."
    )
    artifacts: tuple[ArtifactKind, ...] = Field(
        default=("shared", "static", "program"), description="What a bundle for this device holds."
    )
    formats: tuple[Word, ...] = Field(
        default=("tar.gz",), description="Package formats that a release makes for it (docs/ship/formats.md)."
    )
    params: ParamsMode = Field(
        default="file", description="Where the parameters are, unless `--params` says otherwise."
    )
    page_size: Size = Field(
        default=4096, description="Largest page of the device's kernels; files are aligned for it."
    )
    runner: RunnerChoice
    audit: AuditPolicy = AuditPolicy()
    budget: Budget = Budget()
    memories: tuple[MemoryRegion, ...] = Field(
        default=(),
        description="Of firmware: what may hold params and intermediate results, the nearest memory first.",
    )
    gpu: GpuModel = GpuModel()

    @field_validator("arch", mode="before")
    @classmethod
    def _has_code_generator(cls, value: object) -> object:
        if value == "xtensa":
            raise ValueError(NO_XTENSA)
        return value

    @field_validator("artifacts")
    @classmethod
    def _some_artifact(cls, value: tuple[ArtifactKind, ...]) -> tuple[ArtifactKind, ...]:
        if not value:
            raise ValueError("must name at least one of shared, static, program")
        if len(set(value)) != len(value):
            raise ValueError("names one of them twice")
        return value

    @field_validator("page_size")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value < 1 or value & (value - 1):
            raise ValueError(f"must be a power of two, found {value}")
        return value

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Device:
        first = self.llvm.triple.split("-", 1)[0]
        if not first.startswith(_TRIPLE_ARCH[self.arch]):
            raise ValueError(f"llvm.triple: {self.llvm.triple!r} is not a triple of arch {self.arch!r}")
        if self.os in {"linux", "android"} and self.llvm.triple.count("-") != 3:
            raise ValueError(
                f"llvm.triple: {self.llvm.triple!r} must have four parts (`{first}-unknown-linux-gnu`); "
                "with three, LLVM silently picks another float ABI"
            )
        systems = {"macos", "ios"} if self.gpu.api == "metal" else {"linux", "android", "windows", "macos"}
        if self.gpu.api != "none" and self.os not in systems:
            raise ValueError(f"gpu: there is no way to a GPU's driver on {self.os}")
        if self.web_threads > 1 and self.os != "wasi":
            raise ValueError("web_threads: only WebAssembly (os: wasi) has a module for them")
        if not self.bare_metal and self.budget != Budget():
            raise ValueError("budget: only firmware (os: none) has one")
        if not self.bare_metal and self.memories:
            raise ValueError("memories: only firmware (os: none) has sections for them")
        if not self.bare_metal and self.cpu.costs.least_gain:
            raise ValueError("cpu.costs: only firmware (os: none) is compared by instructions")
        if wrong := mistake_in(self.memories):
            raise ValueError(wrong)
        for feature in self.cpu_requires:
            if feature not in CPU_FEATURES[self.arch]:
                known = ", ".join(CPU_FEATURES[self.arch]) or "none"
                raise ValueError(
                    f"cpu_requires: the runtime cannot check {feature!r} on {self.arch}; it knows {known}"
                )
        return self

    @property
    def bare_metal(self) -> bool:
        """Whether it has no operating system: what is built for it is firmware, linked to fixed addresses."""
        return self.os == "none"

    @property
    def hard_float(self) -> bool:
        """Whether floats are passed in floating point registers."""
        if self.arch == "arm":
            return self.llvm.triple.endswith("hf")
        return self.llvm.abi not in {"lp64", "ilp32"}

    @property
    def object_format(self) -> Literal["elf", "macho", "coff", "wasm"]:
        """Format of its object files."""
        if self.arch == "wasm32":
            return "wasm"
        if self.os in {"macos", "ios"}:
            return "macho"
        return "coff" if self.os == "windows" else "elf"

    def cpu_target(self) -> CpuTarget:
        """What the compiler needs to know of it."""
        arenas = [one.name for one in self.memories if one.arena]
        return CpuTarget(
            triple=self.llvm.triple,
            cpu=self.llvm.cpu,
            features=self.llvm.features,
            abi=self.llvm.abi,
            vector_bits=self.cpu.vector_bits,
            vector_registers=self.cpu.vector_registers,
            datapath_bits=self.cpu.datapath_bits,
            fma=self.cpu.fma,
            soft_float=self.cpu.soft_float,
            l1d_bytes=self.cpu.l1d,
            l2_bytes=self.cpu.l2,
            l3_bytes=self.cpu.l3,
            ram_bytes=self.budget.ram if self.bare_metal else 0,
            threads=max(self.threads, self.web_threads),
            arena_room=arena_room(self.memories, self.budget.ram),
            tensors_beside=arenas.index(RAM) if RAM in arenas else -1,
            costs=InstructionCosts.from_json(self.cpu.costs.model_dump())
            if self.cpu.costs.least_gain
            else None,
        )

    def gpu_target(self, host: CpuTarget, precision: Precision = "fp32") -> GpuTarget | None:
        """What the compiler needs to know of its GPU, beside the CPU; None where it has none."""
        gpu = self.gpu
        if gpu.api == "none":
            return None
        return GpuTarget(
            gpu.api,
            host,
            group_size=gpu.group_size,
            local_bytes=gpu.local_memory,
            least_groups=gpu.groups,
            capabilities=tuple(sorted(gpu.capabilities)),
            cuda=gpu.cuda,
            family=gpu.family,
            precision=precision,
            speed=gpu.speed.of(usual_speed(gpu.api, host.triple, gpu.capabilities)),
        )


#: Where devices are found, and what they must fit.
DEVICES: Kind[Device] = Kind(
    noun="device",
    model=Device,
    directory=resources.DEVICES,
    path_env="EDGEPACK_DEVICE_PATH",
    command="edgepack devices",
    detect={True: detect, "gpu": detect_with_gpu},
    impossible=no_device,
    aliases=alias_documents,
)


def load_device(name_or_path: str | os.PathLike[str]) -> Device:
    """The device of a name or of a path to a YAML file.

    Raises ConfigError: unknown name (with the nearest ones), or what is wrong in the file, with its line.
    """
    return resolve_device(name_or_path).model


def alias_note(name_or_path: str | os.PathLike[str]) -> str:
    """What an alias of a chip or board stands for, in a line (``stm32f407 is cortex-m4 here: ...``); "" for
    any other name, and for a path."""
    name = os.fspath(name_or_path)
    alias = None if name in DEVICES.names() else load_aliases().aliases.get(name)
    return "" if alias is None else f"{name} is {alias.device} here: {alias.sentence}"


def computes_float16(device: Device) -> bool:
    """Whether the CPU of a device, or of one of its variants, computes in float16."""
    every = (device, *(load_variant(device, other) for other in device.variants))
    return any(one.cpu_target().computes_float16 for one in every)


def load_variant(device: Device, name_or_path: str) -> Device:
    """One of ``device.variants``.

    Raises ConfigError, as :func:`load_device`, and for a device whose kernels cannot be in the same library.
    """
    variant = load_device(name_or_path)
    for key in ("arch", "os", "libc", "object_format", "hard_float"):
        mine, other = getattr(device, key), getattr(variant, key)
        if mine != other:
            raise ConfigError(
                f"device {device.name}: its variant {variant.name} cannot be in the same library: {key} is "
                f"{other!r}, not {mine!r}",
                hint="Variants differ in `llvm.cpu`, `llvm.features`, `cpu` and `cpu_requires`.",
            )
    if variant.variants or not variant.cpu_requires:
        what = (
            "has variants itself"
            if variant.variants
            else "requires nothing of the CPU: it would always be taken"
        )
        raise ConfigError(
            f"device {device.name}: its variant {variant.name} {what}",
            hint="Name devices with `cpu_requires`, the most demanding one first.",
        )
    return variant


def resolve_device(name_or_path: str | os.PathLike[str]) -> Resolved[Device]:
    """The device of :func:`load_device`, with where each value came from."""
    return DEVICES.load(name_or_path)


def device_names() -> list[str]:
    """Names that :func:`load_device` knows, sorted."""
    return DEVICES.names()
