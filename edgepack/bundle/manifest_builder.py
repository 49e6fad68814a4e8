"""A manifest's content from the plan, the device and what was built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgepack import __version__
from edgepack.abi import header
from edgepack.bundle.manifest import (
    Artifact,
    DeviceRecord,
    Footprint,
    KernelRecord,
    Manifest,
    Memory,
    ModelRecord,
    OptionsRecord,
    Params,
    Recorded,
    Runtime,
    StepRecord,
    Tensor,
    ToolchainRecord,
    VariantRecord,
)
from edgepack.config.device import Device
from edgepack.plan.types import ParamsMode, Plan, TensorSpec
from edgepack.render.model import Variant
from edgepack.render.values import model_symbol

__all__ = ["make_manifest"]


def make_manifest(
    variants: Sequence[Variant],
    model: ModelRecord,
    devices: Sequence[Device],
    *,
    toolchain: tuple[str, str, str],
    options: OptionsRecord,
    tools: Mapping[str, str],
    params_mode: ParamsMode,
    params_file: str,
    params_id: str,
    text_bytes: int | None,
    artifacts: Sequence[Artifact],
    footprint: Footprint | None,
    recorded: Recorded,
    warnings: Sequence[str],
) -> Manifest:
    """The manifest of a bundle, but for its list of files.

    Args:
        variants: the plans; the last is the device's own.
        devices: what each is for.
        toolchain: name, family, version.
        params_file: path in the bundle; recorded only where the device needs the file.
        warnings: the worker's; those of the plan come first, each once.
    """
    plan = variants[-1].plan
    return Manifest(
        name=plan.name,
        symbol=model_symbol(plan.name),
        edgepack=__version__,
        model=model,
        device=_device(devices[-1]),
        toolchain=ToolchainRecord(name=toolchain[0], family=toolchain[1], version=toolchain[2]),
        options=options,
        tools=dict(sorted(tools.items())),
        inputs=tuple(map(_tensor, plan.inputs)),
        outputs=tuple(map(_tensor, plan.outputs)),
        params=Params(
            mode=params_mode,
            file=None if params_mode == "embed" else params_file,
            nbytes=plan.params_bytes,
            id=params_id,
            tensors=len(plan.constants),
            growth=plan.params_growth,
        ),
        runtime=Runtime(
            abi_version=header().abi_version,
            text_bytes=text_bytes,
            threads=devices[-1].threads,
            heterogeneous=devices[-1].heterogeneous,
        ),
        artifacts=tuple(artifacts),
        footprint=footprint,
        **_code(plan),
        variants=tuple(_variant(*pair) for pair in zip(variants[:-1], devices[:-1], strict=True)),
        recorded=recorded,
        warnings=tuple(dict.fromkeys((*(w for v in variants for w in v.plan.warnings), *warnings))),
    )


def _code(plan: Plan) -> dict[str, Any]:
    """What a manifest says of a plan's kernels and their memory."""
    kernels = {kernel.symbol: kernel for kernel in plan.kernels}
    return {
        "memory": Memory(
            arena=plan.arena.nbytes,
            lower_bound=plan.arena.lower_bound,
            peak_step=plan.arena.peak_step,
            scratch_threads=plan.arena.threads,
            scratch_per_thread=plan.arena.scratch_bytes,
        ),
        "kernels": tuple(KernelRecord(**_kernel(asdict(kernel))) for kernel in plan.kernels),
        "steps": tuple(StepRecord(kernel=s.kernel, tasks=s.tasks, nodes=s.nodes) for s in plan.steps),
        "flops": sum(kernels[step.kernel].flops for step in plan.steps),
    }


def _variant(variant: Variant, device: Device) -> VariantRecord:
    return VariantRecord(
        name=variant.name,
        cpu=device.llvm.cpu,
        features=device.llvm.features,
        cpu_requires=device.cpu_requires,
        **_code(variant.plan),
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
        runner=device.runner.model_dump(mode="json"),
    )


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor.model_validate({**asdict(spec), "nbytes": spec.nbytes})


def _kernel(data: dict[str, Any]) -> dict[str, Any]:
    del data["pointers"]
    return data
