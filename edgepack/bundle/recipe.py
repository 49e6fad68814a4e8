"""What a bundle is made from: the worker's results, the device, the toolchain, and what the user chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.layout import BundleLayout
from edgepack.bundle.manifest import ModelRecord, OptionsRecord
from edgepack.config.device import Device
from edgepack.pipeline.cache import Cache
from edgepack.plan.binary import read_binaries
from edgepack.plan.memories import Placed
from edgepack.plan.types import ParamsMode
from edgepack.render.gpu import GpuImage, GpuKernels
from edgepack.render.sources import kernels_object
from edgepack.toolchains.base import Toolchain

__all__ = ["Compiled", "PackageIdentity", "Recipe"]


@dataclass(frozen=True)
class Compiled:
    """The worker's results for one device, or for its GPU.

    Attributes:
        folder: holds those of a CompileJob (``pipeline/job.py``).
        gpu: by what the GPU is driven that they are for; "" where they are for the CPU.
    """

    device: Device
    folder: Path
    gpu: str = ""

    @property
    def name(self) -> str:
        """What the library calls the variant."""
        return self.gpu or self.device.name

    @property
    def cpu_requires(self) -> tuple[str, ...]:
        """What the CPU must have. (The rest of a GPU's plan is compiled for the device's own.)"""
        return self.device.cpu_requires

    @property
    def kernels(self) -> Path:
        """The object file with the kernels' machine code."""
        (binary,) = (binary for binary in read_binaries(self.folder) if binary.kind == "object")
        return self.folder / binary.file

    @property
    def gpu_source(self) -> Path | None:
        """The text of the GPU's kernels; None without any."""
        files = [binary.file for binary in read_binaries(self.folder) if binary.kind == "source"]
        return self.folder / files[0] if files else None

    @property
    def gpu_kernels(self) -> GpuKernels:
        """What the library holds of the GPU's kernels: what is made of their text, or else the text; both for
        Metal, where a system may be too old for what was made."""
        found = read_binaries(self.folder)
        images = tuple(
            GpuImage(b.capability, b.kind, (self.folder / b.file).read_bytes())
            for b in found
            if b.kind in {"cubin", "ptx", "metallib"}
        )
        source = self.gpu_source
        text = (
            source.read_text(encoding="utf-8")
            if source is not None and (not images or self.gpu == "metal")
            else ""
        )
        return GpuKernels(text, images)


@dataclass(frozen=True)
class PackageIdentity:
    """What a bundle is called as a package of its platform's own kind (npm); "" for the default."""

    name: str = ""
    version: str = ""


@dataclass(frozen=True)
class Recipe:
    """What is to be assembled.

    Attributes:
        name: the model's name, a C identifier.
        device: what the bundle is for.
        imported: folder with the worker's results for the model alone: recorded data, warnings.
        compiled: kernels for each kind of CPU, in the order in which the library tries them; the last are the
            device's own.
        params_mode: where the params go.
        custom: files of the operators that the user computes in C.
        options: what the kernels were chosen by.
        tools: versions of the packages that took part.
        build: an empty folder for objects.
        bundle: an empty folder that becomes the bundle.
        cache: where compiled C files are kept that do not depend on the model; None to compile them all.
        package: what it is called as a package.
        quantised: with the results of the model's quantisation; None for a model that is packed as it is.
        placed: where the linker is to put params and intermediate results; None where the device names no
            memories, and until they were placed.
        params_key: public key of Ed25519, 32 bytes, whose owner may give the library other params; b"" for
            nobody.
    """

    name: str
    model: ModelRecord
    device: Device
    imported: Path
    compiled: tuple[Compiled, ...]
    toolchain: Toolchain
    toolchain_version: str
    params_mode: ParamsMode
    options: OptionsRecord
    tools: Mapping[str, str]
    build: Path
    bundle: Path
    custom: tuple[Path, ...] = ()
    cache: Cache | None = None
    package: PackageIdentity = PackageIdentity()
    params_key: bytes = b""
    quantised: Path | None = None
    placed: Placed | None = None

    @property
    def made_with(self) -> dict[str, str]:
        """Versions of the packages that took part, and of the back ends that say one of their own (llvm)."""
        binaries = (binary for one in self.compiled for binary in read_binaries(one.folder))
        return {**self.tools, **{one.backend: one.version for one in binaries if one.version}}

    @property
    def package_name(self) -> str:
        """The npm package's name; by default lower case, as npm demands, and no name of a module of node."""
        return self.package.name or f"{self.name.lower()}-wasm"

    @property
    def layout(self) -> BundleLayout:
        """Where its files go."""
        return BundleLayout(self.name, self.device.os)

    @property
    def gpu_apis(self) -> tuple[str, ...]:
        """The APIs that drive the GPUs for which the bundle holds kernels."""
        return tuple(dict.fromkeys(one.gpu for one in self.compiled if one.gpu))

    @property
    def kernels(self) -> list[str]:
        """Where the kernels' objects go, in the order of ``compiled``."""
        return [kernels_object(i, len(self.compiled)) for i in range(len(self.compiled))]
