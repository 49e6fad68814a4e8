"""Devices: what to build for. One YAML file each; see docs/devices.md."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from edgepack import resources
from edgepack.config.aliases import alias_documents, load_aliases, no_device
from edgepack.config.gpu import GpuModel
from edgepack.config.host import detect
from edgepack.config.host_gpu import detect_with_gpu
from edgepack.config.load import Kind, Resolved
from edgepack.config.models import CPU_MODEL, LLVM_CPU, LONGEST_RUN, TRIPLE, Frozen, Name, Size, Variable
from edgepack.config.xtensa import NO_XTENSA
from edgepack.errors import ConfigError
from edgepack.plan.gpu_speed import usual_speed
from edgepack.plan.gpu_target import GpuTarget, Precision
from edgepack.plan.target import CPU_FEATURES, CpuTarget
from edgepack.plan.types import ParamsMode

__all__ = [
    "DEVICES",
    "ArtifactKind",
    "AuditPolicy",
    "Budget",
    "CompilerTarget",
    "CpuModel",
    "Device",
    "LlvmTarget",
    "RunnerChoice",
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
ArtifactKind = Literal["shared", "static", "program"]
Word = Annotated[str, StringConstraints(pattern=r"^\S+$")]


def _signed(feature: str) -> str:
    if not re.fullmatch(r"[+-][A-Za-z0-9._-]+", feature):
        raise ValueError(
            f"{feature!r} has no sign; write `+{feature}` to use it, `-{feature}` to leave it out"
        )
    return feature


Feature = Annotated[
    str, AfterValidator(_signed), WithJsonSchema({"type": "string", "pattern": r"^[+-][A-Za-z0-9._-]+$"})
]


class LlvmTarget(Frozen):
    """What TVM's LLVM compiles the kernels for."""

    triple: str = Field(
        pattern=TRIPLE,
        max_length=100,
        description="Four parts for Linux: with three, LLVM silently picks another float ABI.",
    )
    cpu: str = Field(
        default="",
        pattern=LLVM_CPU,
        max_length=100,
        description='LLVM CPU name (`cortex-a72`); "" is the baseline of the triple.',
    )
    features: tuple[Feature, ...] = Field(
        default=(), description="LLVM features, each with its sign (`+dotprod`)."
    )
    abi: str = Field(default="", description='LLVM ABI name (`lp64d`); "" is the default of the triple.')


class CpuModel(Frozen):
    """What the kernel rules choose tiles by."""

    vector_bits: Literal[0, 64, 128, 256, 512, 1024] = Field(
        description="Width of one SIMD register in bits; 0 without SIMD."
    )
    vector_registers: int = Field(ge=0, le=128, description="SIMD registers that a tile may use.")
    datapath_bits: Literal[0, 64, 128, 256, 512] = Field(
        default=0,
        description="Width that the arithmetic units work on at once, where it is less than `vector_bits` "
        "(256 on Zen 4); 0 where it is not.",
    )
    fma: bool = Field(default=False, description="Fused multiply-add is one instruction.")
    l1d: Size = Field(default=32 * 1024, description="Level 1 data cache of one core.")
    l2: Size = Field(default=256 * 1024, description="Level 2 cache that one core can fill.")
    l3: Size = Field(
        default=0, description="Level 3 cache that cores share; 0 where there is none, or none that is known."
    )


class CompilerTarget(Frozen):
    """How one compiler family spells this device.

    It compiles only the runtime and the loader, which check the CPU before a kernel runs, so ``cpu`` is to
    stay at the baseline of the architecture.
    """

    target: Word = Field(description="The family's name of the target (`aarch64-linux-gnu.2.28`).")
    cpu: str = Field(default="", description="The family's name of the CPU for C code.")
    flags: tuple[str, ...] = Field(default=(), description="More flags, for compiling and linking.")
    sysroot: str = Field(default="", description="Folder with the target's headers and libraries.")


class RunnerChoice(Frozen):
    """Which runner `verify` and `bench` use, and its settings."""

    name: Name = Field(description="The runner (`native`, `qemu`).")
    program: str = Field(default="", description="Executable of the runner, if it has one (`qemu-aarch64`).")
    cpu: str = Field(
        default="",
        pattern=CPU_MODEL,
        max_length=200,
        description="CPU that an emulator shows to the program.",
    )
    sysroot: str = Field(default="", description="Folder with the target's dynamic linker and libc.")
    environment: dict[Variable, str] = Field(default={}, description="Environment variables for the program.")
    timeout: int = Field(default=600, ge=1, le=LONGEST_RUN, description="Seconds until a run is given up.")
    options: dict[str, str | int | bool] = Field(default={}, description="What else this runner knows.")


class AuditPolicy(Frozen):
    """What a built file may need; anything else fails the pack."""

    needed: tuple[str, ...] = Field(
        default=(), description="Libraries that it may load; `*` matches any text."
    )
    glibc: str = Field(
        default="",
        pattern=r"^([0-9]{1,4}\.[0-9]{1,4})?$",
        description='Oldest glibc that must do (`"2.28"`, in quotes); "" is not checked.',
    )
    symbols: tuple[str, ...] = Field(
        default=(), description="Undefined symbols that are allowed beside those of libc, libm and threads."
    )


class Budget(Frozen):
    """What a model may take of a microcontroller; more fails the pack, with a table of the parts."""

    flash: Size = Field(default=0, description="Flash: kernels, runtime, params, library; 0 is not limited.")
    ram: Size = Field(default=0, description="RAM: arena, data, stack; 0 is not limited.")


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
    libraries: tuple[str, ...] = Field(default=(), description="System libraries to link (`m`, `pthread`).")
    artifacts: tuple[ArtifactKind, ...] = Field(
        default=("shared", "static", "program"), description="What a bundle for this device holds."
    )
    formats: tuple[Word, ...] = Field(
        default=("tar.gz",), description="Package formats that a release makes for it (docs/formats.md)."
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
        if not self.bare_metal and self.budget != Budget():
            raise ValueError("budget: only firmware (os: none) has one")
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
        return CpuTarget(
            triple=self.llvm.triple,
            cpu=self.llvm.cpu,
            features=self.llvm.features,
            abi=self.llvm.abi,
            vector_bits=self.cpu.vector_bits,
            vector_registers=self.cpu.vector_registers,
            datapath_bits=self.cpu.datapath_bits,
            fma=self.cpu.fma,
            l1d_bytes=self.cpu.l1d,
            l2_bytes=self.cpu.l2,
            l3_bytes=self.cpu.l3,
            threads=self.threads,
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
