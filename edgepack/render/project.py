"""What makes a bundle usable from CMake and pkg-config, rendered from a Plan."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.plan.types import ParamsMode, Plan
from edgepack.render.sources import LOADER_SOURCES
from edgepack.render.templates import render
from edgepack.render.values import model_values

__all__ = ["render_project"]

#: Architecture -> bytes of a pointer, and a regular expression of CMake for what CMake may call it, in lower
#: case (CMAKE_SYSTEM_PROCESSOR, CMAKE_OSX_ARCHITECTURES, the architecture ids of Microsoft's compiler). A
#: 32-bit system on a 64-bit ARM names the CPU; Emscripten says x86.
_PROCESSORS = {
    "x86_64": (8, "^(x86[_-]64|amd64|x64)$"),
    "aarch64": (8, "^(aarch64|arm64|armv[89])"),
    "arm": (4, "^(arm|aarch64|cortex|thumb)"),
    "riscv32": (4, "^riscv"),
    "riscv64": (8, "^riscv"),
    "wasm32": (4, "^(wasm|x86$)"),
}


def render_project(
    plan: Plan,
    *,
    kernels: Sequence[str],
    params_mode: ParamsMode,
    shared: str | None,
    static: str | None,
    libraries: Sequence[str] = ("pthread", "m"),
    arch: str,
) -> dict[str, str]:
    """CMakeLists.txt, ``cmake/`` and ``pkgconfig/`` of a bundle: path in the bundle -> text.

    Args:
        kernels: paths in the bundle of the kernels' object files.
        params_mode: "embed" leaves the params file out: the library has it inside.
        shared, static: paths in the bundle of the built libraries, or None where there is none.
        libraries: system libraries that a program needs with the static library.
        arch: the CPU's architecture, as devices name it.
    """
    exports_map = shared is None or shared.endswith(".so")
    pointer_bytes, processors = _PROCESSORS[arch]
    values = model_values(plan, params_mode == "embed") | {
        "arch": arch,
        "pointer_bytes": pointer_bytes,
        "processors": processors,
        "shared": shared,
        "static": static,
        "exports_map": exports_map,
        "libraries": list(libraries),
        "kernels_objects": list(kernels),
        "loader_sources": LOADER_SOURCES,
        "params_path": None if params_mode == "embed" else f"params/{plan.name}.params",
        "image_path": f"params/{plan.name}.params",
    }
    lists = {"cmake/exports.map": render("project/cmake/exports.map.j2", values)} if exports_map else {}
    return {
        "CMakeLists.txt": render("project/CMakeLists.txt.j2", values),
        **lists,
        f"cmake/{plan.name}-config.cmake": render("project/cmake/config.cmake.j2", values),
        f"cmake/{plan.name}-processor.cmake": render("project/cmake/processor.cmake.j2", values),
        f"cmake/{plan.name}-config-version.cmake": render("project/cmake/config-version.cmake.j2", values),
        f"pkgconfig/{plan.name}.pc": render("project/pkgconfig/library.pc.j2", values),
    }
