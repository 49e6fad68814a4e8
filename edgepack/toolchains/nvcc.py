"""nvcc, NVIDIA's compiler of CUDA C++, of a CUDA toolkit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from edgepack.errors import ConfigError, ToolchainError
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.gpu_program import GpuProgram

__all__ = ["Nvcc"]


class Nvcc(GpuProgram):
    """``nvcc``. Called with CUDA C++ it is what TVM's runtime asks for as ``tvm_callback_cuda_compile``::

        tvm_ffi.register_global_func("tvm_callback_cuda_compile", Nvcc([87]), override=True)

    Args:
        capabilities: compute capabilities that it makes machine code for, 10 * major + minor (87: Orin).
    """

    name: ClassVar[str] = "nvcc"
    described: ClassVar[str] = "NVIDIA's compiler of CUDA C++"
    install: ClassVar[str] = (
        "Install it: apt install nvidia-cuda-toolkit (Debian, Ubuntu), or the CUDA Toolkit from "
        "developer.nvidia.com/cuda-downloads; CUDA_HOME names its folder."
    )
    variables: ClassVar[tuple[str, ...]] = ("CUDA_HOME", "CUDA_PATH")
    place: ClassVar[str] = "bin/nvcc"
    usual: ClassVar[str] = "/usr/local/cuda"

    def __init__(self, capabilities: Sequence[int] = ()) -> None:
        self.capabilities = tuple(sorted(capabilities))

    def version(self) -> str:
        """``nvcc 13.0.88``."""
        found = re.search(r"\bV(\d+\.\d+\.\d+)", self.run(["--version"], "asking nvcc for its version"))
        return f"nvcc {found[1] if found else 'of an unknown version'}"

    @cached_property
    def supported(self) -> tuple[int, ...]:
        """The compute capabilities that it compiles for."""
        listed = self.run(["--list-gpu-arch"], "asking nvcc for its architectures")
        return tuple(sorted({int(number) for number in re.findall(r"\bcompute_(\d+)\b", listed)}))

    def __call__(self, source: str | bytes) -> bytes:
        """Compile a program to a fat binary: machine code for each capability, and PTX of the last one, which
        the driver compiles for later GPUs.

        Raises:
            ConfigError: there are no capabilities.
            ToolchainError: nvcc is missing, does not know one of them, or does not take the source.
        """
        if not self.capabilities:
            raise ConfigError("nvcc was given no compute capabilities.", hint="Nvcc([87]) is for Orin.")
        if others := [one for one in self.capabilities if one not in self.supported]:
            raise ToolchainError(
                f"{self.version()} does not compile for compute capability {others[0] / 10}.",
                hint=f"It takes {', '.join(str(one / 10) for one in self.supported)}; install another "
                "version.",
            )
        targets = [f"arch=compute_{one},code=sm_{one}" for one in self.capabilities]
        targets.append("arch=compute_{0},code=compute_{0}".format(self.capabilities[-1]))
        with temporary_folder() as folder:
            text = source.encode() if isinstance(source, str) else bytes(source)
            (folder / "kernels.cu").write_bytes(text)
            options = [word for target in targets for word in ("-gencode", target)]
            options += ["--fatbin", "-O3", "-std=c++17", "kernels.cu", "-o", "kernels.fatbin"]
            self.run(options, "compiling CUDA C++ with nvcc", folder)
            return (folder / "kernels.fatbin").read_bytes()
