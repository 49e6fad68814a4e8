"""The audit of WebAssembly files: what a module needs of the engine and of the page or program around it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.auditor import Auditor, AuditRequest, LinkedFile, ObjectFile
from edgepack.objectfiles.names import check_undefined, within
from edgepack.objectfiles.report import AuditKind, Finding
from edgepack.objectfiles.wasm import sections
from edgepack.objectfiles.wasm.code import features_used
from edgepack.objectfiles.wasm.relocatable import symbols
from edgepack.objectfiles.wasm.sections import WasmError

__all__ = ["MODULE_IMPORTS", "PROGRAM_IMPORTS", "WasmAuditor"]

#: What a module that JavaScript loads may import: the clock of templates/runtime/platform/wasm.c.
MODULE_IMPORTS = ("edgepack.now",)
#: What a program may import.
PROGRAM_IMPORTS = ("wasi_snapshot_preview1.*",)
#: Exports that a module has beside its functions.
_MODULE_EXPORTS = ("memory", "_initialize")
_PROGRAM_EXPORTS = ("memory", "_start")
#: Exports of Emscripten's modules, for the JavaScript beside them.
_EMSCRIPTEN_EXPORTS = (
    *("__*", "stack*", "dynCall_*", "emscripten_*", "_emscripten_*", "main", "malloc", "free", "setThrow"),
    *("pthread_self", "asyncify_*", "establishStackSpace", "invokeEntryPoint"),
)
#: Pages of the largest memory that 32 bits address: 4 GiB.
_ALL_PAGES = 65536
#: Symbols that the linker itself defines.
_LINKER_SYMBOLS = ("__stack_pointer", "__indirect_function_table", "__memory_base", "__table_base")

_FORMAT = "WASM"


class WasmAuditor(Auditor):
    """Audits WebAssembly modules, and the objects that they are linked from."""

    linked_checks: ClassVar[tuple[str, ...]] = ("format", "imports", "exports", "features", "memory")
    object_checks: ClassVar[tuple[str, ...]] = ("format", "undefined symbols", "global symbols", "features")

    def read_linked(self, data: bytes, request: AuditRequest) -> LinkedFile:
        """A module, by its imports, exports and memories, and the instructions of its code."""
        device = self.device
        try:
            imports = [f"{module}.{name}" for module, name, _ in sections.imports(data)]
            exports = sorted(name for name, _ in sections.exports(data))
            used = features_used(data)
            findings = [
                *_imports(imports, device, request.kind),
                *_exports(exports, device, request),
                *_features(used, device),
                *_memory(data, device),
            ]
        except (WasmError, IndexError) as error:
            raise _unreadable(request.file, error) from None
        return LinkedFile(
            format=_FORMAT,
            exported=tuple(exports),
            undefined=tuple(sorted(imports)),
            findings=findings,
            features=tuple(sorted(used)),
        )

    def read_object(self, data: bytes, request: AuditRequest) -> ObjectFile:
        """An object, by the symbols of its linking section and the instructions of its code."""
        try:
            used, found = features_used(data), symbols(data)
        except (WasmError, IndexError) as error:
            raise _unreadable(request.file, error) from None
        ours = [symbol for symbol in found if symbol.defined and not symbol.local]
        return ObjectFile(
            format=_FORMAT,
            defined={symbol.name for symbol in ours},
            visible={symbol.name for symbol in ours if not symbol.hidden},
            wanted={symbol.name for symbol in found if not symbol.defined} - set(_LINKER_SYMBOLS),
            findings=list(_features(used, self.device)),
            features=used,
        )

    def check_missing(self, names: Sequence[str]) -> Iterator[Finding]:
        """Functions of WASI's C library are allowed."""
        return check_undefined(names, self.device, "functions of libc and libm")


def _unreadable(name: str, error: Exception) -> CheckFailedError:
    reason = error if isinstance(error, WasmError) else "it ends too soon"
    return CheckFailedError(f"{name}: format: {reason}; allowed: WebAssembly, version 1")


def _imports(imports: Sequence[str], device: Device, kind: AuditKind) -> Iterator[Finding]:
    memory = ("env.memory",) if device.threads > 1 else ()
    allowed = (*(PROGRAM_IMPORTS if kind == "program" else MODULE_IMPORTS), *memory, *device.audit.needed)
    if bad := [name for name in imports if not within(name, allowed)]:
        yield Finding("imports", ", ".join(bad), _joined(allowed))


def _exports(exports: Sequence[str], device: Device, request: AuditRequest) -> Iterator[Finding]:
    exported = request.exported
    own: tuple[str, ...] = _PROGRAM_EXPORTS if request.kind == "program" else _MODULE_EXPORTS
    if device.os == "emscripten":
        own = ("memory", *_EMSCRIPTEN_EXPORTS)
    needed, allowed = {*exported}, sorted({*own, *exported})
    if device.threads == 1:  # else JavaScript makes the memory
        needed.add("memory")
    if missing := sorted(needed - set(exports)):
        yield Finding("exports", f"no {', '.join(missing)}", _joined(allowed))
    if more := [name for name in exports if not within(name, allowed)]:
        yield Finding("exports", ", ".join(more), _joined(allowed))


def _features(used: dict[str, int], device: Device) -> Iterator[Finding]:
    allowed = sorted(feature[1:] for feature in device.llvm.features if feature.startswith("+"))
    if bad := sorted(set(used) - set(allowed)):
        found = ", ".join(f"{name} ({used[name]} instructions)" for name in bad)
        yield Finding("features", found, _joined(allowed))


def _memory(data: bytes, device: Device) -> Iterator[Finding]:
    """One memory, which can grow to hold whatever arena and params need: the module's own, or, for threads,
    one that is shared and imported."""
    threads = device.threads > 1
    found = sections.imported_memories(data) if threads else sections.memories(data)
    if len(found) != 1:
        yield Finding("memory", f"{len(found)} memories", f"one{', imported' if threads else ' of its own'}")
    for memory in found:
        if memory.shared != threads:
            shared = "a memory that is shared", "a memory of one thread"
            yield Finding("memory", shared[threads], shared[not threads])
        if memory.wide:
            yield Finding("memory", "64-bit addresses", "32-bit addresses")
        if memory.maximum is not None and memory.maximum < _ALL_PAGES:
            found_size = f"a maximum of {memory.maximum * 64} KiB"
            yield Finding("memory", found_size, "none, or 4 GiB")


def _joined(names: Collection[str]) -> str:
    return ", ".join(names)
