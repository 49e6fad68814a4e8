"""The sections of a device's file: LLVM, compilers, the CPU's caches, runner, audit, budget."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
)

from edgepack.config.models import CPU_MODEL, LLVM_CPU, LONGEST_RUN, TRIPLE, Frozen, Name, Size, Variable
from edgepack.plan.costs import COMPARED, NEVER

__all__ = [
    "ArtifactKind",
    "AuditPolicy",
    "Budget",
    "CompilerTarget",
    "CostTable",
    "CpuModel",
    "Feature",
    "Library",
    "LlvmTarget",
    "RunnerChoice",
    "Word",
]

#: What a bundle may hold for a device.
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

#: A system's library, as ``-l`` has it: it stands in pkg-config's files and in command lines.
Library = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$", max_length=100)]

#: Instructions of the machine.
Cost = Annotated[float, Field(ge=0, le=100)]


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


class CostTable(Frozen):
    """How many instructions of the machine those outside of inner loops become, and how much faster another
    schedule has to be by prediction; written by ``benchmarks/fit_costs.py``."""

    multiply_add: Cost = Field(
        default=1.0,
        description="Instructions for a multiplication that is added to a sum, outside of inner loops.",
    )
    arithmetic: Cost = Field(default=1.0, description="For anything else that computes.")
    load: Cost = Field(default=1.0, description="For a load.")
    store: Cost = Field(default=1.0, description="For a store.")
    move: Cost = Field(default=1.0, description="For a move between registers.")
    scalar: Cost = Field(default=0.5, description="For what computes a position or a condition.")
    branch: Cost = Field(default=2.0, description="For the end of a loop's iteration, or a condition.")
    least_gain: dict[str, Annotated[float, Field(ge=1, le=NEVER)]] = Field(
        default={},
        description="By rule and type (`conv2d.igemm int8`), how many times as fast another schedule has to "
        "be by prediction to be taken in place of the rule's own; what is not named, or has 100, the rule "
        "decides. Only for firmware.",
    )

    @field_validator("least_gain")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in COMPARED:
                raise ValueError(f"{name!r} is not compared; there are {', '.join(COMPARED)}")
        return value


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
    soft_float: bool = Field(
        default=True,
        description="Where the CPU has no FPU: models may multiply tensors of floats, each operation a call "
        "of the compiler's library. Otherwise those are refused that take a million instructions for it.",
    )
    l1d: Size = Field(default=32 * 1024, description="Level 1 data cache of one core.")
    l2: Size = Field(default=256 * 1024, description="Level 2 cache that one core can fill.")
    l3: Size = Field(
        default=0, description="Level 3 cache that cores share; 0 where there is none, or none that is known."
    )
    costs: CostTable = CostTable()


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
