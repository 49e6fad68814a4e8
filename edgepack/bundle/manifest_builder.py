"""A manifest's content from the plan, the device and what was built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from edgepack.abi.header import header
from edgepack.bundle.manifest import (
    ArenaSection,
    Artifact,
    BufferRecord,
    DeviceRecord,
    Footprint,
    KernelRecord,
    Manifest,
    Memory,
    Params,
    ParamsSection,
    Recorded,
    RunnerRecord,
    Runtime,
    StepRecord,
    Tensor,
    ThreadsModule,
    ToolchainRecord,
    VariantRecord,
)
from edgepack.bundle.recipe import Compiled, Recipe
from edgepack.bundle.structure import NestedRecord
from edgepack.config.device import Device
from edgepack.config.models import MACHINE
from edgepack.plan.memories import ParamsPiece, Placed
from edgepack.plan.types import AnyStep, Arena, Copy, Plan, Step, TensorSpec
from edgepack.render.model import Variant
from edgepack.render.names import model_symbol
from edgepack.text.printable import printable
from edgepack.version import __version__

__all__ = ["Built", "code_of", "make_manifest"]

#: Characters of what a compiler says of itself.
_LONGEST = 300


@dataclass(frozen=True)
class Built:
    """What was made of a recipe.

    Attributes:
        variants: the plans for each kind of CPU; the last is the device's own.
        params_id: SHA-256 of the params data, in hex.
        params_layout: of the library, in hex.
        recorded: the recorded tensors and their tolerances.
        artifacts: libraries and program.
        web_threads: the module with threads.
        footprint: flash and RAM of firmware; None for a device with an operating system.
        text_bytes: machine code of the runtime in the shared library; None where it cannot be told.
        warnings: the worker's.
        unconfined: why the worker was not confined; "" where it was.
        nested: how the module's arguments and results are nested, as JSON; None: it is unknown.
        params_place: address at which firmware's program expects the params file; None elsewhere.
    """

    variants: Sequence[Variant]
    params_id: str
    params_layout: str
    recorded: Recorded
    artifacts: Sequence[Artifact]
    footprint: Footprint | None
    text_bytes: int | None
    warnings: Sequence[str]
    unconfined: str = ""
    nested: Any = None
    web_threads: ThreadsModule | None = None
    params_place: int | None = None


def make_manifest(recipe: Recipe, built: Built) -> Manifest:
    """The manifest of a bundle, but for its list of files. Warnings of the plans come first, each once."""
    device, plan = recipe.device, built.variants[-1].plan
    *read, own = _params_read([variant.plan for variant in built.variants])
    variants = zip(built.variants[:-1], recipe.compiled[:-1], read, strict=True)
    warnings = (*(text for variant in built.variants for text in variant.plan.warnings), *built.warnings)
    return Manifest(
        name=plan.name,
        symbol=model_symbol(plan.name),
        edgepack=__version__,
        model=recipe.model,
        device=_device(device),
        toolchain=ToolchainRecord(
            name=recipe.toolchain.name,
            family=recipe.toolchain.family,
            version=printable(recipe.toolchain_version)[:_LONGEST],
        ),
        options=recipe.options,
        tools={name: printable(text)[:_LONGEST] for name, text in sorted(recipe.made_with.items())},
        inputs=tuple(map(_tensor, plan.inputs)),
        outputs=tuple(map(_tensor, plan.outputs)),
        nested=None if built.nested is None else NestedRecord.model_validate(built.nested),
        params=Params(
            mode=recipe.params_mode,
            file=None if recipe.params_mode == "embed" else recipe.layout.params,
            nbytes=plan.params_bytes,
            id=built.params_id,
            tensors=len(plan.constants),
            growth=plan.params_growth,
            **(own if read else {}),
            layout=built.params_layout,
            key=recipe.params_key.hex(),
            sections=tuple(ParamsSection(**asdict(one)) for one in _pieces(recipe)),
            address=0 if built.params_place is None else built.params_place,
        ),
        runtime=Runtime(
            abi_version=header().abi_version,
            text_bytes=built.text_bytes,
            threads=device.threads,
            heterogeneous=device.heterogeneous,
        ),
        artifacts=tuple(built.artifacts),
        web_threads=built.web_threads,
        footprint=built.footprint,
        **code_of(plan, recipe.placed),
        variants=tuple(_variant(*one) for one in variants),
        recorded=built.recorded,
        warnings=tuple(dict.fromkeys(warnings)),
        unconfined=printable(built.unconfined)[:_LONGEST],
    )


def _pieces(recipe: Recipe) -> tuple[ParamsPiece, ...]:
    """The pieces of params that lie in the image; () where none do."""
    return () if recipe.placed is None or recipe.params_mode != "embed" else recipe.placed.pieces


def code_of(plan: Plan, placed: Placed | None = None) -> dict[str, Any]:
    """What a manifest says of a plan's kernels and their memory."""
    kernels = {kernel.symbol: kernel for kernel in plan.kernels}
    executions = list(zip(plan.steps, plan.executions(), strict=True))
    return {
        "memory": Memory(
            arena=plan.arena.nbytes,
            lower_bound=plan.arena.lower_bound,
            peak_step=plan.arena.peak_step,
            scratch_threads=plan.arena.threads,
            scratch_per_thread=plan.arena.scratch_bytes,
            gpu_arena=plan.gpu_arena.nbytes,
            buffers=_buffers(plan.arena),
            gpu_buffers=_buffers(plan.gpu_arena),
            sections=()
            if placed is None
            else tuple(
                ArenaSection(**asdict(one)) for one in placed.banks if one.nbytes or one is placed.banks[0]
            ),
        ),
        "kernels": tuple(KernelRecord(**_kernel(asdict(kernel))) for kernel in plan.kernels),
        "steps": tuple(_step(step, times) for step, times in executions),
        "flops": sum(t * kernels[s.kernel].flops for s, t in executions if not isinstance(s, Copy)),
    }


def _buffers(arena: Arena) -> tuple[BufferRecord, ...]:
    return tuple(BufferRecord(**asdict(buffer)) for buffer in arena.buffers)


def _step(step: AnyStep, times: int) -> StepRecord:
    """A copy between memories is a step of no kernel."""
    if isinstance(step, Copy):
        return StepRecord(kernel="", tasks=1, copied=step.device.nbytes)
    tasks = step.tasks if isinstance(step, Step) else prod(step.groups)
    return StepRecord(kernel=step.kernel, tasks=tasks, nodes=step.nodes, times=times)


def _params_read(plans: Sequence[Plan]) -> list[dict[str, int]]:
    """What of the params each of a library's plans reads, and what none of the others does, in bytes."""
    read = [_constants_read(plan) for plan in plans]
    uses = Counter(offset for one in read for offset in one)
    owned = [sum(nbytes for offset, nbytes in one.items() if uses[offset] == 1) for one in read]
    return [{"read": sum(one.values()), "own": own} for one, own in zip(read, owned, strict=True)]


def _constants_read(plan: Plan) -> dict[int, int]:
    """Bytes of the constants that a plan's steps read, by where they lie in the params."""
    arguments = [
        argument
        for step in plan.steps
        for argument in ((step.host,) if isinstance(step, Copy) else step.arguments)
        if argument.kind == "constant"
    ]
    constants = {plan.constants[argument.index] for argument in arguments}
    return {constant.offset: constant.nbytes for constant in constants}


def _variant(variant: Variant, compiled: Compiled, read: dict[str, int]) -> VariantRecord:
    device = compiled.device
    return VariantRecord(
        name=variant.name,
        gpu=compiled.gpu,
        cpu=device.llvm.cpu,
        features=device.llvm.features,
        cpu_requires=device.cpu_requires,
        params_read=read["read"],
        params_own=read["own"],
        **code_of(variant.plan),
    )


def _device(device: Device) -> DeviceRecord:
    return DeviceRecord(
        name=device.name,
        description=device.description,
        arch=device.arch,
        os=device.os,
        libc=device.libc,
        triple=device.llvm.triple,
        cpu=device.llvm.cpu,
        features=device.llvm.features,
        cpu_requires=device.cpu_requires,
        threads=device.threads,
        runner=RunnerRecord(
            name=device.runner.name,
            cpu=device.runner.cpu,
            machine=_machine(device),
            timeout=device.runner.timeout,
        ),
    )


def _machine(device: Device) -> str:
    """The board that an emulator is to have; another runner's option of this name may be anything."""
    name = str(device.runner.options.get("machine", ""))
    return name if re.fullmatch(MACHINE, name) else ""


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor.model_validate({**asdict(spec), "nbytes": spec.nbytes})


def _kernel(data: dict[str, Any]) -> dict[str, Any]:
    del data["pointers"], data["c_function"], data["cascade"], data["branch"]
    return data
