"""How edgepack finds its parts: frontends, toolchains, object and package formats, runners, executors.

Each kind is a :class:`Registry`: names that stand for objects in modules, which are imported when they are
asked for. The built-in ones are listed here, or are the packages in a folder; another package adds its own by
an entry point of the kind's group (``[project.entry-points."edgepack.runners"]``). One precedence holds for
all kinds: built in, then installed packages in the order of their distributions' names. So no package can
change what a built-in name means.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

from edgepack.errors import ConfigError
from edgepack.resources import PACKAGE

__all__ = [
    "EXECUTORS",
    "EXPORT_FORMATS",
    "FRONTENDS",
    "KINDS",
    "MODEL_OBJECTS",
    "OBJECT_FORMATS",
    "PLATFORM_FILES",
    "RUNNERS",
    "TOOLCHAINS",
    "Registry",
    "object_kind",
]


@dataclass(frozen=True)
class Registry:
    """One kind of part.

    Attributes:
        noun: what a user calls one (``compiler family``).
        group: the entry point group by which other packages bring theirs.
        built_in: name to ``module`` or ``module:attribute``.
        room: a package of edgepack's, each package of which is one more that is built in, under its name.
    """

    noun: str
    group: str
    built_in: Mapping[str, str] = field(default_factory=dict)
    room: str = ""

    def names(self) -> list[str]:
        """All names that :meth:`find` knows, sorted."""
        return sorted({*self.own(), *(point.name for point in self._installed())})

    def own(self) -> dict[str, str]:
        """What edgepack itself brings: name to ``module`` or ``module:attribute``."""
        if not self.room:
            return dict(self.built_in)
        folder = PACKAGE.parent.joinpath(*self.room.split("."))
        found = {file.parent.name: f"{self.room}.{file.parent.name}" for file in folder.glob("*/__init__.py")}
        return {**dict(sorted(found.items())), **self.built_in}

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def find(self, name: str) -> Any:
        """The object of this name: a module, a class or a function, as the kind has it.

        Raises:
            ConfigError: there is none (the message has the nearest and all known names), or the package that
                brings it cannot be imported.
        """
        if place := self.own().get(name):
            module, _, attribute = place.partition(":")
            found = import_module(module)
            return getattr(found, attribute) if attribute else found
        for point in self._installed():
            if point.name == name:
                return self._load(point)
        names = self.names()
        near = get_close_matches(name, names, n=1)
        raise ConfigError(
            f"There is no {self.noun} {name!r}.",
            hint=(f"Did you mean {near[0]}? " if near else "") + f"Known: {', '.join(names)}.",
        )

    def origin(self, name: str) -> str:
        """The package that brings the name, with its version (``my-parts 1.2``); "" for a built-in one."""
        if name not in self.own():
            for point in self._installed():
                if point.name == name and point.dist is not None:
                    return f"{point.dist.name} {point.dist.version}"
        return ""

    def _load(self, point: EntryPoint) -> Any:
        try:
            return point.load()
        except Exception as error:  # whatever the other package raises
            raise ConfigError(
                f"The {self.noun} {point.name!r} ({point.value}) cannot be imported: {error}.",
                hint="Install the package that brings it again.",
            ) from error

    def _installed(self) -> list[EntryPoint]:
        points = _points(self.group)
        return sorted(points, key=lambda point: (point.dist.name if point.dist else "", point.name))


def _points(group: str) -> list[EntryPoint]:
    return list(_points_in(group, tuple((folder, _changed(folder)) for folder in sys.path)))


@cache
def _points_in(group: str, _: tuple[tuple[str, int], ...]) -> EntryPoints:
    """The entry points of all packages in the folders of ``sys.path``, each with the time of its last change:
    to read them takes 10 ms, and a pack asks ten times."""
    return entry_points(group=group)


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns  # "" is the current one
    except OSError:
        return 0


#: Packages, or modules, of the protocol :class:`edgepack.compiler.frontend.base.Frontend`, by the name of the
#: format. Which of them reads a model is found out by the worker (:mod:`edgepack.compiler.frontend.choose`).
FRONTENDS = Registry("frontend", "edgepack.frontends", room="edgepack.compiler.frontend")

#: Objects of :class:`edgepack.pipeline.model_objects.ModelObject`, by what :func:`object_kind` says of the
#: models in memory that they make files of.
MODEL_OBJECTS = Registry(
    "kind of model in memory",
    "edgepack.model_objects",
    {
        "onnx.ModelProto": "edgepack.pipeline.model_objects:ONNX",
        "torch.ExportedProgram": "edgepack.programs.exporting:PROGRAM",
        "torch.Module": "edgepack.programs.exporting:PROGRAM",
    },
)

#: Subclasses of :class:`edgepack.toolchains.base.Toolchain`: a compiler family each.
TOOLCHAINS = Registry(
    "compiler family",
    "edgepack.toolchains",
    {
        "clang": "edgepack.toolchains.clang:ClangToolchain",
        "emcc": "edgepack.toolchains.emcc:EmccToolchain",
        "gcc": "edgepack.toolchains.gcc:GccToolchain",
        "gcc-arm-none-eabi": "edgepack.toolchains.bare_metal:ArmNoneEabiToolchain",
        "gcc-riscv-elf": "edgepack.toolchains.bare_metal:RiscvElfToolchain",
        "ndk": "edgepack.toolchains.ndk:NdkToolchain",
        "xcode": "edgepack.toolchains.xcode:XcodeToolchain",
        "zig": "edgepack.toolchains.zig:ZigToolchain",
    },
)

#: Subclasses of :class:`edgepack.objectfiles.base.ObjectFormat`. A device's format follows from its
#: architecture and operating system, which name one of these: another package's is found and not asked for.
OBJECT_FORMATS = Registry(
    "object format",
    "edgepack.object_formats",
    {
        "coff": "edgepack.objectfiles.coff.format:Coff",
        "elf": "edgepack.objectfiles.elf.format:Elf",
        "firmware": "edgepack.objectfiles.elf.firmware:Firmware",
        "macho": "edgepack.objectfiles.macho.format:MachO",
        "wasm": "edgepack.objectfiles.wasm.format:Wasm",
    },
)

#: Functions of the protocol :class:`edgepack.bundle.documents.PlatformFiles`, by the operating system of the
#: devices whose bundles they add to: Android projects, module maps for Apple's systems, firmware (``none``),
#: npm packages (``wasi``, ``emscripten``).
PLATFORM_FILES = Registry(
    "platform",
    "edgepack.platform_files",
    {
        "android": "edgepack.formats.platform.android:package_files",
        "emscripten": "edgepack.formats.platform.npm:package_files",
        "ios": "edgepack.formats.platform.apple:package_files",
        "macos": "edgepack.formats.platform.apple:package_files",
        "none": "edgepack.bundle.firmware.project:package_files",
        "wasi": "edgepack.formats.platform.npm:package_files",
    },
)

#: Objects of :class:`edgepack.formats.base.ExportFormat`: what a bundle becomes for an ecosystem's own tools.
EXPORT_FORMATS = Registry(
    "package format",
    "edgepack.export_formats",
    {
        "aar": "edgepack.formats.aar:AAR",
        "arduino": "edgepack.formats.microcontroller.arduino:ARDUINO",
        "c-single-file": "edgepack.formats.c_single_file:C_SINGLE_FILE",
        "cmake": "edgepack.formats.cmake_package:CMAKE",
        "cmsis-pack": "edgepack.formats.microcontroller.cmsis_pack:CMSIS_PACK",
        "conan": "edgepack.formats.conan:CONAN",
        "deb": "edgepack.formats.deb:DEB",
        "esp-idf": "edgepack.formats.microcontroller.esp_idf:ESP_IDF",
        "go": "edgepack.formats.golang:GO",
        "npm": "edgepack.formats.npm_package:NPM",
        "oci": "edgepack.formats.oci:OCI",
        "platformio": "edgepack.formats.microcontroller.platformio:PLATFORMIO",
        "rust": "edgepack.formats.rust:RUST",
        "tar.gz": "edgepack.formats.bundle_archive:TAR_GZ",
        "vcpkg": "edgepack.formats.vcpkg:VCPKG",
        "wheel": "edgepack.formats.wheel:WHEEL",
        "xcframework": "edgepack.formats.xcframework:XCFRAMEWORK",
        "zephyr": "edgepack.formats.microcontroller.zephyr:ZEPHYR",
        "zip": "edgepack.formats.bundle_archive:ZIP",
    },
)

#: Modules of the protocol :class:`edgepack.runners.base.Runner`.
RUNNERS = Registry(
    "runner",
    "edgepack.runners",
    {
        "adb": "edgepack.runners.adb",
        "chromium": "edgepack.runners.chromium",
        "cuda-shim": "edgepack.runners.cuda_shim",
        "metal-shim": "edgepack.runners.metal_shim",
        "native": "edgepack.runners.native",
        "node": "edgepack.runners.node",
        "qemu": "edgepack.runners.qemu_user",
        "qemu-system": "edgepack.runners.qemu_system",
        "ssh": "edgepack.runners.ssh",
        "wasmtime": "edgepack.runners.wasmtime",
        "wine": "edgepack.runners.wine",
    },
)

#: Functions ``(jobs, scheduler)`` that return an executor of ``concurrent.futures``, which builds a
#: release's units: how many at once (0: as many as it has room for), and the address of what has the workers.
#: Left by an exception, its ``with`` statement ends what runs, as far as it can.
EXECUTORS = Registry(
    "executor",
    "edgepack.executors",
    {
        "dask": "edgepack.release.dask_executor:open_executor",
        "processes": "edgepack.release.processes:open_executor",
    },
)

#: All kinds, for whoever lists or checks them.
KINDS = (
    FRONTENDS,
    MODEL_OBJECTS,
    TOOLCHAINS,
    OBJECT_FORMATS,
    PLATFORM_FILES,
    EXPORT_FORMATS,
    RUNNERS,
    EXECUTORS,
)


def object_kind(model: object) -> str:
    """The name in :data:`MODEL_OBJECTS` of an object's class, or of one that it is derived from: its package
    and its own name (``onnx.ModelProto``); "" where there is none. Nothing is imported."""
    names = (f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(model).__mro__)
    return next((name for name in names if name in MODEL_OBJECTS), "")
