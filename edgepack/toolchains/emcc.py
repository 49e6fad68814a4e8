"""Emscripten: clang with a libc for pages, and JavaScript that puts it to work.

A linked module is two or three files: the WebAssembly, which is checked, and the JavaScript beside it that
loads it (``.mjs``; ``.cjs`` of the program; ``.worker.js`` with threads).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from edgepack.objectfiles.wasm.format import STACK_BYTES
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.base import Toolchain

__all__ = ["EmccToolchain"]

#: What stands before the scripts that Emscripten writes, by their suffix.
_HEADS = {
    ".mjs": Path(__file__).with_name("emscripten") / "module_head.mjs",
    ".cjs": Path(__file__).with_name("emscripten") / "program_head.cjs",
}


class EmccToolchain(Toolchain):
    """``emcc``. Its first use builds its libc (up to a minute), kept in its own cache."""

    family = "emcc"

    @cached_property
    def _emcc(self) -> list[str]:
        return self.find("cc")

    def executable(self) -> list[str]:
        return self._emcc

    def version(self) -> str:
        """``emcc 3.1.6``."""
        words = self._run([*self._emcc, "--version"], "asking for the version").split()
        return f"emcc {next((word for word in words if word[:1].isdigit()), '')}".rstrip()

    def driver(self) -> list[str]:
        threads = ["-pthread"] if self.device.threads > 1 else []
        return [*self._emcc, *threads, *self.config.flags, *self.target.flags]

    def archiver(self) -> list[str]:
        return self.find("ar")

    def strip_debug(self, source: Path, output: Path) -> None:
        command = [*self._emcc, "-r", "-Wl,--strip-debug", str(source), "-o", str(output)]
        self._run(command, f"stripping {source.name}")

    def link_shared(
        self,
        objects: Sequence[Path],
        output: Path,
        *,
        exported: Sequence[str],
        soname: str,
        libraries: Sequence[str] = (),
    ) -> None:
        """Link a module, and the ES module whose default export loads it: ``output`` with ``.mjs``."""
        options = [
            *(
                "--no-entry",
                "-sMODULARIZE",
                "-sEXPORT_ES6",
                "-sENVIRONMENT=web,worker,node",
                "-sFILESYSTEM=0",
            ),
            f"-sEXPORTED_FUNCTIONS={','.join(f'_{name}' for name in exported)}",
        ]
        if self.device.threads > 1:
            # Who starts the module says how many threads there are (templates/web/emscripten.js).
            pool = f'Module["edgepackWorkers"]??{self.device.threads - 1}'
            options += [f"-sPTHREAD_POOL_SIZE={pool}", "-sEXPORTED_RUNTIME_METHODS=PThread"]
        self._link_with_script(objects, output, options, libraries, ".mjs", ".mjs")

    def link_program(
        self,
        objects: Sequence[Path],
        output: Path,
        *,
        libraries: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Link a program for node, with the files of the machine: ``output`` with ``.cjs`` runs it."""
        options = ["-sNODERAWFS", "-sEXIT_RUNTIME"]
        # The thread that starts others must not wait for them: main runs in one of its own.
        threads = ["-sENVIRONMENT=node,worker", "-sPROXY_TO_PTHREAD"]
        threads.append(f"-sPTHREAD_POOL_SIZE={self.device.threads}")
        options += threads if self.device.threads > 1 else ["-sENVIRONMENT=node"]
        self._link_with_script(objects, output, [*options, *flags], libraries, ".js", ".cjs")

    def _link_with_script(
        self,
        objects: Sequence[Path],
        output: Path,
        options: Sequence[str],
        libraries: Sequence[str],
        made: str,
        wanted: str,
    ) -> None:
        """``options`` and what both kinds need; the script is made with one suffix and named with another."""
        memory = [f"-sTOTAL_STACK={STACK_BYTES}", "-sALLOW_MEMORY_GROWTH", "-sMAXIMUM_MEMORY=4GB"]
        if self.device.threads > 1:
            # JavaScript that reads memory which may grow is slower; the model's code is not. A page starts no
            # thread at once: a pool of them is there before any is asked for (PTHREAD_POOL_SIZE).
            memory.append("-Wno-pthreads-mem-growth")
        options = ["-O2", *memory, *options]
        with temporary_folder() as folder:
            script = Path(folder, output.stem + made)
            self._link(objects, script, options, libraries, f"linking {output.name}")
            for path in sorted(Path(folder).iterdir()):
                name = output.stem + wanted if path == script else path.name
                target = output if path.suffix == ".wasm" else output.parent / name
                head = _HEADS[wanted].read_bytes() if path == script else b""
                target.write_bytes(head + path.read_bytes())
