"""The C of a bundle: renders model.c, the model's header, the loader's configuration and the bundle's CMake
project from a Plan, and says which files of the runtime and loader belong beside them.

Paths that this module returns are relative to the bundle's root, with ``/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgepack.errors import ConfigError, InternalError
from edgepack.plan.target import CPU_FEATURES
from edgepack.plan.types import Argument, Plan, Step
from edgepack.render.names import c_string
from edgepack.render.templates import render
from edgepack.render.values import model_symbol, model_values
from edgepack.resources import TEMPLATES

__all__ = [
    "INCLUDE_DIRECTORIES",
    "LOADER_SOURCES",
    "MODEL_SOURCE",
    "MODULE_EXPORTS",
    "MODULE_SOURCE",
    "PARAMS_DEFINE",
    "ParamsMode",
    "Variant",
    "kernels_object",
    "params_define",
    "render_model",
    "render_project",
    "runtime_files",
    "shared_library",
]

ParamsMode = Literal["file", "embed", "caller"]

#: The one C file of a library: it includes the runtime. Its object and the kernels' object are the library.
MODEL_SOURCE = "src/model.c"
#: Sources of the loader program, beside those of the library.
LOADER_SOURCES = (
    "src/loader/bench.c",
    "src/loader/compare.c",
    "src/loader/files.c",
    "src/loader/json.c",
    "src/loader/main.c",
    "src/loader/system.c",
    "src/loader/tolerances.c",
    "src/loader/verify.c",
)
#: For WebAssembly: the source of the module that JavaScript loads, which includes :data:`MODEL_SOURCE`, and
#: the functions that it exports.
MODULE_SOURCE = "src/runtime/module_wasm.c"
MODULE_EXPORTS = (
    *("ep_allocate", "ep_release", "ep_create", "ep_destroy", "ep_input", "ep_input_bytes", "ep_output"),
    *("ep_output_bytes", "ep_run", "ep_profile", "ep_steps", "ep_arena_bytes", "ep_name_of", "ep_text_of"),
)
#: Include path of every C file of a bundle.
INCLUDE_DIRECTORIES = ("include", "src")
#: With ``--params embed``, the macro that :data:`MODEL_SOURCE` needs; its value is :func:`params_define`.
PARAMS_DEFINE = "EP_PARAMS_FILE"


@dataclass(frozen=True)
class Variant:
    """The kernels of one kind of CPU.

    Attributes:
        name: of the device that they were made for.
        plan: their steps; all variants of a library have the same inputs, outputs and params.
        cpu_requires: features that the loader checks at run time, of ``edgepack.plan.target.CPU_FEATURES``.
    """

    name: str
    plan: Plan
    cpu_requires: tuple[str, ...] = ()


def kernels_object(index: int, count: int) -> str:
    """Where the machine code of variant ``index`` of ``count`` lies: the one thing in a bundle that cannot be
    rebuilt there."""
    return "src/kernels.o" if count == 1 else f"src/kernels{index}.o"


def shared_library(name: str, os: str) -> tuple[str, list[str]]:
    """The C file that the shared library of the model ``name`` is compiled from, and what it exports."""
    if os in {"wasi", "emscripten"}:
        return MODULE_SOURCE, list(MODULE_EXPORTS)
    return MODEL_SOURCE, [model_symbol(name)]


def params_define(params_file: Path) -> str:
    """Value of the macro :data:`PARAMS_DEFINE` (as in ``-DEP_PARAMS_FILE=value``, no shell involved).

    Raises:
        ConfigError: the path holds a character that neither a C string nor the assembler takes as it is.
    """
    text = params_file.absolute().as_posix()
    if any(c in '"\\\n' for c in text):
        raise ConfigError(
            f"The path {text!r} cannot be embedded.", hint="Use a folder without quotes and backslashes."
        )
    return f'"{text}"'


def runtime_files() -> dict[str, Path]:
    """The C files that every bundle holds as they are: path in the bundle -> file to copy."""
    files = {"include/edgepack/runtime.h": TEMPLATES / "runtime" / "edgepack" / "runtime.h"}
    for room in ("runtime", "loader"):
        for path in sorted((TEMPLATES / room).iterdir()):
            if path.suffix in {".c", ".h"}:
                files[f"src/{room}/{path.name}"] = path
    return files


def render_model(
    variants: Sequence[Variant],
    *,
    params_id: bytes,
    params_mode: ParamsMode,
    cpu_arch: str,
    threads: int,
    heterogeneous: bool,
) -> dict[str, str]:
    """The generated C of a model: ``src/model.c``, ``include/<name>.h``, ``src/loader/config.h``.

    Args:
        variants: in the order in which the loader tries them.
        params_id: what :func:`edgepack.render.params_file.write_params` returned.
        cpu_arch: "x86_64", "aarch64", "arm", "riscv64", "wasm32"; others get no feature check.
        threads: threads of a session that asks for none.
        heterogeneous: cores of unequal speed: tasks are claimed from a counter.

    Raises:
        ConfigError: an unknown CPU feature.
        InternalError: a step does not fit its kernel.
    """
    plan = variants[-1].plan
    described = [_variant(v, i, len(variants), cpu_arch) for i, v in enumerate(variants)]
    largest = {key: max(v[key] for v in described) for key in ("arena_bytes", "scratch_bytes")}
    values = model_values(plan, params_mode == "embed") | {
        "variants": described,
        "largest": largest,
        "arena_bytes": largest["arena_bytes"],
        "params_id": [f"0x{byte:02x}" for byte in params_id],
        "arch": _arch(cpu_arch),
        "threads": max(1, threads),
        "heterogeneous": heterogeneous,
    }
    identifier = values["identifier"]
    return {
        MODEL_SOURCE: render("model/model.c.j2", values),
        f"include/{plan.name}.h": render("model/model.h.j2", values),
        "src/loader/config.h": render("loader/config.h.j2", {**values, "identifier": identifier}),
    }


def render_project(
    plan: Plan,
    *,
    kernels: Sequence[str],
    params_mode: ParamsMode,
    shared: str | None,
    static: str | None,
    libraries: Sequence[str] = ("pthread", "m"),
) -> dict[str, str]:
    """What makes a bundle usable from CMake and pkg-config: CMakeLists.txt, ``cmake/``, ``pkgconfig/``.

    Args:
        kernels: paths in the bundle of the kernels' objects.
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
    lists = {"cmake/exports.map": render("bundle/cmake/exports.map.j2", values)} if exports_map else {}
    return {
        "CMakeLists.txt": render("bundle/CMakeLists.txt.j2", values),
        **lists,
        f"cmake/{plan.name}-config.cmake": render("bundle/cmake/config.cmake.j2", values),
        f"cmake/{plan.name}-config-version.cmake": render("bundle/cmake/config-version.cmake.j2", values),
        f"pkgconfig/{plan.name}.pc": render("bundle/pkgconfig/library.pc.j2", values),
    }


def _variant(variant: Variant, index: int, count: int, cpu_arch: str) -> dict[str, Any]:
    plan = variant.plan
    return {
        "suffix": "" if count == 1 else f"_{index}",
        "quoted_name": c_string(variant.name),
        "object": kernels_object(index, count).removeprefix("src/"),
        "arena_bytes": plan.arena.nbytes,
        "scratch_bytes": plan.arena.scratch_bytes,
        "scratch_threads": plan.arena.threads,
        "kernels": _kernels(plan),
        "steps": [{"kernel": s.kernel, "arguments": _arguments(plan, s)} for s in plan.steps],
        "step_scratch": _rows([n for s in plan.steps for n in (s.scratch_offset, s.scratch_bytes)] or [0, 0]),
        "step_tasks": _rows([s.tasks for s in plan.steps] or [0]),
        "cpu_features": _cpu_features(cpu_arch, variant.cpu_requires),
        "quoted_cpu_features": c_string(",".join(variant.cpu_requires)),
    }


def _kernels(plan: Plan) -> list[dict[str, str]]:
    return [
        {"symbol": k.symbol, "parameters": ", ".join(["void *"] * k.pointers + ["int32_t", "int32_t"])}
        for k in plan.kernels
    ]


def _arguments(plan: Plan, step: Step) -> str:
    kernel = plan.kernel(step.kernel)
    if kernel.pointers != len(step.arguments):
        raise InternalError(
            f"Kernel {kernel.symbol} takes {kernel.pointers} pointers, not {len(step.arguments)}."
        )
    if not 0 <= step.tasks < 2**31:
        raise InternalError(f"A step of kernel {kernel.symbol} has {step.tasks} tasks.")
    return "".join(_argument(plan, a) + ", " for a in step.arguments)


def _argument(plan: Plan, argument: Argument) -> str:
    match argument.kind:
        case "input" | "output":
            return f"EP_{argument.kind.upper()}({argument.index}, {argument.offset})"
        case "constant":
            return f"EP_CONSTANT({plan.constants[argument.index].offset + argument.offset})"
        case "arena" | "scratch":
            return f"EP_{argument.kind.upper()}({argument.offset})"


def _rows(numbers: Sequence[int]) -> list[str]:
    return [", ".join(str(n) for n in numbers[i : i + 16]) for i in range(0, len(numbers), 16)]


def _arch(cpu_arch: str) -> str:
    known = {**{arch: arch for arch in CPU_FEATURES}, "wasm32": "wasm"}
    return f"EP_ARCH_{known.get(cpu_arch, 'other').upper()}"


def _cpu_features(cpu_arch: str, requires: Sequence[str]) -> str:
    """The C expression of the required features' bits."""
    allowed = CPU_FEATURES.get(cpu_arch, ())
    for name in requires:
        if name not in allowed:
            raise ConfigError(
                f"The loader cannot check for the CPU feature {name!r} on {cpu_arch}.",
                hint=f"cpu_requires takes: {', '.join(allowed) or 'nothing on this architecture'}.",
            )
    bits = [f"EP_CPU_BIT(EP_CPU_{cpu_arch.upper()}_{name.upper().replace('.', '_')})" for name in requires]
    return " | ".join(bits) or "0"
