"""The firmware project of a bundle for a device without an operating system.

``firmware/`` holds start code, the board's linker script, an example of how the model is used, and a program
that proves its results; ``bin/`` has that program as an image for the emulator's board.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.bundle.firmware.boards import Places, board_script, machine, places_on_board
from edgepack.bundle.firmware.budget import check_budget, estimate, measure
from edgepack.bundle.firmware.emulator import EMULATORS
from edgepack.bundle.firmware.linker_script import ARENA_SECTION, copied_memories, linker_script
from edgepack.bundle.manifest import Footprint, Manifest, Recorded, RecordedTensor
from edgepack.config.device import Device
from edgepack.config.memories import FLASH
from edgepack.errors import ConfigError
from edgepack.objectfiles.code_size import kernels_bytes
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.types import ParamsMode, Plan
from edgepack.render.params_file import SIGNATURE_BYTES, params_file_bytes
from edgepack.render.templates import render
from edgepack.render.values import model_values
from edgepack.resources import TEMPLATES
from edgepack.system.files import sha256_file
from edgepack.toolchains.base import DISCARD_DEBUG, Toolchain

if TYPE_CHECKING:
    from edgepack.bundle.recipe import Recipe

__all__ = [
    "check_estimate",
    "check_options",
    "link",
    "link_trial",
    "measured",
    "package_files",
    "params_address",
    "sources",
    "write_sources",
]

_FOLDER = "firmware"
_SUPPORT = ("firmware/vectors.c", "firmware/start.c", "firmware/semihosting.c", "firmware/library.c")
#: C files of the program that proves the results, and of the example.
_CHECK = (
    *_SUPPORT,
    "firmware/clock.c",
    "firmware/check.c",
    "firmware/measure.c",
    "firmware/report.c",
    "firmware/recorded.c",
    "src/loader/compare.c",
)
_EXAMPLE = (*_SUPPORT, "firmware/example.c")
#: What brings params along that are not in the library, for the first image on a device.
_PARAMS = "firmware/params.c"
#: The files of the loader of other devices that firmware uses.
_OF_LOADER = ("compare.c", "compare.h")


def sources(params_mode: ParamsMode) -> tuple[str, ...]:
    """The C files of the program that proves the results, and of the example."""
    return (*_CHECK, *_example(params_mode)[len(_SUPPORT) :])


def _example(params_mode: ParamsMode) -> tuple[str, ...]:
    return _EXAMPLE if params_mode == "embed" else (*_EXAMPLE, _PARAMS)


def check_options(device: Device, params_mode: str, *, signed: bool) -> None:
    """Raise ConfigError for what firmware cannot be packed with."""
    if params_mode == "file":
        raise ConfigError(
            f"{device.name} has no files, so --params file is not possible.",
            hint="Leave --params out: the params go into the image, in flash. Or --params caller: they are a "
            "file of their own, which lies beside the image in flash and can be replaced without it.",
        )
    if device.memories and signed and params_mode == "embed":
        raise ConfigError(
            f"{device.name} has params in several memories, so its library takes none that a key signs.",
            hint="Leave the key out, or give --params caller: then they are one file beside the image.",
        )
    if "shared" in device.artifacts:
        raise ConfigError(
            f"{device.name} has nothing that loads shared libraries.", hint="`artifacts: [static, program]`."
        )
    if not board_script(device).is_file():
        known = ", ".join(sorted(path.stem for path in (TEMPLATES / _FOLDER / "boards").glob("*.ld")))
        raise ConfigError(
            f"device {device.name}: there is no linker script for the board {machine(device)!r}.",
            hint=f"`runner: {{options: {{machine: ...}}}}` takes: {known}.",
        )


def check_estimate(recipe: Recipe, plan: Plan) -> None:
    """Raise CheckFailedError if the largest parts alone are over the device's budget."""
    code_bytes = kernels_bytes(recipe.bundle / recipe.kernels[-1])
    found = estimate(plan, code_bytes, recipe.device, recipe.placed)
    check_budget(found, recipe.name, recipe.device, growth=plan.params_growth, estimated=True)


def write_sources(recipe: Recipe, plan: Plan, recorded: Recorded) -> None:
    """Write the bundle's folder ``firmware/``: what is copied, and what is generated for the model."""
    root = recipe.bundle
    folder = root / _FOLDER
    folder.mkdir()
    for path in sorted(one for part in _folders(recipe.device) for one in part.iterdir()):
        if path.suffix in {".c", ".h"}:
            shutil.copyfile(path, folder / path.name)
    if copied_memories(recipe.placed):
        shutil.copyfile(TEMPLATES / _FOLDER / "memories" / "start.c", folder / "start.c")
    for path in sorted((root / "src" / "loader").iterdir()):
        if path.name not in _OF_LOADER:
            path.unlink()
    values = _values(recipe, plan)
    generated = {
        "recorded.c": render("firmware/recorded.c.j2", values | _recorded(root, recorded)),
        "example.c": render("firmware/example.c.j2", values),
        f"{machine(recipe.device)}.ld": _script(recipe, plan),
    }
    if recipe.params_mode != "embed":
        generated["params.c"] = render("firmware/params.c.j2", values | {"params": recipe.layout.params})
    for name, text in generated.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def measured(recipe: Recipe, plan: Plan, objects: Mapping[str, Path], library: Sequence[Path]) -> Footprint:
    """Link the firmware example, measure it, and hold it against the device's budget.

    Args:
        objects: source -> object, of :func:`sources`.
        library: the model's objects.

    Raises:
        CheckFailedError: it is over the budget.
    """
    example = recipe.build / "example.elf"
    outside = recipe.params_mode != "embed"
    _link(recipe, plan, [*(objects[name] for name in _example(recipe.params_mode)), *library], example)
    found = measure(example, recipe.device, recipe.placed, outside=outside)
    check_budget(found, recipe.name, recipe.device, growth=plan.params_growth)
    return found


def link(
    recipe: Recipe, plan: Plan, objects: Mapping[str, Path], library: Sequence[Path], output: Path
) -> None:
    """Link the firmware that proves the recorded results to ``output``.

    Args:
        objects: source -> object, of :func:`sources`.
        library: the model's objects.
    """
    _link(recipe, plan, [*(objects[name] for name in _CHECK), *library], output)


def params_address(recipe: Recipe, plan: Plan) -> int | None:
    """Where the program expects a params file that is not in it; None where there is no such."""
    places = _places(recipe, plan) if recipe.device.bare_metal else None
    return None if places is None else places.first


def _places(recipe: Recipe, plan: Plan) -> Places | None:
    """Where the board has params that are not in the image; None where they are in it."""
    if recipe.params_mode == "embed":
        return None
    memory = FLASH if recipe.placed is None else recipe.placed.pieces[0].memory
    return places_on_board(recipe.device, params_file_bytes(plan, listed=False) + SIGNATURE_BYTES, memory)


def _script(recipe: Recipe, plan: Plan) -> str:
    return linker_script(recipe.device, recipe.placed, _places(recipe, plan))


def link_trial(toolchain: Toolchain, objects: Sequence[Path], output: Path, folder: Path) -> None:
    """Link ``objects``, which have a ``main``, with the start code of the device's board. ``folder`` is for
    objects and the linker script."""
    support = []
    for name in _SUPPORT:
        support.append(folder / f"{Path(name).name}.o")
        folders = _folders(toolchain.device)
        source = next(one for part in folders if (one := part / Path(name).name).is_file())
        toolchain.compile_c(source, support[-1], include=[TEMPLATES / "runtime", *folders])
    flags = _link_flags(linker_script(toolchain.device), folder)
    toolchain.link_program([*support, *objects], output, flags=flags)


def package_files(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """The CMake projects and the README of firmware, instead of those for systems with files and shared
    libraries: path in the bundle -> text; an empty text leaves out the common file."""
    values = _values(recipe, plan) | {
        "m": manifest,
        "board": machine(recipe.device),
        "emulator": _emulator(recipe.device),
        "places": _places(recipe, plan),
        "toolchain_files": [f"{family}.cmake" for family in recipe.device.compilers],
        "check_sources": _CHECK,
        "example_sources": _example(recipe.params_mode),
        "kernels_object": recipe.kernels[-1],
        "params": recipe.layout.params,
        "program": recipe.layout.program,
    }
    return {
        # Left out: these are for libraries that are installed on a system.
        "cmake/exports.map": "",
        f"cmake/{recipe.name}-config.cmake": "",
        f"cmake/{recipe.name}-config-version.cmake": "",
        f"cmake/{recipe.name}-processor.cmake": "",
        f"pkgconfig/{recipe.name}.pc": "",
        "README.md": render("firmware/README.md.j2", values),
        "CMakeLists.txt": render("firmware/library.cmake.j2", values),
        "firmware/CMakeLists.txt": render("firmware/CMakeLists.txt.j2", values),
        **{
            f"firmware/{family}.cmake": render(
                f"firmware/{family}.cmake.j2", {"compiler": compiler, "arch": recipe.device.arch}
            )
            for family, compiler in recipe.device.compilers.items()
            if (TEMPLATES / _FOLDER / f"{family}.cmake.j2").is_file()
        },
    }


def _folders(device: Device) -> tuple[Path, Path]:
    """Where the C files lie that are for every core, and for the device's."""
    return TEMPLATES / _FOLDER, TEMPLATES / _FOLDER / {"riscv32": "riscv"}.get(device.arch, device.arch)


def _emulator(device: Device) -> str:
    return " ".join(EMULATORS[device.arch].command(machine(device), device.runner.cpu))


def _link(recipe: Recipe, plan: Plan, objects: Sequence[Path], output: Path) -> None:
    flags = _link_flags(_script(recipe, plan), recipe.build)
    recipe.toolchain.link_program(objects, output, flags=flags)


def _link_flags(board: str, folder: Path) -> tuple[str, ...]:
    """Options that link with a board's script; it is written to ``folder``."""
    script = folder / "firmware.ld"
    # zig's libraries come with debug information, which holds paths of the machine that they were built on.
    text = board + DISCARD_DEBUG.read_text(encoding="utf-8")
    script.write_text(text, encoding="utf-8", newline="\n")
    return ("-T", str(script.absolute()), "-Wl,-e,Reset_Handler")


def _values(recipe: Recipe, plan: Plan) -> dict[str, Any]:
    values = model_values(plan, recipe.params_mode == "embed", direct=True)
    section = f"{values['macro']}_ARENA_SECTION" if recipe.placed is not None else f'"{ARENA_SECTION}"'
    size = f"{values['macro']}_ARENA_BYTES" if plan.arena.nbytes else "1"  # C has no arrays of nothing
    return values | {"steps": max(1, len(plan.steps)), "arena_attribute": section, "arena_size": size}


def _recorded(root: Path, recorded: Recorded) -> dict[str, Any]:
    """The recorded tensors as the template recorded.c.j2 wants them; their hashes, so that its text changes
    with them."""

    def entry(label: str, tensor: RecordedTensor) -> dict[str, Any]:
        nbytes, itemsize = (root / tensor.file).stat().st_size, DTYPE_BYTES[tensor.dtype]
        return {
            "label": label,
            "file": tensor.file,
            "sha256": sha256_file(root / tensor.file),
            "nbytes": nbytes,
            "itemsize": itemsize,
            "room": nbytes + 2 * itemsize,
            "atol": repr(tensor.atol),
            "rtol": repr(tensor.rtol),
        }

    return {
        "inputs": [entry(f"input{i}", tensor) for i, tensor in enumerate(recorded.inputs)],
        "outputs": [entry(f"output{i}", tensor) for i, tensor in enumerate(recorded.outputs)],
    }
