"""Runs a WASI program with the Python package wasmtime:

    wasmtime_wasi.py PROGRAM.wasm FOLDER ARGV0 [ARGUMENT...]

The program may open files in FOLDER, which is its current one, and nothing else. A process of its own, so
that a program that never ends can be dealt with. Imports nothing of edgepack.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["main"]


def main(path: str, folder: str, arguments: list[str]) -> int:
    """The program's exit code; 134 after a trap, whose reason goes to stderr."""
    # The file that edgepack calls runners/wasmtime.py must not be found in the place of the package.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    import wasmtime

    engine = wasmtime.Engine()
    wasi = wasmtime.WasiConfig()
    wasi.argv = arguments
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.preopen_dir(folder, ".")
    store = wasmtime.Store(engine)
    store.set_wasi(wasi)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    try:
        instance = linker.instantiate(store, wasmtime.Module.from_file(engine, path))
        start = instance.exports(store)["_start"]
        assert isinstance(start, wasmtime.Func)
        start(store)
    except wasmtime.ExitTrap as stop:
        return stop.code
    except wasmtime.WasmtimeError as error:  # a Trap is none, but says as much
        print(error, file=sys.stderr)
        return 134
    except wasmtime.Trap as trap:
        print(trap, file=sys.stderr)
        return 134
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
