"""The Plan: the narrow waist between what knows TVM (left of it) and what knows devices' files (right of it).

Plain data, frozen, and serialisable to JSON. Nothing here imports TVM, numpy or a toolchain.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

from edgepack.plan.branch import Branch
from edgepack.plan.cascade import Cascade
from edgepack.plan.custom import CFunction
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = [
    "ALIGNMENT",
    "AnyStep",
    "Arena",
    "ArenaBuffer",
    "Argument",
    "ArgumentKind",
    "Constant",
    "Copy",
    "Kernel",
    "Launch",
    "LinearQuantisation",
    "ParamsMode",
    "Plan",
    "Signature",
    "Step",
    "TensorSpec",
    "WeightsDtype",
]

#: Alignment, in bytes, of every buffer in the arena and of every constant in the params data, but in firmware
#: (CpuTarget.data_alignment): a cache line, and the widest vector (AVX-512).
ALIGNMENT = 64

ArgumentKind = Literal["input", "output", "constant", "arena", "scratch", "device"]
#: Where the params of a library are: in a file that it maps, inside it, or in the caller's memory.
ParamsMode = Literal["file", "embed", "caller"]

#: What weights are rounded to, and stored as.
WeightsDtype = Literal["float32", "float16"]


@dataclass(frozen=True)
class LinearQuantisation:
    """What a tensor's integers mean: ``(x - zero_point) * scale``.

    Attributes:
        scale: above 0, and exactly a float32.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of the model: row-major (C order), dense.

    Attributes:
        quantisation: what its integers mean, where the model says so with one scale for all; else None.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantisation: LinearQuantisation | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor; a scalar (shape ``()``) has one element."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives.

    Attributes:
        inputs, outputs: in the model's order.
        nodes: names of the model's nodes, by the index that a module's variables carry.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A tensor in the params data, in the layout that its kernels read (often packed; not the model's
    layout)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: str
    offset: int  # bytes from the start of the params data, see CpuTarget.data_alignment


@dataclass(frozen=True)
class ArenaBuffer:
    """A region of the arena that is in use from ``first_step`` to ``last_step``, both included. A step's
    result may lie over what it reads, where nothing reads that afterwards."""

    name: str
    offset: int
    nbytes: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Arena:
    """All memory that a run needs besides inputs, outputs, params and the threads' own scratch.

    Attributes:
        nbytes: size of the arena.
        lower_bound: most bytes that are live at once, those counted once that a step's result may lie over;
            no plan can be smaller.
        peak_step: index of the step at which that happens; -1 for an empty arena.
        threads: how many threads' scratch has its place in the arena, in each step.
        scratch_bytes: most scratch of *one* thread in any step, a multiple of ALIGNMENT. A session of more
            than ``threads`` threads needs this many bytes for each of its threads beside the arena.
        banks: bytes of each part, where one memory has no room for the whole: the first so many offsets are
            in the nearest memory, the next ones in the next; all scratch is in the first. () elsewhere.
    """

    nbytes: int = 0
    lower_bound: int = 0
    peak_step: int = -1
    threads: int = 1
    scratch_bytes: int = 0
    buffers: tuple[ArenaBuffer, ...] = ()
    banks: tuple[int, ...] = ()

    def bank(self, offset: int) -> tuple[int, int]:
        """(index of the bank with this offset, the offset in it)."""
        for index, nbytes in enumerate(self.banks[:-1]):
            if offset < nbytes:
                return index, offset
            offset -= nbytes
        return max(0, len(self.banks) - 1), offset


@dataclass(frozen=True)
class Argument:
    """What a step hands to its kernel as one pointer.

    ``index`` selects the input, output or constant; for "arena", "scratch" and "device" (the GPU's arena) it
    is 0. ``offset`` is in bytes: from the arena's start, from the start of the thread's scratch in this step,
    or from the start of the tensor. ``nbytes`` is the tensor's size, where a GPU has to know it; else 0.
    """

    kind: ArgumentKind
    index: int = 0
    offset: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class Kernel:
    """A function of the object file: ``int32_t symbol(void *..., int32_t lo, int32_t hi)``; or one of a GPU.

    Attributes:
        symbol: C symbol; hidden in the library. Of a GPU's kernel, its name in the program for the GPU.
        pointers: number of pointer parameters that stand before ``lo`` and ``hi``.
        ops: operator names that were fused into it, in order.
        rule: the schedule rule that made it (``conv2d.igemm``, ``generic``, ``plain``).
        parameters: what the rule chose (tile sizes and the like), for reports.
        flops: floating point operations of one execution of all tasks (a multiply-add is two).
        bytes_moved: least bytes read and written by one execution (each operand once).
        c_function: what a step calls instead, where a user's C computes it; the object file then has no such
            symbol. None elsewhere.
        backend: on what it runs: "cpu", or a GPU's API ("opencl").
        function: symbol of the function that computes it, where kernels that differ in numbers share one; the
            object file then has none for the others.
        numbers: those numbers, int32, to which that function has a pointer before ``lo`` and ``hi``.
        cascade: kernels of the same plan that it calls, stripe by stripe; the object file then has no such
            symbol, and steps call a function of the generated C. None elsewhere.
        branch: what it decides, if it is one of the runtime's functions that say where a run goes on. None
            elsewhere.
    """

    symbol: str
    pointers: int
    ops: tuple[str, ...] = ()
    rule: str = "plain"
    parameters: dict[str, Any] = field(default_factory=dict)
    flops: int = 0
    bytes_moved: int = 0
    c_function: CFunction | None = None
    backend: str = "cpu"
    function: str = ""
    numbers: tuple[int, ...] = ()
    cascade: Cascade | None = None
    branch: Branch | None = None


@dataclass(frozen=True)
class Step:
    """One execution of a kernel on the CPU. ``tasks`` of it may run in any order on any thread; steps run in
    order, but for branches.

    Attributes:
        kernel: its symbol.
        nodes: names of the model's nodes that it computes.
        scratch_bytes: scratch of one thread, a multiple of ALIGNMENT; 0 if it needs none.
        scratch_offset: where in the arena thread 0's scratch lies; thread t's is t * scratch_bytes behind.
        target: of a branch that is taken, the step with which the run goes on; as many as there are steps: it
            is over. -1 elsewhere.
    """

    kernel: str
    tasks: int
    arguments: tuple[Argument, ...]
    nodes: tuple[str, ...] = ()
    scratch_bytes: int = 0
    scratch_offset: int = 0
    target: int = -1


@dataclass(frozen=True)
class Launch:
    """One execution of a kernel on the GPU.

    Attributes:
        kernel: its name.
        arguments: of kind "device" or "constant", with their sizes.
        groups: work groups (CUDA: blocks) in x, y and z.
        threads: work items (threads) of each.
        local_bytes: memory that the work items of a group share.
        nodes: names of the model's nodes that it computes.
    """

    kernel: str
    arguments: tuple[Argument, ...]
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    local_bytes: int = 0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Copy:
    """A copy to the GPU's memory or from it.

    Attributes:
        upload: to the GPU.
        host: the CPU's side, of kind "input", "output", "arena" or "constant".
        device: the GPU's side, of kind "device", with its size.
    """

    upload: bool
    host: Argument
    device: Argument


AnyStep: TypeAlias = Step | Launch | Copy


@dataclass(frozen=True)
class Plan:
    """Everything about a compiled model but its machine code and the bytes of its params.

    Attributes:
        params_growth: bytes by which the params are larger than the model's constants that they were made of,
            because some are transformed for speed (Winograd).
        slow_kernels: a line for each kernel that is far slower than the CPU could be, where such kernels take
            much of the time; they are among the warnings too.
        float_calls: operations on floats of a run, each of which is a call, on a CPU without an FPU; None
            where that is not counted.
        gpu_api: by what the GPU is driven ("opencl"); "" for a plan without one, whose steps are all of
            :class:`Step`.
        gpu_arena: what a run needs of the GPU's memory beside the constants.
        places_in_params: whether a kernel reads, writes or counts by numbers of the params, which it
            believes: the library then compares all params with their hash when it opens them.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[Constant, ...]
    params_bytes: int
    arena: Arena
    steps: tuple[AnyStep, ...]
    kernels: tuple[Kernel, ...]
    warnings: tuple[str, ...] = ()
    params_growth: int = 0
    slow_kernels: tuple[str, ...] = ()
    float_calls: int | None = None
    gpu_api: str = ""
    gpu_arena: Arena = Arena()
    places_in_params: bool = False

    def kernel(self, symbol: str) -> Kernel:
        """The kernel with this symbol; KeyError if there is none."""
        for kernel in self.kernels:
            if kernel.symbol == symbol:
                return kernel
        raise KeyError(symbol)

    def executions(self) -> list[int]:
        """How often a run does each step: as often as a loop's number of trips says, if that is known, and
        else once; both graphs of an If."""
        times = [1] * len(self.steps)
        branches = {kernel.symbol: kernel.branch for kernel in self.kernels if kernel.branch is not None}
        for last, step in enumerate(self.steps):
            branch = branches.get(step.kernel) if isinstance(step, Step) else None
            if isinstance(step, Step) and branch is not None and branch.kind == "again" and branch.is_known:
                for index in range(step.target, last + 1):
                    times[index] *= branch.most
        return times

    def to_json(self) -> str:
        """JSON with sorted keys: the same plan gives the same bytes."""
        steps = [{"class": type(step).__name__, **asdict(step)} for step in self.steps]
        return json.dumps({**asdict(self), "steps": steps}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Inverse of :meth:`to_json`."""
        data = json.loads(text)
        return cls(
            **{
                **data,
                "inputs": tuple(_tensor(t) for t in data["inputs"]),
                "outputs": tuple(_tensor(t) for t in data["outputs"]),
                "constants": tuple(Constant(**{**c, "shape": tuple(c["shape"])}) for c in data["constants"]),
                "arena": _arena(data["arena"]),
                "steps": tuple(_step(s) for s in data["steps"]),
                "kernels": tuple(_kernel(k) for k in data["kernels"]),
                "warnings": tuple(data["warnings"]),
                "slow_kernels": tuple(data["slow_kernels"]),
                "gpu_arena": _arena(data["gpu_arena"]),
            }
        )


def _arena(data: dict[str, Any]) -> Arena:
    buffers = tuple(ArenaBuffer(**b) for b in data["buffers"])
    return Arena(**{**data, "buffers": buffers, "banks": tuple(data["banks"])})


def _step(data: dict[str, Any]) -> AnyStep:
    if data["class"] == "Copy":
        return Copy(data["upload"], Argument(**data["host"]), Argument(**data["device"]))
    fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
    fields["arguments"] = tuple(Argument(**a) for a in data["arguments"])
    del fields["class"]
    return Step(**fields) if data["class"] == "Step" else Launch(**fields)


def _kernel(data: dict[str, Any]) -> Kernel:
    function = data.get("c_function")
    cascade = data.get("cascade")
    branch = data.get("branch")
    read = {
        "ops": tuple(data["ops"]),
        "numbers": tuple(data["numbers"]),
        "c_function": CFunction.from_json(function) if function is not None else None,
        "cascade": Cascade.from_json(cascade) if cascade is not None else None,
        "branch": Branch(**branch) if branch is not None else None,
    }
    return Kernel(**{**data, **read})


def _tensor(data: dict[str, Any]) -> TensorSpec:
    said = data["quantisation"]
    meaning = None if said is None else LinearQuantisation(**said)
    return TensorSpec(data["name"], data["dtype"], tuple(data["shape"]), meaning)
