"""What works on this machine for a device, found by trying it, and how to get what does not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from edgepack.commands.doctor_gpu import examine_gpu
from edgepack.config.device import Device
from edgepack.config.toolchain import load_toolchain, toolchain_names
from edgepack.errors import ConfigError, EdgepackError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.report import AuditKind
from edgepack.pipeline.worker_process import Worker
from edgepack.registry import RUNNERS, TOOLCHAINS
from edgepack.resources import PACKAGE
from edgepack.system import landlock
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains import resolve
from edgepack.toolchains.base import Toolchain

__all__ = ["Diagnosis", "diagnose", "examine_runners", "examine_toolchain", "trial"]

_HERE = PACKAGE / "trial"
_SYMBOL = "edgepack_trial"


@dataclass(frozen=True)
class Diagnosis:
    """One toolchain, runner, something for the device's GPU, or what confines the process that reads models.

    Attributes:
        kind: which of the four.
        name: its name.
        ok: it did what the device needs.
        chosen: the device's file names it, so that it is used unless the user says otherwise.
        version: what the tool says of itself.
        found: where it is.
        problem: what is wrong, in a sentence.
        hint: what to do.
        detail: what the tool printed.
        fits: it could work for this device; not a toolchain that the device's file does not know.
    """

    kind: Literal["toolchain", "gpu", "runner", "confinement"]
    name: str
    ok: bool
    chosen: bool = False
    version: str = ""
    found: str = ""
    problem: str = ""
    hint: str = ""
    detail: str = ""
    fits: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def diagnose(device: Device, *, runner: str = "", sdk: Path | None = None) -> Iterator[Diagnosis]:
    """Try every toolchain and runner for a device, and what it needs for its GPU, one after the other.

    Args:
        runner: a runner with a place (``ssh:pi@board``), to be tried there.
        sdk: folder of the SDK, for the toolchains that are part of one.
    """
    if runner:
        RUNNERS.find(runner.partition(":")[0])  # an unknown one is the user's mistake
    # The device may name a file that is in none of the folders.
    for name in dict.fromkeys((*toolchain_names(), device.toolchain)):
        yield examine_toolchain(device, name, sdk)
    for tool in examine_gpu(device):
        ok = bool(tool.found)
        yield Diagnosis(
            "gpu", tool.name, ok, tool.needed, tool.version, tool.found, tool.problem, tool.hint, fits=ok
        )
    yield from examine_runners(device, runner)
    yield examine_confinement()


def examine_confinement() -> Diagnosis:
    """Try whether the process that reads models can be confined here (docs/security.md)."""
    with Worker() as worker:
        problem = worker.why_unconfined()
    if problem:
        return Diagnosis(
            "confinement",
            "landlock",
            False,
            problem=f"The process that reads models is not confined: {problem}.",
            hint="Models that you do not trust are for a virtual machine, or for a newer Linux.",
        )
    found = "the process that reads models"
    return Diagnosis("confinement", "landlock", True, version=f"interface {landlock.abi()}", found=found)


def examine_toolchain(device: Device, name: str, sdk: Path | None = None) -> Diagnosis:
    """Try one toolchain: find it, ask its version, build and check each artifact of the device."""
    chosen = name == device.toolchain
    label = Path(name).stem if name.endswith((".yaml", ".yml")) else name
    version = found = ""
    try:
        family = TOOLCHAINS.find(load_toolchain(name).family)
        if family.family not in device.compilers and not chosen:
            problem = f"builds nothing for {device.name}, which has no `compilers: {family.family}:`"
            return Diagnosis("toolchain", label, False, fits=False, problem=problem)
        toolchain = resolve(device, name, sdk if family.uses_sdk else None)
        found = shlex.join(toolchain.executable())
        version = toolchain.version()
        with temporary_folder() as folder:
            trial(toolchain, Path(folder))
    except EdgepackError as error:
        hint = "" if "edgepack doctor" in error.hint else error.hint
        return Diagnosis(
            "toolchain", label, False, chosen, version, found, error.message, hint, error.detail.strip()
        )
    return Diagnosis("toolchain", label, True, chosen, version, found)


def trial(toolchain: Toolchain, folder: Path) -> dict[AuditKind, Path]:
    """Build each artifact of the toolchain's device from two small C files, and audit it.

    Raises ToolchainError or CheckFailedError: the first that does not work.
    """
    library, program = folder / "trial_library.o", folder / "trial_program.o"
    toolchain.compile_c(_HERE / "trial_library.c", library)
    bare = toolchain.device.bare_metal
    toolchain.compile_c(_HERE / ("trial_firmware.c" if bare else "trial_program.c"), program)
    built: dict[AuditKind, Path] = {}
    for kind in toolchain.device.artifacts:
        exported = [_SYMBOL]
        if kind == "shared":
            output = folder / "libtrial.so"
            toolchain.link_shared([library], output, exported=exported, soname=output.name)
        elif kind == "static":
            output = folder / "libtrial.a"
            toolchain.archive([library], output, exported=exported)
        else:
            output, exported = folder / "trial", []
            if bare:
                from edgepack.bundle.firmware.project import link_trial

                link_trial(toolchain, [program, library], output, folder)
            else:
                toolchain.link_program([program, library], output)
        audit(output, toolchain.device, kind=kind, exported=exported)
        built[kind] = output
    return built


def examine_runners(device: Device, wanted: str = "") -> Iterator[Diagnosis]:
    """Ask every runner whether it can run the device's programs here; the one of ``wanted`` at its place."""
    from edgepack.runners import placed

    wanted_name, _, place = wanted.partition(":")
    for name in RUNNERS.names():
        chosen = name == (wanted_name or device.runner.name)
        try:
            there = placed(device, name, place) if name == wanted_name else device
            ok, found, hint = RUNNERS.find(name).available(there)
        except ConfigError as error:
            yield Diagnosis("runner", name, False, chosen, problem=error.message, hint=error.hint)
            continue
        problem = "" if ok else f"cannot run programs of {device.name} here"
        yield Diagnosis("runner", name, ok, chosen, found=found, problem=problem, hint=hint)
