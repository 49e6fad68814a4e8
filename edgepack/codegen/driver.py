"""The C of a bundle: renders model.c, the model's header, the loader's configuration and the bundle's CMake
project from a Plan, and says which files of the runtime and loader belong beside them.

Paths that this module returns are relative to the bundle's root, with ``/``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import edgepack
from edgepack.codegen.names import c_identifier, c_string, printable, unique_identifiers
from edgepack.errors import ConfigError, InternalError
from edgepack.plan.params import params_file_bytes
from edgepack.plan.types import Argument, Plan, Quantization, Step, TensorSpec
from edgepack.target import CPU_FEATURES

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
    "model_symbol",
    "model_values",
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

_TEMPLATES = Path(edgepack.__file__).parent / "templates"

_C_TYPES = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}


@dataclass(frozen=True)
class _Tensor:
    """A TensorSpec as the templates see it."""

    spec: TensorSpec
    role: str  # "input" or "output"
    index: int
    macro: str  # RESNET18_INPUT_DATA
    variable: str  # data

    @property
    def list(self) -> str:
        return self.role + "s"

    @property
    def label(self) -> str:
        return f"{self.role}{self.index}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def shape_text(self) -> str:
        return "".join(f"[{extent}]" for extent in self.spec.shape)

    @property
    def elements(self) -> int:
        return prod(self.spec.shape)

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes

    @property
    def dtype(self) -> str:
        return f"EP_{self.spec.dtype.upper()}"

    @property
    def dtype_text(self) -> str:
        return self.spec.dtype

    @property
    def c_type(self) -> str:
        return _C_TYPES[self.spec.dtype]

    @property
    def quoted(self) -> str:
        return c_string(self.spec.name)

    @property
    def printable(self) -> str:
        return printable(self.spec.name)

    @property
    def quantization(self) -> dict[str, Any] | None:
        return _quantization(self.spec.quantization) if self.spec.quantization else None


@dataclass(frozen=True)
class Variant:
    """The kernels of one kind of CPU.

    Attributes:
        name: of the device that they were made for.
        plan: their steps; all variants of a library have the same inputs, outputs and params.
        cpu_requires: features that the loader checks at run time, of ``edgepack.target.CPU_FEATURES``.
    """

    name: str
    plan: Plan
    cpu_requires: tuple[str, ...] = ()


def kernels_object(index: int, count: int) -> str:
    """Where the machine code of variant ``index`` of ``count`` lies: the one thing in a bundle that cannot be
    rebuilt there."""
    return "src/kernels.o" if count == 1 else f"src/kernels{index}.o"


def model_symbol(name: str) -> str:
    """The one symbol that the library of the model ``name`` exports."""
    return f"edgepack_model_{c_identifier(name)}"


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
    files = {"include/edgepack/runtime.h": _TEMPLATES / "runtime" / "edgepack" / "runtime.h"}
    for room in ("runtime", "loader"):
        for path in sorted((_TEMPLATES / room).iterdir()):
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
        params_id: what :func:`edgepack.plan.params.write_params` returned.
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
    values = _values(plan, params_mode) | {
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
        MODEL_SOURCE: _render("model/model.c.j2", values),
        f"include/{plan.name}.h": _render("model/model.h.j2", values),
        "src/loader/config.h": _render("loader/config.h.j2", {**values, "identifier": identifier}),
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
    values = _values(plan, params_mode) | {
        "shared": shared,
        "static": static,
        "exports_map": exports_map,
        "libraries": list(libraries),
        "kernels_objects": list(kernels),
        "loader_sources": LOADER_SOURCES,
        "params_path": None if params_mode == "embed" else f"params/{plan.name}.params",
        "image_path": f"params/{plan.name}.params",
    }
    lists = {"cmake/exports.map": _render("bundle/cmake/exports.map.j2", values)} if exports_map else {}
    return {
        "CMakeLists.txt": _render("bundle/CMakeLists.txt.j2", values),
        **lists,
        f"cmake/{plan.name}-config.cmake": _render("bundle/cmake/config.cmake.j2", values),
        f"cmake/{plan.name}-config-version.cmake": _render("bundle/cmake/config-version.cmake.j2", values),
        f"pkgconfig/{plan.name}.pc": _render("bundle/pkgconfig/library.pc.j2", values),
    }


def model_values(plan: Plan, params_mode: ParamsMode) -> dict[str, Any]:
    """What every template about a model may use: its names, tensors and sizes."""
    return _values(plan, params_mode)


def _render(template: str, values: dict[str, Any]) -> str:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # C and CMake, not HTML
    )
    return environment.get_template(template).render(values)


def _values(plan: Plan, params_mode: ParamsMode) -> dict[str, Any]:
    identifier = c_identifier(plan.name)
    tensors = _tensors(plan, identifier)
    return {
        "name": plan.name,
        "version": edgepack.__version__,
        "identifier": identifier,
        "macro": identifier.upper(),
        "symbol": model_symbol(plan.name),
        "quoted_name": c_string(plan.name),
        "quoted_version": c_string(edgepack.__version__),
        "quoted_params_file": c_string(f"{plan.name}.params"),
        "tensors": tensors,
        "input_count": len(plan.inputs),
        "output_count": len(plan.outputs),
        "params_bytes": plan.params_bytes,
        "image_bytes": params_file_bytes(plan),
        "embedded": params_mode == "embed",
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


def _tensors(plan: Plan, identifier: str) -> list[_Tensor]:
    """Inputs, then outputs, with names that are unique among all of them."""
    specs = [("input", i, t) for i, t in enumerate(plan.inputs)] + [
        ("output", i, t) for i, t in enumerate(plan.outputs)
    ]
    taken = {identifier, "session", "inputs_", "outputs_"}
    variables = unique_identifiers([t.name for _, _, t in specs], taken=taken)
    macros = [
        name
        for role in (plan.inputs, plan.outputs)
        for name in unique_identifiers([t.name for t in role], upper=True, keywords=False)
    ]
    return [
        _Tensor(spec, role, index, f"{identifier.upper()}_{role.upper()}_{macro}", variable)
        for (role, index, spec), macro, variable in zip(specs, macros, variables, strict=True)
    ]


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


def _quantization(quantization: Quantization) -> dict[str, Any]:
    return {
        "scale": [_float32(v) for v in quantization.scale],
        "zero_point": list(quantization.zero_point),
        "count": len(quantization.scale),
        "axis": -1 if quantization.axis is None else quantization.axis,
    }


def _float32(value: float) -> str:
    """A C literal that is exactly the float32 nearest to ``value``."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    text = f"{rounded:.9g}"
    return (text if any(c in text for c in ".en") else text + ".0") + "f"


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
