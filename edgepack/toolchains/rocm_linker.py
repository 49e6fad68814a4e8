"""ld.lld, which links code for AMD's GPUs: ROCm's, the system's, or zig's."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import ClassVar

from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.gpu_program import GpuProgram
from edgepack.toolchains.zig_program import zig_program

__all__ = ["RocmLinker"]


class RocmLinker(GpuProgram):
    """``ld.lld``. Called with an object it is what TVM asks for as ``tvm_callback_rocm_link``::

    tvm_ffi.register_global_func("tvm_callback_rocm_link", RocmLinker(), override=True)
    """

    name: ClassVar[str] = "ld.lld"
    described: ClassVar[str] = "LLVM's linker, which links code for AMD's GPUs"
    install: ClassVar[str] = (
        "Install it: python -m pip install ziglang, which has one, or apt install lld (Debian, Ubuntu); "
        "ROCM_PATH names ROCm's folder."
    )
    variables: ClassVar[tuple[str, ...]] = ("ROCM_PATH",)
    place: ClassVar[str] = "llvm/bin/ld.lld"
    usual: ClassVar[str] = "/opt/rocm"

    def commands(self) -> list[list[str]]:
        zig = [[*zig_program(), "ld.lld"]] if find_spec("ziglang") else []
        return [*super().commands(), *zig]

    def version(self) -> str:
        """``LLD 21.1.0``."""
        found = re.search(r"\bLLD \S+", self.run(["--version"], "asking ld.lld for its version"))
        return found[0] if found else "LLD of an unknown version"

    def __call__(self, code: bytes) -> bytes:
        """Link a relocatable object to a code object, which the driver loads.

        Raises:
            ToolchainError: the linker is missing, the object is none, or it calls what nobody defines.
        """
        with temporary_folder() as folder:
            (folder / "kernels.o").write_bytes(bytes(code))
            options = ["--no-undefined", "-shared", "kernels.o", "-o", "kernels.co"]
            self.run(options, "linking code for AMD's GPUs with ld.lld", folder)
            return (folder / "kernels.co").read_bytes()
