"""What the kernels need to know of a CPU: the shared type between ``config`` (which makes it from a device's
YAML) and ``compiler`` (which compiles for it).

What depends on the architecture is asked here by the name of a capability, and nowhere by the architecture's
own name: each property says what it is good for, and is derived from triple, CPU and features in one place.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from edgepack.plan.costs import InstructionCosts
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.opt_level import ALL, OptLevel

__all__ = ["CACHE_LINE_BYTES", "CPU_FEATURES", "CpuTarget", "Optimize", "with_precision"]

#: Bytes of a cache line as prefetches and tiles assume it: that of x86, of most 64-bit ARM and RISC-V cores.
CACHE_LINE_BYTES = 64

#: CPU features that a library can require, by architecture (LLVM's names): those that the runtime can check
#: (``templates/runtime/core/cpu.c``).
CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "x86_64": (
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "lzcnt", "bmi", "bmi2", "movbe"),
        *("avx", "avx2", "fma", "f16c"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
        *("avx512vnni", "avx512bf16", "avx512fp16", "avxvnni", "avx512vbmi", "amx-tile", "amx-int8"),
    ),
    "aarch64": ("neon", "fullfp16", "dotprod", "i8mm", "bf16", "sve"),
    "arm": ("neon", "vfp3", "vfp4", "fp16"),
    "riscv32": (),
    "riscv64": ("v",),
    "wasm32": (),
}

#: CPUs of AArch64 that issue instructions in order (LLVM's names).
IN_ORDER_CPUS = {"cortex-a34", "cortex-a35", "cortex-a53", "cortex-a55", "cortex-a510", "cortex-a520"}

#: CPUs of AArch64 whose name alone says that they compute in float16 (FEAT_FP16; LLVM's names).
FLOAT16_CPUS = {
    *("cortex-a55", "cortex-a65", "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "cortex-a78ae"),
    *("cortex-a510", "cortex-a520", "cortex-a710", "cortex-a715", "cortex-a720", "cortex-x1", "cortex-x2"),
    *("neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2"),
    *("apple-a11", "apple-a12", "apple-a13", "apple-a14", "apple-a15", "apple-a16", "apple-a17"),
    *("apple-m1", "apple-m2", "apple-m3", "apple-m4"),
}

#: What kernels are chosen for: the shortest time, the fewest bytes of params, or most of the one for some of
#: the other (see compiler/kernels/cpu/conv/cost.py).
Optimize = Literal["latency", "size", "balanced"]


@dataclass(frozen=True)
class CpuTarget:
    """A CPU as LLVM and the kernel rules see it, and what the user prefers on it.

    Attributes:
        triple: LLVM triple, always four parts (``aarch64-unknown-linux-gnu``): with three LLVM silently picks
            another float ABI for ARM.
        cpu: LLVM CPU name (``cortex-a72``), or "" for the triple's baseline.
        features: LLVM features (``+avx2``), in a fixed order.
        abi: LLVM ABI name (``lp64d``), or "" for the triple's default.
        vector_bits: width of one SIMD register in bits; 0 for a scalar target.
        vector_registers: how many SIMD registers the register tiles may use.
        datapath_bits: width that the arithmetic units work on at once, where it is less than ``vector_bits``:
            half a vector then takes half the time; 0 where it is not less.
        fma: whether fused multiply-add is one instruction.
        soft_float: whether models may multiply tensors of floats where there is no instruction for it.
        l1d_bytes, l2_bytes: data cache sizes of one core, in bytes.
        l3_bytes: size of the cache behind them that cores share, in bytes; 0 where none is known.
        ram_bytes: what a run may take of RAM, with its inputs and outputs; 0 where that is not limited.
        threads: threads that a session uses unless the caller asks for another number.
        optimize: what the rules prefer.
        opt_level: how much is done for speed: passes and rules of higher levels are left out.
        strict_math: neither Winograd's transforms, nor weights by which factors of the image are multiplied,
            nor polynomials for elementary functions, nor zeros for denormal numbers: results differ from the
            model's own arithmetic by the order of sums only.
        float16_weights: weights that are float16 numbers are stored as such.
        float16_products: products by constant weights are computed in float16 (``--precision fp16``).
        library_vector_bits: widths of a SIMD register, in bits, of all kinds of CPU that a library is for,
            where they differ: (512, 256, 128); (): constants need not agree with those of other kernels.
        arena_room: what each memory of a microcontroller has room for of the arena, the nearest first; ():
            there is one memory, without a limit.
        tensors_beside: index of the one in which a model's inputs and outputs lie too; -1: none.
        costs: what instructions count for, by which schedules are compared; None: the rules decide.
        steady_params: how constants are stored does not depend on their values, so that those of a retrained
            model fit.
    """

    kind: ClassVar[str] = "cpu"

    triple: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    abi: str = ""
    vector_bits: int = 128
    vector_registers: int = 16
    datapath_bits: int = 0
    fma: bool = False
    soft_float: bool = True
    l1d_bytes: int = 32 * 1024
    l2_bytes: int = 256 * 1024
    l3_bytes: int = 0
    ram_bytes: int = 0
    threads: int = 1
    optimize: Optimize = "latency"
    opt_level: OptLevel = ALL
    strict_math: bool = False
    float16_weights: bool = False
    float16_products: bool = False
    library_vector_bits: tuple[int, ...] = ()
    arena_room: tuple[int, ...] = ()
    tensors_beside: int = -1
    costs: InstructionCosts | None = None
    steady_params: bool = False

    @property
    def cpu_kind(self) -> str:
        """A text that is the same for CPUs on which schedules take the same time, relative to each other:
        architecture, core, registers, caches, threads, and what kernels are chosen for."""
        caches = f"l1={self.l1d_bytes},l2={self.l2_bytes},l3={self.l3_bytes}"
        registers = f"{self.vector_bits}x{self.vector_registers}"
        core = f"{self.arch} {self.cpu or 'generic'} {','.join(self.features)}".strip()
        return f"{core} {registers} {caches} threads={self.threads} {self.optimize}"

    @property
    def tuned_kinds(self) -> tuple[str, ...]:
        """The kinds whose tuned schedules are taken: its own."""
        return (self.cpu_kind,)

    @property
    def arch(self) -> str:
        """First part of the triple (``x86_64``, ``armv7a``)."""
        return self.triple.split("-", 1)[0]

    @property
    def pointer_bytes(self) -> int:
        """Size of a pointer on the target, in bytes."""
        return 8 if "64" in self.arch and "ilp32" not in self.triple else 4

    @property
    def freestanding(self) -> bool:
        """Whether it has no operating system: code and constants are in flash, which is short."""
        return self.triple.split("-")[2:3] == ["none"]

    @property
    def data_alignment(self) -> int:
        """Alignment of constants in the params and of buffers in the arena, in bytes: a cache line; without
        an operating system, where flash and RAM are short, what the widest load asks for."""
        if not self.freestanding:
            return CACHE_LINE_BYTES
        return max(DTYPE_BYTES["int64"], self.vector_bits // 8)

    @property
    def float16_vectors(self) -> bool:
        """Whether vectors of float16 may be used: for RISC-V's V alone, without Zvfhmin, LLVM ends with
        "Scalarization of scalable vectors is not supported"."""
        return self._family != "riscv" or not {"+zvfh", "+zvfhmin"}.isdisjoint(self.features)

    @property
    def converts_float16(self) -> bool:
        """Whether the CPU has instructions from float16 to float32 and back: F16C, which every x86 CPU with
        FMA has too; 64-bit ARM always, 32-bit ARM from VFPv4 on, which brings FMA; RISC-V's Zvfhmin."""
        named = {"+f16c", "+avx512f", "+fp16", "+zvfh", "+zvfhmin"}
        with_fma = self.fma and self._family in {"x86", "arm"}
        return self._family == "aarch64" or with_fma or not named.isdisjoint(self.features)

    @property
    def computes_float16(self) -> bool:
        """Whether vectors of float16 are added and multiplied, twice as many numbers in an instruction as of
        float32: 64-bit ARM's FEAT_FP16, AVX512-FP16."""
        named = not {"+fullfp16", "+avx512fp16"}.isdisjoint(self.features)
        return named or (self._family == "aarch64" and self.cpu in FLOAT16_CPUS)

    @property
    def _family(self) -> str:
        """The architecture whose instructions the CPU has, from the triple; Apple calls AArch64 arm64."""
        names = {"arm64": "aarch64", "thumb": "arm"}
        known = ("x86", "aarch64", "arm64", "arm", "thumb", "riscv", "wasm")
        found = next((name for name in known if self.arch.startswith(name)), self.arch)
        return names.get(found, found)

    @property
    def _helium(self) -> bool:
        """Whether vectors are those of ARM's microcontrollers."""
        return self.arch.startswith("thumb") and self.vector_bits > 0

    # Capabilities: what kernels ask for instead of the architecture's name ---------------------------------

    @property
    def usable_registers(self) -> int:
        """SIMD registers that a tile counts on; a CPU without vectors has at least 8 for floats."""
        return max(8, self.vector_registers)

    @property
    def short_of_memory(self) -> bool:
        """Whether params lie in flash and all else in the RAM of a chip: nothing is made larger for speed."""
        return "-none-" in self.triple

    @property
    def computes_floats(self) -> bool:
        """Whether the CPU has instructions for float32; otherwise each operation is a call of the compiler's
        library (RISC-V without F, Cortex-M0)."""
        if self._family == "riscv":
            return "+f" in self.features
        return not self.triple.endswith("none-eabi")

    @property
    def float_call_instructions(self) -> int:
        """Instructions of a call that computes with float32, where there is no FPU (counted with a keyword
        spotter: notes/microcontrollers.md)."""
        return 80 if self.arch.startswith("thumbv6m") else 50

    @property
    def bare_metal(self) -> bool:
        """Whether there is no operating system: the memory of such a CPU is counted in KiB."""
        return "none" in self.triple.split("-")[1:3]

    @property
    def rounds_to_integers(self) -> bool:
        """Whether an instruction makes the nearest integers of float32, whatever the mode (AArch64's
        FCVTNS)."""
        return self._family == "aarch64"

    @property
    def prefetches(self) -> bool:
        """Whether kernels ask for lines before they read them: not on Cortex-M55 and M85, which fetch ahead
        of streams by themselves (their Prefetcher Control Register)."""
        return not self._helium

    @property
    def virtual_registers(self) -> bool:
        """Whether registers are given out when the code is loaded, by an engine that keeps fewer values in
        them than LLVM does (WebAssembly)."""
        return self._family == "wasm"

    @property
    def relaxed_multiply_add(self) -> bool:
        """Whether a fused multiply-add has to be asked for by name, as one that the machine may round once or
        twice (WebAssembly's relaxed SIMD): LLVM does not make it of a product and a sum."""
        return self.virtual_registers and self.fma

    @property
    def arithmetic_reads_memory(self) -> bool:
        """Whether an operand of a vector instruction may lie in memory (x86): weights and constants that are
        used once, and with AVX-512 also broadcasts, then take no register."""
        return self._family == "x86"

    @property
    def fma_reads_memory(self) -> bool:
        """Whether that holds for multiply-adds: a tile of 16 registers may then be all but accumulators."""
        return self.arithmetic_reads_memory and self.fma

    @property
    def separate_multiply_add(self) -> bool:
        """Whether a product takes a register of its own before it is added: SSE2 and AVX have no instruction
        for both, neither a fused one nor one that rounds twice, as ARM's VMLA does."""
        return self.arithmetic_reads_memory and not self.fma

    @property
    def few_registers(self) -> bool:
        """Whether LLVM spills when it mixes the steps of a loop: it allocates fewer than 32 registers, and
        multiply-adds do not read memory."""
        return not self.virtual_registers and self.vector_registers < 32 and not self.fma_reads_memory

    @property
    def loads_have_displacement(self) -> bool:
        """Whether a vector load adds a constant to its pointer, so that one pointer serves many places: not
        32-bit ARM's VLD1, nor RISC-V's loads of V; Helium's does."""
        return self._family in {"x86", "aarch64", "wasm"} or self._helium

    @property
    def pointer_registers(self) -> int:
        """Registers for pointers and counters that are left beside the stack pointer and what is reserved; of
        ARMv6-M those that arithmetic reaches."""
        if self.arch.startswith("thumbv6m"):
            return 8
        return {"x86": 15, "arm": 14}.get(self._family, 30)

    @property
    def loads_signed_bytes(self) -> bool:
        """Whether a load with a displacement extends the sign of a byte: not ARMv6-M's, whose LDRB is
        unsigned."""
        return not self.arch.startswith("thumbv6m")

    @property
    def multiplies_long(self) -> bool:
        """Whether there is an instruction for the upper half of a product of two numbers of 32 bits: not on
        ARMv6-M, where a product of int64 is a call."""
        return not self.arch.startswith("thumbv6m")

    @property
    def scalar_accumulators(self) -> int:
        """Sums of one number each that a tile may have on a CPU without vectors.

        Thumb-2's VFP has 32 registers of one number, and its loads reach four rows from one pointer: 24.
        ARMv6 and RISC-V spill with as many (benchmarks/assembly.py).
        """
        return 24 if self.arch.startswith("thumb") and not self.vector_bits else 16

    @property
    def float64_vectors(self) -> bool:
        """Whether vectors hold float64: x86-64, AArch64 and 64-bit RISC-V; in WebAssembly two of them are
        slower than one at a time."""
        return self.arch in {"x86_64", "aarch64", "riscv64"}

    @property
    def in_order(self) -> bool:
        """Whether the CPU issues instructions in order; for these LLVM unrolls any loop four times and puts
        all of its loads first."""
        return self.cpu in IN_ORDER_CPUS

    @property
    def operations_per_cycle(self) -> float:
        """Operations on float32 numbers that one core can start in a cycle, a multiply-add counted as one.

        A CPU that issues in order, or has no vectors, starts one instruction of them, any other two. For
        estimates, in which only ratios count."""
        width = self.datapath_bits or self.vector_bits
        units = 1 if self.in_order or not width else 2
        return float(units * max(1, width // 32))

    @property
    def panel_columns(self) -> int:
        """Columns of the panels in which all kinds of CPU of a library have weights, so that they read the
        same bytes: a cache line's, of float32 or of as many pairs or quads of integers; 0 where each kernel
        has them as its own register tile reads them."""
        return CACHE_LINE_BYTES // DTYPE_BYTES["float32"] if self.library_vector_bits else 0

    @property
    def vector_bytes(self) -> int:
        """Bytes of a SIMD register, or of a float32 where there are none."""
        return max(4, self.vector_bits // 8)

    @property
    def word_lanes(self) -> int:
        """Elements of 32 bits in one SIMD register, at least 1."""
        return self.vector_bytes // 4

    def lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` in one SIMD register, at least 1."""
        return max(1, self.vector_bits // (8 * DTYPE_BYTES[dtype]))

    def to_json(self) -> dict[str, Any]:
        """Plain data with the target's ``kind``, for a job file or a cache key."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CpuTarget:
        """Inverse of :meth:`to_json`."""
        fields = {key: value for key, value in data.items() if key != "kind"}
        lists = {key: tuple(data[key]) for key in ("features", "library_vector_bits", "arena_room")}
        costs = data.get("costs")
        known = InstructionCosts.from_json(costs) if costs else None
        return cls(**{**fields, **lists, "costs": known})


def with_precision(target: CpuTarget, precision: str | None) -> CpuTarget:
    """The target whose products are computed in float16 where that is asked for ("fp16") and it can."""
    return replace(target, float16_products=precision == "fp16" and target.computes_float16)
