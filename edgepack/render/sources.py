"""The C files of a bundle: which there are, where they lie, and what their compilation needs.

Paths in a bundle are relative to its root, with ``/``. The tree of ``src/`` is that of ``templates/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.render.names import model_symbol
from edgepack.resources import TEMPLATES

__all__ = [
    "INCLUDE_DIRECTORIES",
    "LOADER_SOURCES",
    "MODEL_SOURCE",
    "MODULE_EXPORTS",
    "MODULE_SOURCE",
    "PARAMS_DEFINE",
    "THREADS_EXPORTS",
    "kernels_object",
    "params_define",
    "runtime_files",
    "shared_library",
]

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
    "src/loader/turns.c",
    "src/loader/verify.c",
)
#: For WebAssembly: the source of the module that JavaScript loads, which includes :data:`MODEL_SOURCE`, and
#: the functions that it exports.
MODULE_SOURCE = "src/runtime/module_wasm.c"
MODULE_EXPORTS = (
    *("ep_allocate", "ep_release", "ep_create", "ep_destroy", "ep_input", "ep_input_bytes", "ep_output"),
    *("ep_output_bytes", "ep_run", "ep_profile", "ep_steps", "ep_arena_bytes", "ep_name_of", "ep_text_of"),
)
#: What the module with threads exports beside them: functions for its workers, and what the linker makes of a
#: thread's stack and thread-local variables.
THREADS_EXPORTS = (
    *("ep_may_sleep", "ep_serve", "ep_trapped"),
    *("__stack_pointer", "__tls_size", "__wasm_init_tls"),
)
#: Include path of every C file of a bundle.
INCLUDE_DIRECTORIES = ("include", "src")
#: With ``--params embed``, the macro that :data:`MODEL_SOURCE` needs; its value is :func:`params_define`.
PARAMS_DEFINE = "EP_PARAMS_FILE"


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


def runtime_files(
    gpu_apis: Sequence[str] = (), *, signed: bool = False, cascades: bool = False
) -> dict[str, Path]:
    """The C files that every bundle holds as they are, of runtime and loader: path in the bundle -> file to
    copy.

    Args:
        gpu_apis: of the GPUs that it has kernels for; the runtime's part for GPUs is left out if there are
            none.
        signed: whether the library takes params that a key signed; what verifies that is left out if not.
        cascades: whether it has cascades of layers; what runs them is left out if not.
    """
    public = TEMPLATES / "runtime" / "edgepack" / "runtime.h"
    files = {"include/edgepack/runtime.h": public}
    wanted = {"gpu": bool(gpu_apis), "signed": signed, "cascade": cascades}
    for folder in ("runtime", "loader"):
        for path in sorted((TEMPLATES / folder).rglob("*")):
            if not wanted.get(path.parent.name, True):
                continue
            if path.suffix in {".c", ".h"} and path != public:
                files[f"src/{path.relative_to(TEMPLATES).as_posix()}"] = path
    return files
