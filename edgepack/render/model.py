"""The C of a model, rendered from its Plan: ``model.c``, its header, and the loader's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgepack.errors import ConfigError, InternalError
from edgepack.plan.custom import CFunction
from edgepack.plan.dtypes import C_TYPES
from edgepack.plan.memories import ArenaBank, ParamsPiece, Placed
from edgepack.plan.target import CPU_FEATURES
from edgepack.plan.types import ALIGNMENT, AnyStep, Argument, ParamsMode, Plan, Step
from edgepack.render.calls import branch_call, cascade_values, kernel_call, table_name
from edgepack.render.gpu import GpuKernels, gpu_places, gpu_values
from edgepack.render.names import c_identifier, c_string
from edgepack.render.params_file import params_data_offset, params_file_bytes
from edgepack.render.sources import MODEL_SOURCE, kernels_object
from edgepack.render.templates import render
from edgepack.render.values import model_values

__all__ = ["Execution", "TrustedKey", "Variant", "render_model"]


@dataclass(frozen=True)
class Variant:
    """The kernels of one kind of CPU, or of a GPU and the CPU beside it.

    Attributes:
        name: of the device that they were made for; of a GPU how it is driven.
        plan: their steps; all variants of a library have the same inputs, outputs and params.
        cpu_requires: features that the loader checks at run time, of ``edgepack.plan.target.CPU_FEATURES``.
        gpu: the GPU's kernels, if there are any.
    """

    name: str
    plan: Plan
    cpu_requires: tuple[str, ...] = ()
    gpu: GpuKernels = field(default_factory=GpuKernels)


@dataclass(frozen=True)
class TrustedKey:
    """Whose signature lets a library take other params than its own.

    Attributes:
        key: public, of Ed25519, 32 bytes.
        layout: what the params must be like, 32 bytes.
    """

    key: bytes
    layout: bytes


@dataclass(frozen=True)
class Execution:
    """How a library's kernels are run.

    Attributes:
        cpu_arch: "x86_64", "aarch64", "arm", "riscv64", "wasm32"; others get no feature check.
        threads: threads of a session that asks for none.
        heterogeneous: the cores differ in speed: a thread's tasks are claimed in several pieces.
        keep_denormals: kernels compute with denormal numbers as the caller's mode says, instead of with zeros
            in their place.
        params_listed: see :func:`edgepack.render.params_file.write_params`.
        direct: the library has a function that runs it without a session, on one thread; it has one variant.
        placed: where the linker is to put embedded params; None: in one section, as everywhere.
    """

    cpu_arch: str
    threads: int = 1
    heterogeneous: bool = False
    keep_denormals: bool = False
    params_listed: bool = True
    direct: bool = False
    placed: Placed | None = None

    @property
    def pieces(self) -> tuple[ParamsPiece, ...]:
        """The params' pieces, where they are in more than one."""
        pieces = () if self.placed is None else self.placed.pieces
        return pieces if len(pieces) > 1 else ()

    @property
    def far_banks(self) -> tuple[ArenaBank, ...]:
        """What of the arena is not in the caller's array."""
        return () if self.placed is None else self.placed.banks[1:]


def render_model(
    variants: Sequence[Variant],
    *,
    params_id: bytes,
    params_mode: ParamsMode,
    execution: Execution,
    trusted: TrustedKey | None = None,
) -> dict[str, str]:
    """The generated C of a model: ``src/model.c``, ``include/<name>.h``, ``src/loader/config.h``.

    Args:
        variants: in the order in which the loader tries them.
        params_id: what :func:`edgepack.render.params_file.write_params` returned.
        execution: how the kernels are run.
        trusted: who may give the library other params; None: nobody.

    Raises:
        ConfigError: an unknown CPU feature.
        InternalError: a step does not fit its kernel.
    """
    plan = variants[-1].plan
    arenas = [variant.plan.arena for variant in variants]
    largest = {
        "arena_bytes": max(arena.banks[0] if arena.banks else arena.nbytes for arena in arenas),
        "scratch_bytes": max(arena.scratch_bytes for arena in arenas),
    }
    values = (
        model_values(plan, params_mode == "embed", direct=execution.direct)
        | {
            "image_bytes": params_file_bytes(plan, listed=execution.params_listed),
            "variants": [_variant(v, i, len(variants), execution) for i, v in enumerate(variants)],
            "largest": largest,
            "arena_bytes": largest["arena_bytes"],
            "params_id": _bytes(params_id),
            "params_key": _bytes(trusted.key if trusted is not None else b""),
            "params_layout": _bytes(trusted.layout if trusted is not None else b""),
            "arch": _arch(execution.cpu_arch),
            "threads": max(1, execution.threads),
            "heterogeneous": execution.heterogeneous,
            "keep_denormals": execution.keep_denormals,
            "places_in_params": any(variant.plan.places_in_params for variant in variants),
            **_gpu_sizes(variants),
            "cascades": any(k.cascade for variant in variants for k in variant.plan.kernels),
            "branches": any(k.branch for variant in variants for k in variant.plan.kernels),
            "direct": _direct(plan, execution) if execution.direct else None,
            "params_section": _quoted_section(execution.placed),
            "pieces": _pieces(plan, execution),
            "arena_section": "" if execution.placed is None else execution.placed.arena_section,
            "far_banks": execution.far_banks,
            "gpu_apis": sorted({variant.plan.gpu_api.upper() for variant in variants} - {""}),
        }
        | _custom(variants)
    )
    return {
        MODEL_SOURCE: render("model/model.c.j2", values),
        f"include/{plan.name}.h": render("model/model.h.j2", values),
        "src/loader/config.h": render("loader/config.h.j2", values),
    }


def _bytes(data: bytes) -> list[str]:
    return [f"0x{byte:02x}" for byte in data]


def _quoted_section(placed: Placed | None) -> str:
    """The section of params in one piece, as the assembler reads it, with its flags."""
    if placed is None:
        return '.rodata.edgepack,\\"a\\"'
    return _section(placed.pieces[0])


def _section(piece: ParamsPiece) -> str:
    """A section with its flags in the assembler's words, in a string of C: RAM is written."""
    return f'\\"{piece.section}\\",\\"{"aw" if piece.loaded_from else "a"}\\"'


def _pieces(plan: Plan, execution: Execution) -> list[dict[str, object]]:
    """What ``model.c.j2`` names of each piece of the params."""
    begin = params_data_offset(plan, listed=execution.params_listed)
    return [
        {
            "section": _section(piece),
            "memory": piece.memory,
            "label": _label(plan, piece, first=not index),
            "data": begin if index == 0 else ALIGNMENT,
            "nbytes": piece.nbytes,
            "file_offset": begin + piece.offset if index else 0,
            "file_bytes": piece.nbytes if index else begin + piece.nbytes,
        }
        for index, piece in enumerate(execution.pieces)
    ]


def _label(plan: Plan, piece: ParamsPiece, *, first: bool) -> str:
    """The C name of a piece, with its header or, behind the first, the params' id before the data."""
    return f"ep_embedded_{c_identifier(plan.name)}" + ("" if first else f"_{piece.memory}")


def _variant(variant: Variant, index: int, count: int, execution: Execution) -> dict[str, object]:
    """What ``model.c.j2`` names of variant ``index`` of ``count``."""
    plan = variant.plan
    return {
        "suffix": "" if count == 1 else f"_{index}",
        "quoted_name": c_string(variant.name),
        "object": kernels_object(index, count).removeprefix("src/"),
        "arena_bytes": plan.arena.banks[0] if plan.arena.banks else plan.arena.nbytes,
        "scratch_bytes": plan.arena.scratch_bytes,
        "scratch_threads": plan.arena.threads,
        "kernels": _kernels(plan),
        "cascades": [cascade_values(plan, k, k.cascade) for k in plan.kernels if k.cascade is not None],
        "tables": [
            {"name": table_name(kernel), "rows": _rows(kernel.numbers)}
            for kernel in plan.kernels
            if kernel.numbers
        ],
        "steps": [
            {"index": i, "call": _call(plan, s, execution)}
            for i, s in enumerate(plan.steps)
            if isinstance(s, Step)
        ],
        "step_count": len(plan.steps),
        "step_scratch": _rows([n for s in plan.steps for n in _scratch(s)] or [0, 0]),
        "step_tasks": _rows([_tasks(s) for s in plan.steps] or [0]),
        "gpu": gpu_values(plan, variant.gpu) if plan.gpu_api else None,
        "cpu_features": _cpu_features(execution.cpu_arch, variant.cpu_requires),
        "quoted_cpu_features": c_string(",".join(variant.cpu_requires)),
    }


def _direct(plan: Plan, execution: Execution) -> dict[str, object]:
    """What ``model.c.j2`` names of the function that runs the model without a session."""
    return {
        "steps": [
            {"call": _direct_call(plan, s, execution), "target": s.target}
            for s in plan.steps
            if isinstance(s, Step)
        ],
        "branches": any(kernel.branch for kernel in plan.kernels),
        "data_offset": params_data_offset(plan, listed=execution.params_listed),
    }


def _bank(bank: ArenaBank) -> str:
    """The C name of a part of the arena that is not the caller's."""
    return f"ep_arena_{bank.memory}"


def _gpu_sizes(variants: Sequence[Variant]) -> dict[str, int]:
    """The most steps of a variant for a GPU, and the most places in its memory; 0 without one."""
    plans = [variant.plan for variant in variants if variant.plan.gpu_api]
    return {
        "gpu_steps": max((len(plan.steps) for plan in plans), default=0),
        "gpu_places": max((gpu_places(plan) for plan in plans), default=0),
    }


def _scratch(step: AnyStep) -> tuple[int, int]:
    """Where in the arena thread 0's scratch lies, and its bytes."""
    return (step.scratch_offset, step.scratch_bytes) if isinstance(step, Step) else (0, 0)


def _tasks(step: AnyStep) -> int:
    """Of a step on the CPU; of a branch -1 - the step with which the run goes on if it is taken."""
    if not isinstance(step, Step):
        return 1
    return step.tasks if step.target < 0 else -1 - step.target


def _kernels(plan: Plan) -> list[dict[str, str]]:
    """Names and types of the parameters of the kernels' C prototypes."""
    return [
        {
            "symbol": k.symbol,
            "parameters": ", ".join(["void *"] * (k.pointers + bool(k.numbers)) + ["int32_t", "int32_t"]),
        }
        for k in plan.kernels
        if k.c_function is None
        and k.cascade is None
        and k.branch is None
        and k.backend == "cpu"
        and k.function in {"", k.symbol}
    ]


def _custom(variants: Sequence[Variant]) -> dict[str, object]:
    """Prototypes of the users' functions, and the files that have them, each once."""
    called = [kernel.c_function for variant in variants for kernel in variant.plan.kernels]
    functions = {function.symbol: function for function in called if function is not None}
    return {
        "custom": [{"symbol": f.symbol, "parameters": _prototype(f)} for f in functions.values()],
        "custom_sources": list(dict.fromkeys(function.source for function in functions.values())),
    }


def _prototype(function: CFunction) -> str:
    parts = [f"const {C_TYPES[dtype]} *" for dtype in function.inputs]
    parts += [f"{C_TYPES[dtype]} *" for dtype in function.outputs]
    return ", ".join([*parts, *("int32_t" if isinstance(n, int) else "float" for n in function.numbers)])


def _call(plan: Plan, step: Step, execution: Execution) -> str:
    """What a step does, as a C expression."""
    arguments = [_far(plan, a, execution) or _argument(plan, a) for a in step.arguments]
    return _called(plan, step, arguments, ("lo", "hi"))


def _direct_call(plan: Plan, step: Step, execution: Execution) -> str:
    """What a step does in the function that runs the model without a session."""
    arguments = [_far(plan, a, execution) or _direct_argument(plan, step, a) for a in step.arguments]
    return _called(plan, step, arguments, ("0", str(step.tasks)))


def _called(plan: Plan, step: Step, arguments: Sequence[str], tasks: tuple[str, str]) -> str:
    """The call of a step's kernel, as a C expression.

    Args:
        arguments: the pointers that it is handed.
        tasks: the first task, and the one behind the last.
    """
    kernel = plan.kernel(step.kernel)
    if kernel.pointers != len(step.arguments):
        raise InternalError(
            f"Kernel {kernel.symbol} takes {kernel.pointers} pointers, not {len(step.arguments)}."
        )
    if not 0 <= step.tasks < 2**31:
        raise InternalError(f"A step of kernel {kernel.symbol} has {step.tasks} tasks.")
    if kernel.branch is not None:
        return branch_call(kernel.branch, arguments)
    function = kernel.c_function
    if function is None:
        return kernel_call(kernel, arguments, tasks)
    given = [str(n) if isinstance(n, int) else f"{float(n)!r}f" for n in function.numbers]
    return f"{function.symbol}({', '.join([*arguments, *given])})"


def _far(plan: Plan, argument: Argument, execution: Execution) -> str:
    """A constant that is not in the first piece of the params, or a place in the arena that is not in the
    caller's array; "" for anything else."""
    if argument.kind == "arena":
        bank, offset = plan.arena.bank(argument.offset)
        return f"(void *)({_bank(execution.far_banks[bank - 1])} + {offset})" if bank else ""
    if argument.kind != "constant":
        return ""
    constant = plan.constants[argument.index]
    for piece in execution.pieces[1:]:
        if piece.holds(constant.offset):
            offset = ALIGNMENT + constant.offset - piece.offset + argument.offset
            return f"(void *)({_label(plan, piece, first=False)} + {offset})"
    return ""


def _argument(plan: Plan, argument: Argument) -> str:
    match argument.kind:
        case "input" | "output":
            return f"EP_{argument.kind.upper()}({argument.index}, {argument.offset})"
        case "constant":
            return f"EP_CONSTANT({plan.constants[argument.index].offset + argument.offset})"
        case "arena" | "scratch":
            return f"EP_{argument.kind.upper()}({argument.offset})"
        case "device":
            raise InternalError("A kernel of the CPU has an argument in the GPU's memory.")


def _direct_argument(plan: Plan, step: Step, argument: Argument) -> str:
    offset, base = argument.offset, f"(const unsigned char *){argument.kind}{argument.index}"
    match argument.kind:
        case "constant":
            offset, base = offset + plan.constants[argument.index].offset, "params"
        case "arena":
            base = "arena"
        case "scratch":
            offset, base = offset + step.scratch_offset, "arena"
        case "device":
            raise InternalError("A kernel of the CPU has an argument in the GPU's memory.")
    return f"(void *)({base} + {offset})"


def _rows(numbers: Sequence[int]) -> list[str]:
    """The numbers of a C array, 16 in a line."""
    return [", ".join(str(n) for n in numbers[i : i + 16]) for i in range(0, len(numbers), 16)]


def _arch(cpu_arch: str) -> str:
    """The constant of ``runtime.h`` for an architecture; EP_ARCH_OTHER for one that it has none for."""
    known = {**{arch: arch for arch in CPU_FEATURES}, "wasm32": "wasm"}
    return f"EP_ARCH_{known.get(cpu_arch, 'other').upper()}"


def _identifier(feature: str) -> str:
    """How ``cpu.c`` spells a feature: SSE4_1, AMX_TILE."""
    return feature.upper().replace(".", "_").replace("-", "_")


def _cpu_features(cpu_arch: str, requires: Sequence[str]) -> str:
    """The C expression of the required features' bits."""
    allowed = CPU_FEATURES.get(cpu_arch, ())
    for name in requires:
        if name not in allowed:
            raise ConfigError(
                f"The loader cannot check for the CPU feature {name!r} on {cpu_arch}.",
                hint=f"cpu_requires takes: {', '.join(allowed) or 'nothing on this architecture'}.",
            )
    bits = [f"EP_CPU_BIT(EP_CPU_{cpu_arch.upper()}_{_identifier(name)})" for name in requires]
    return " | ".join(bits) or "0"
