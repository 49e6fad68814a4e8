"""What makes a bundle usable from CMake and pkg-config, rendered from a Plan."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.plan.types import ParamsMode, Plan
from edgepack.render.sources import LOADER_SOURCES
from edgepack.render.templates import render
from edgepack.render.values import model_values

__all__ = ["render_project"]


def render_project(
    plan: Plan,
    *,
    kernels: Sequence[str],
    params_mode: ParamsMode,
    shared: str | None,
    static: str | None,
    libraries: Sequence[str] = ("pthread", "m"),
) -> dict[str, str]:
    """CMakeLists.txt, ``cmake/`` and ``pkgconfig/`` of a bundle: path in the bundle -> text.

    Args:
        kernels: paths in the bundle of the kernels' object files.
        params_mode: "embed" leaves the params file out: the library has it inside.
        shared, static: paths in the bundle of the built libraries, or None where there is none.
        libraries: system libraries that a program needs with the static library.
    """
    exports_map = shared is None or shared.endswith(".so")
    values = model_values(plan, params_mode == "embed") | {
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
        f"cmake/{plan.name}-config-version.cmake": render("project/cmake/config-version.cmake.j2", values),
        f"pkgconfig/{plan.name}.pc": render("project/pkgconfig/library.pc.j2", values),
    }
