"""zig: clang, lld and the libc of every target, installed by pip."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.pipeline.compiler_cache import compiler_cache
from edgepack.system.deadline import TICK, check_time
from edgepack.system.process import background
from edgepack.system.progress import Progress
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.base import DISCARD_DEBUG, Toolchain
from edgepack.toolchains.zig_ios import libc_file
from edgepack.toolchains.zig_program import zig_started_directly

__all__ = ["OPTIMISED_LIBRARIES", "ZigToolchain"]


#: zig builds compiler-rt as the link is optimised. Without this it does so for debugging, and builds the
#: runtime of its sanitizers too, in up to five times the time; nothing here calls it in a loop.
OPTIMISED_LIBRARIES = "-Os"

#: compiler-rt's functions are in libSystem (zig's libSystem.tbd lists them), so none is built for the link.
_FOUND_IN_THE_SYSTEM = ("-rtlib=none",)


#: Seconds after which a temporary file of zig's is nobody's: no command may run for longer (`timeout:` of a
#: toolchain's file).
_ABANDONED = 86_400.0


def _without_leftovers(cache: Path) -> Path:
    """The cache without what killed zigs left in its ``tmp``: they do not look for it themselves."""
    now = time.time()
    with suppress(OSError):
        for path in (cache / "tmp").iterdir():
            with suppress(OSError):
                if now - path.lstat().st_mtime < _ABANDONED:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
    return cache


#: Systems whose C library is hundreds of files: MinGW's takes 53 s of one CPU, WASI's 26 s, glibc's 3 s.
_MANY_SOURCES = ("windows", "wasi")

#: How `zig build-exe` calls what `zig cc` makes of a link's -O. Its libraries are built so, and with
#: -fstrip as it makes of -s.
_MODES = {"-Os": "-OReleaseSmall", "-O2": "-OReleaseFast"}

#: The first links that came to their end in this process, in which cache: what they built stays there as long
#: as the process holds it (``pipeline/compiler_cache.py``).
_PREPARED: set[tuple[str, ...]] = set()

#: What is said once it takes longer than so many seconds, and how long until the link is tried anyway.
_MOMENT, _PATIENCE = 1.0, 900.0


class ZigToolchain(Toolchain):
    """``zig cc``. Its first link for a target builds libc and compiler-rt (5 to 60 s), kept in a cache."""

    family = "zig"
    _preparing: Callable[[], bool] | None = None

    @cached_property
    def _zig(self) -> list[str]:
        return zig_started_directly(self.find("zig"))

    @cached_property
    def environment(self) -> dict[str, str]:
        # Without these zig writes beside the sources, or fails where there is no home.
        cache = str(_without_leftovers(compiler_cache()))
        return {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache, **super().environment}

    @cached_property
    def building_environment(self) -> Mapping[str, str]:
        if self.device.os != "ios":
            return self.environment
        # Written as ZON, or as JSON by older versions.
        found = re.search(r'lib_dir"?\s*[=:]\s*"([^"]+)"', self.output_of([*self._zig, "env"]))
        if found is None:
            raise ToolchainError(f"toolchain {self.name}: `zig env` does not say where zig's library is")
        library = Path(found.group(1)).absolute()  # it is relative where zig lies below the working directory
        return {**self.environment, "ZIG_LIBC": str(libc_file(library))}

    def executable(self) -> list[str]:
        return self._zig

    def version(self) -> str:
        """``zig 0.17.0``."""
        return f"zig {self._run([*self._zig, 'version'], 'asking for the version').strip()}"

    def driver(self) -> list[str]:
        # Without -target, zig builds for the CPU of the machine it runs on. Without -fno-sanitize, it adds
        # checks of undefined behaviour that need a runtime.
        cpu = self.target.cpu or "baseline"
        command = [*self._zig, "cc", "-target", self.target.target, f"-mcpu={cpu}", "-fno-sanitize=all"]
        if root := self.sysroot():
            command.append(f"--sysroot={root}")
        return [*command, *self.config.flags, *self.target.flags]

    @property
    def brings_headers(self) -> bool:
        return not self.sysroot()

    @property
    def link_mode(self) -> list[str]:
        # Of firmware the symbols are needed, to know its stack; without -g zig leaves them out.
        if self.device.bare_metal:
            return [OPTIMISED_LIBRARIES, "-g"]
        found = _FOUND_IN_THE_SYSTEM if self.device.os == "macos" else ()
        return [OPTIMISED_LIBRARIES, *found]

    @property
    def builds_first(self) -> str:
        if self.device.os not in _MANY_SOURCES or self.sysroot():
            return ""
        return f"{self.target.target} {self.target.cpu or 'baseline'}"

    @contextmanager
    def preparation(self) -> Iterator[None]:
        """Builds libc and compiler-rt by linking something, once: they depend on the target only."""
        if self.device.bare_metal:
            yield
            return
        with temporary_folder() as name:
            folder = Path(name)
            command, environment = self._first_link(folder), self.building_environment
            what = environment["ZIG_GLOBAL_CACHE_DIR"], *(word.replace(str(folder), "") for word in command)
            if what in _PREPARED:
                yield
                return
            (folder / "empty.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
            with background(command, cwd=folder, env=environment) as running:
                self._preparing = running
                try:
                    yield
                finally:
                    self._preparing = None
                    if not running():
                        _PREPARED.add(what)

    def wait_until_prepared(self, progress: Progress) -> None:
        if self._preparing is None:
            return
        began, said = time.monotonic(), False
        while self._preparing() and time.monotonic() < began + _PATIENCE:
            check_time()
            if not said and time.monotonic() > began + _MOMENT:
                usual = ", which takes about a minute" if self.device.os in _MANY_SOURCES else ""
                progress("C library", f"zig builds it for {self.target.target}, once on this machine{usual}")
                said = True
            time.sleep(TICK / 4)

    def _first_link(self, folder: Path) -> list[str]:
        """The command that links ``empty.c``."""
        program = "program" in self.device.artifacts
        linked = self.format.program() if program else self.format.shared(["main"], "empty", folder)
        linked = [*self.link_mode, *linked]
        if self.builds_first:
            # What `zig cc` would build, and finds then. But that takes no -j, without which zig compiles one
            # file less at a time than there are CPUs: one on two.
            options = ["-target", self.target.target, f"-mcpu={self.target.cpu or 'baseline'}"]
            mode = next(_MODES[one] for one in reversed(linked) if one in _MODES)
            jobs = f"-j{(os.cpu_count() or 1) + 2}"
            return [*self._zig, "build-exe", *options, mode, "-fstrip", "-lc", jobs, "empty.c"]
        return [*self.driver(), *linked, "empty.c", "-o", "empty"]

    def archiver(self) -> list[str]:
        return [*self._zig, "ar"]

    def strip_debug(self, source: Path, output: Path) -> None:
        if self.format.strip_debug(source, output):
            return
        if self.device.object_format == "wasm":
            command = [*self._zig, "wasm-ld", "-r", "--strip-debug", str(source), "-o", str(output)]
            self._run(command, f"stripping {source.name}")
            return
        # lld ignores --strip-debug with -r, and zig's objcopy takes only linked files.
        command = [*self._zig, "ld.lld", "-r", str(DISCARD_DEBUG), str(source), "-o", str(output)]
        self._run(command, f"stripping {source.name}")
