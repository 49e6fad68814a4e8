"""TVM's own executable of a model, as a library for TVM's runtime on a device."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from edgepack.commands.model_file import check_model_file
from edgepack.config.device import Device, load_device
from edgepack.errors import ConfigError
from edgepack.options import DEFAULT_TIMEOUT, PathLike
from edgepack.pipeline.job import ExecutableJob
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.tvm_library import DESCRIBED, TvmObjects
from edgepack.system.atomic import replace_file
from edgepack.system.disk_errors import writing_to
from edgepack.system.progress import Stages
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains import resolve

__all__ = ["TvmLibrary", "export_tvm_library"]

#: Systems whose loader finds in the process what a library lacks, as TVM's libraries expect.
_SYSTEMS = {"linux", "android", "macos", "ios"}


@dataclass(frozen=True)
class TvmLibrary:
    """A library for TVM's runtime (:func:`edgepack.torch.export_library`).

    Attributes:
        path: the library.
        inputs: names of the tensors that its function ``main`` takes, in order.
        outputs: names of the tensors in the tuple that ``main`` returns, in order.
        states: pairs of an input and an output, for each buffer that the module writes to: what a run
            returned is given to the next.
        tvm_version: of the TVM that compiled it, whose runtime the device needs.
        toolchain: name and version of the compiler that linked it.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...]
    tvm_version: str
    toolchain: str


def export_tvm_library(
    model: Path,
    device: PathLike | Device,
    output: Path,
    *,
    toolchain: str | None = None,
    sdk: PathLike | None = None,
) -> TvmLibrary:
    """Compile a model with TVM alone, and link it with a device's compiler.

    Args:
        model: a ``.pt2`` file.
        output: the library, which replaces a file of that name when all is done.

    Raises:
        ConfigError: TVM's libraries cannot be for this device; ``output`` cannot be written.
        ModelError: TVM cannot compile the model, or makes another of it.
        ToolchainError: the compiler is missing or fails.
    """
    check_model_file(model, "Give the path of a .pt2 file.")
    profile = load_device(device) if isinstance(device, str | os.PathLike) else device
    _check_device(profile)
    output = output.absolute()
    if output.is_dir() or not output.parent.is_dir():
        what = "is a folder" if output.is_dir() else "lies in a folder that does not exist"
        raise ConfigError(f"{output} {what}.", hint="Give the path of the library to write.")
    linker = resolve(profile, toolchain, sdk)
    version = linker.version()
    stages = Stages(None)
    with (
        stages.within(DEFAULT_TIMEOUT, f"Compiling {model.name}"),
        temporary_folder() as place,
        Worker(progress=stages) as worker,
    ):
        folder = Path(place)
        worker.run(ExecutableJob(model, target=profile.cpu_target()), folder)
        objects = TvmObjects.from_json(json.loads((folder / DESCRIBED).read_text(encoding="utf-8")))
        stages("link", "")
        with writing_to({"folder of the library": output.parent}), temporary_folder(output.parent) as near:
            made = Path(near) / output.name
            linker.cross_compiler()(made, [folder / name for name in objects.files])
            replace_file(made, output)
    return TvmLibrary(output, objects.inputs, objects.outputs, objects.states, objects.version, version)


def _check_device(device: Device) -> None:
    if device.bare_metal or device.os not in _SYSTEMS:
        raise ConfigError(
            f"A library for TVM's runtime cannot be linked for {device.name}: what it needs of that runtime "
            "is found when it is loaded, which only Linux, Android and Apple's systems do.",
            hint="Choose a device with one of them; edgepack.pack needs no runtime on the device.",
        )
    if device.gpu.api != "none":
        raise ConfigError(
            f"A library for TVM's runtime has code for a CPU only, and {device.name} has a GPU.",
            hint="Give the device without its GPU (jetson-orin for jetson-orin-gpu). edgepack.pack has "
            "kernels for the GPU.",
        )
