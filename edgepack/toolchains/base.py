"""What every compiler family has in common: compile, link, archive, all deterministic.

A family is a subclass in a module of its own that says how its driver is called and how it spells a target;
it is found by the entry point group ``edgepack.toolchains``.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from edgepack.config.device import Device
from edgepack.config.device_sections import CompilerTarget
from edgepack.config.toolchain import ToolchainConfig, split_command
from edgepack.errors import ConfigError, ToolchainError
from edgepack.objectfiles.base import ObjectFormat, format_for
from edgepack.system.paths import find_program
from edgepack.system.process import run_checked, run_tool
from edgepack.system.progress import Progress
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.cross_compiler import CrossCompiler

__all__ = ["DISCARD_DEBUG", "Toolchain"]

#: Linker script that drops debug sections, for linkers that keep them with -r.
DISCARD_DEBUG = Path(__file__).resolve().parent / "discard-debug.ld"

#: Would let the user's shell change what is compiled or linked.
_DROPPED_ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH", "SOURCE_DATE_EPOCH")


class Toolchain(ABC):
    """A compiler for one device. All methods raise ToolchainError with the command and what it printed.

    What comes out depends on the input's bytes, the flags and the compiler's version only: not on the folder,
    the date or the environment.
    """

    family: ClassVar[str]

    #: What tells `ar` to replace, create and index, without dates and owners.
    archive_options: ClassVar[str] = "rcsD"

    #: Whether it is looked for in the folder `sdk:` of its file, or of ``--sdk``.
    uses_sdk: ClassVar[bool] = False

    def __init__(self, config: ToolchainConfig, device: Device) -> None:
        """Raises ConfigError if the device does not say how this family spells it."""
        if self.family not in device.compilers:
            others = ", ".join(sorted(device.compilers)) or "none"
            raise ConfigError(
                f"device {device.name} cannot be built with toolchain {config.name}: "
                f"it has no `compilers: {self.family}:` (it has {others})",
                hint=f"Choose another --toolchain, or add `compilers: {{{self.family}: {{target: ...}}}}`.",
            )
        self.config = config
        self.device = device
        self.target: CompilerTarget = device.compilers[self.family]

    # What a family says

    @abstractmethod
    def version(self) -> str:
        """Name and version of the compiler (``zig 0.14.0``). Runs it."""

    @abstractmethod
    def executable(self) -> list[str]:
        """The compiler's command, without options. ToolchainError if it is not installed."""

    @abstractmethod
    def driver(self) -> list[str]:
        """The command that compiles and links, with the target's flags."""

    @abstractmethod
    def archiver(self) -> list[str]:
        """The command that behaves like ``ar``."""

    @abstractmethod
    def strip_debug(self, source: Path, output: Path) -> None:
        """Copy a relocatable object without its debug information."""

    @property
    def brings_headers(self) -> bool:
        """Whether the target's headers are all a part of the compiler, so that its version tells them too."""
        return False

    # What a user calls

    @property
    def name(self) -> str:
        """The toolchain's name, as in its file."""
        return self.config.name

    def compile_c(
        self,
        source: Path,
        output: Path,
        *,
        include: Sequence[Path] = (),
        defines: Mapping[str, str | None] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """Compile a C or assembler file (C99, -O2, position independent, hidden symbols) to an object.

        ``defines``: macro -> value, or None for one without. ``flags`` come last, so they win.
        """
        source = source.absolute()
        command = [*self.compile_command(), *self._path_maps(source.parent, include)]
        command += [f"-I{folder.absolute()}" for folder in include]
        command += [f"-D{k}" if v is None else f"-D{k}={v}" for k, v in (defines or {}).items()]
        command += flags
        # Run in the source's folder with its bare name: the name is written into the object.
        command += ["-c", source.name, "-o", str(output.absolute())]
        self._run(command, f"compiling {source.name}", cwd=source.parent)

    def compile_command(self) -> list[str]:
        """What :meth:`compile_c` runs for every file: the driver and its flags, without folders and files."""
        return [*self.driver(), *self.COMPILE_FLAGS, *self.format.compile_flags, *self.config.compile_flags]

    def link_shared(
        self,
        objects: Sequence[Path],
        output: Path,
        *,
        exported: Sequence[str],
        soname: str,
        libraries: Sequence[str] = (),
    ) -> None:
        """Link a stripped shared library whose only global symbols are ``exported``.

        ``libraries``: names like ``m``, beside those of the device. An undefined symbol is an error.
        """
        with temporary_folder() as folder:
            options = self.format.shared(exported, soname, Path(folder))
            options += self.format.beside_shared(output)
            hidden = self._hidden(objects, exported, Path(folder))
            self._link(hidden, output, options, libraries, f"linking {output.name}")

    def link_program(
        self,
        objects: Sequence[Path],
        output: Path,
        *,
        libraries: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Link a program, stripped and position independent where a system loads it; ``flags`` come last."""
        with temporary_folder() as folder:
            hidden = self._hidden(objects, ["main"], Path(folder))
            options = [*self.format.program(), *flags]
            self._link(hidden, output, options, libraries, f"linking {output.name}")

    @property
    def builds_first(self) -> str:
        """What the first link for a target builds for a minute or so, while all others for it wait: a name
        of that library; "" for nothing that takes long."""
        return ""

    def preparation(self) -> AbstractContextManager[None]:
        """Does in the background, while the body of a ``with`` runs, what the first link for a target would
        otherwise have to do."""
        return nullcontext()

    def wait_until_prepared(self, progress: Progress) -> None:
        """Wait, within that body, for what is done in the background, and tell ``progress`` where it takes
        more than a moment."""
        del progress

    def archive(
        self, objects: Sequence[Path], output: Path, *, exported: Sequence[str] | None = None
    ) -> None:
        """Make a static library: members sorted by name, without debug information, dates and owners.

        ``exported``: the symbols that stay visible outside of what the library is linked into; all others
        become hidden. None leaves the objects' own visibilities.
        """
        names = sorted(path.name for path in objects)
        if len(set(names)) != len(names):
            raise ToolchainError(f"{output.name}: two objects have the same file name ({', '.join(names)})")
        with temporary_folder() as folder:
            for path in objects:
                member = Path(folder, path.name)
                self.strip_debug(path.absolute(), member)
                if exported is not None:
                    self.format.hide_symbols(member, exported)
            made = Path(folder, "out.a")
            command = [*self.archiver(), self.archive_options, made.name, *names]
            self._run(command, f"archiving {output.name}", cwd=Path(folder))
            shutil.copyfile(made, output)

    def cross_compiler(self) -> CrossCompiler:
        """What ``export_library(fcompile=...)`` of TVM takes: see :func:`edgepack.cross_compiler`."""
        return CrossCompiler(self._link_plugin, self.format.suffix, self.device.llvm.triple)

    def _link_plugin(self, objects: Sequence[Path], output: Path, options: Sequence[str]) -> None:
        """Link a library whose undefined symbols are those of the process that loads it."""
        command = [*self.driver(), *self.link_mode, *self.format.plugin(), "-o", str(output)]
        command += [*(str(path) for path in objects), *options, *self.format.libraries(())]
        self._run(command, f"linking {output.name}")

    # What families share

    #: -g0: objects hold no paths. Sections per function let the linker drop what nobody calls.
    COMPILE_FLAGS: ClassVar[tuple[str, ...]] = (
        *("-std=c99", "-O2", "-g0", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
        "-ffp-contract=off",
    )

    def find(self, tool: str, accept: Callable[[list[str]], str] | None = None) -> list[str]:
        """The command for a tool of ``executables``.

        ``accept`` says what is wrong with a command that is there, or "". Raises ToolchainError that lists
        what was looked for, and how to get it.
        """
        tried: list[str] = []
        for text in self.config.executables.get(tool, ()):
            command = [self._fill(word) for word in split_command(text)]
            where = self._locate(command)
            if where is None:
                tried.append(shlex.join(command))
                continue
            wrong = accept([where, *command[1:]]) if accept else ""
            if not wrong:
                return [where, *command[1:]]
            tried.append(f"{shlex.join(command)} ({wrong})")
        raise ToolchainError(
            f"toolchain {self.name}: no `{tool}` for {self.device.name} ({self.target.target}) is installed",
            detail=f"Looked for: {', '.join(tried) or 'nothing, `executables:` has no such entry'}.",
            hint=self.install_hint(),
        )

    def install_hint(self) -> str:
        """How to get this toolchain for this device."""
        return f"Install it: {self._fill(self.config.install)}." if self.config.install else ""

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment of the commands: the user's, less what changes outputs, in English."""
        kept = {k: v for k, v in os.environ.items() if k not in _DROPPED_ENVIRONMENT}
        return kept | {"LC_ALL": "C"} | {k: self._fill(v) for k, v in self.config.environment.items()}

    @property
    def building_environment(self) -> Mapping[str, str]:
        """The environment, with what depends on where the tools were found."""
        return self.environment

    @property
    def link_mode(self) -> list[str]:
        """What this family's driver is told in each link."""
        return []

    def sysroot(self) -> str:
        """The sysroot of the device or the toolchain's file; "" for the compiler's own."""
        return self.target.sysroot or self._fill(self.config.sysroot)

    def output_of(self, command: Sequence[str]) -> str:
        """What a command prints, or "" if it fails."""
        done = run_tool(command, timeout=60, env=self.environment)
        return done.stdout.strip() if done.returncode == 0 else ""

    @cached_property
    def format(self) -> ObjectFormat:
        """The format of what it makes."""
        return format_for(self.device)

    def _hidden(self, objects: Sequence[Path], keep: Sequence[str], folder: Path) -> Sequence[Path]:
        """Copies of the objects without all that is not to be exported, if the linker would export it."""
        if self.format.linker_hides:
            return objects
        copies = []
        for number, path in enumerate(objects):
            copies.append(folder / f"{number}-{path.name}")
            shutil.copyfile(path, copies[-1])
            self.format.hide_symbols(copies[-1], keep)
        return copies

    def _link(
        self,
        objects: Sequence[Path],
        output: Path,
        options: Sequence[str],
        libraries: Sequence[str],
        what: str,
    ) -> None:
        command = [*self.driver(), *self.link_mode, *options, "-o", str(output.absolute())]
        command += [str(path.absolute()) for path in objects]
        command += [*self.format.libraries(libraries), *self.config.link_flags]
        self._run(command, what)

    def _run(self, command: Sequence[str], what: str, cwd: Path | None = None) -> str:
        return run_checked(
            command,
            what=f"{what} with {self.name}",
            timeout=self.config.timeout,
            hint=f"`edgepack doctor --device {self.device.name}` tries this toolchain out.",
            cwd=cwd,
            env=self.building_environment,
        )

    def _path_maps(self, folder: Path, include: Sequence[Path]) -> list[str]:
        maps = [f"-ffile-prefix-map={path.absolute()}={path.name}" for path in include]
        return [*maps, f"-ffile-prefix-map={folder}=."]

    def _fill(self, text: str) -> str:
        package = self.target.target.replace("_", "-")
        values = {"{python}": sys.executable, "{target}": self.target.target, "{package}": package}
        for key, value in values.items():
            text = text.replace(key, value)
        return text

    def _locate(self, command: Sequence[str]) -> str | None:
        if list(command[:2]) == [sys.executable, "-m"]:
            return sys.executable if importlib.util.find_spec(command[2]) else None
        return find_program(command[0], path=self.environment.get("PATH"))
