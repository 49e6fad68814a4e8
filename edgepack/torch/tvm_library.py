"""``edgepack.torch.export_library``: for who runs TVM's runtime on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgepack.commands.tvm_library import TvmLibrary, export_tvm_library
from edgepack.config.device import Device
from edgepack.options import PathLike
from edgepack.pipeline.exported_file import exported_file
from edgepack.system.boundary import guarded

__all__ = ["TvmLibrary", "export_library"]


@guarded
def export_library(
    module: Any,
    inputs: Any,
    path: PathLike,
    *,
    device: PathLike | Device = "host",
    dynamic_shapes: Any = None,
    toolchain: str | None = None,
    sdk: PathLike | None = None,
) -> TvmLibrary:
    """Compile a module with TVM alone, into a library for TVM's runtime on a device's CPU.

    TVM's importer and default passes make an executable of its virtual machine; edgepack says what TVM has to
    know of the CPU, and links it. Nothing of edgepack's kernels is in it: TVM's loops are those that no tuner
    has seen, and a bundle of ResNet-18 is 100 times as fast. On the device it is opened as all such
    libraries are::

        machine = tvm.relax.VirtualMachine(tvm.runtime.load_module("net.so"), tvm.cpu())
        main = machine["main"]
        results = main(tvm.runtime.tensor(array))

    First the program that TVM imported runs here, on ``inputs``: what it computes has to be what the module
    computes eagerly.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode; or a ``torch.export.ExportedProgram`` or the path of
            a ``.pt2`` file, with ``inputs=None``.
        inputs: a tuple of its arguments, a dict of its keywords, or its only tensor, with which it is
            exported.
        path: the library to write; a file that is there is replaced when all is done.
        device: a device's name, a path to its YAML file, or the device: one with Linux, Android, macOS or
            iOS, without a GPU.
        dynamic_shapes: as for ``torch.export.export``; such sizes are open in the library too.
        toolchain: default the device's.
        sdk: folder of the toolchain's SDK (the Android NDK); default as the toolchain finds it.

    Returns:
        the library, and the names of what ``main`` takes and returns.

    Raises:
        ConfigError: there is no such device, or it cannot have such a library; an argument does not fit.
        ModelError: the module cannot be exported; TVM cannot import or compile it, or makes another of it.
        ToolchainError: the compiler is missing or fails.
    """
    with exported_file(module, None, inputs, dynamic_shapes) as file:
        return export_tvm_library(file, device, Path(path), toolchain=toolchain, sdk=sdk)
