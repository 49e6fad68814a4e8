"""The audit of WebAssembly files: what a module needs of the engine and of the page or program around it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles import wasm_sections
from edgepack.objectfiles.objects import ObjectFile, check_objects
from edgepack.objectfiles.report import AuditKind, AuditReport, Finding, disallowed_symbols, within
from edgepack.objectfiles.wasm_code import features_used
from edgepack.objectfiles.wasm_sections import WasmError
from edgepack.objectfiles.wasm_symbols import symbols

__all__ = ["MODULE_IMPORTS", "PROGRAM_IMPORTS", "check"]

#: What a module that JavaScript loads may import: the clock of templates/runtime/platform/wasm.c.
MODULE_IMPORTS = ("edgepack.now",)
#: What a program may import.
PROGRAM_IMPORTS = ("wasi_snapshot_preview1.*",)
#: Exports that a module has beside its functions.
_MODULE_EXPORTS = ("memory", "_initialize")
_PROGRAM_EXPORTS = ("memory", "_start")
#: And of Emscripten's, for the JavaScript beside them.
_EMSCRIPTEN_EXPORTS = (
    *("__*", "stack*", "dynCall_*", "emscripten_*", "_emscripten_*", "main", "malloc", "free", "setThrow"),
    *("pthread_self", "asyncify_*", "establishStackSpace", "invokeEntryPoint"),
)
#: Pages of the largest memory that 32 bits address: 4 GiB.
_ALL_PAGES = 65536
#: Symbols that the linker itself defines.
_LINKER_SYMBOLS = ("__stack_pointer", "__indirect_function_table", "__memory_base", "__table_base")

_LINKED_CHECKS = ("format", "imports", "exports", "features", "memory")
_OBJECT_CHECKS = ("format", "undefined symbols", "global symbols", "features")


def check(
    path: Path, device: Device, kind: AuditKind, exported: tuple[str, ...]
) -> tuple[AuditReport, list[Finding]]:
    """What is in the file, and what of it is not allowed."""
    if kind in {"static", "object"}:
        return _check_objects(path, device, kind, exported)
    try:
        return _check_linked(path, device, kind, exported)
    except (WasmError, IndexError) as error:
        raise _unreadable(path.name, error) from None


def _check_linked(
    path: Path, device: Device, kind: AuditKind, exported: tuple[str, ...]
) -> tuple[AuditReport, list[Finding]]:
    data = path.read_bytes()
    imports = [f"{module}.{name}" for module, name, _ in wasm_sections.imports(data)]
    exports = sorted(name for name, _ in wasm_sections.exports(data))
    used = features_used(data)
    findings = [
        *_imports(imports, device, kind),
        *_exports(exports, exported, device, kind),
        *_features(used, device),
        *_memory(data, device),
    ]
    report = AuditReport(
        file=path.name,
        kind=kind,
        format="WASM",
        machine=device.arch,
        exported=tuple(exports),
        undefined=tuple(sorted(imports)),
        features=tuple(sorted(used)),
        checks=_LINKED_CHECKS,
    )
    return report, findings


def _check_objects(
    path: Path, device: Device, kind: AuditKind, exported: tuple[str, ...]
) -> tuple[AuditReport, list[Finding]]:
    return check_objects(
        path,
        device,
        kind,
        exported,
        lambda data, name: _read(data, name, device),
        undefined=lambda names: _undefined(names, device),
        checks=_OBJECT_CHECKS,
    )


def _read(data: bytes, name: str, device: Device) -> ObjectFile:
    try:
        used, found = features_used(data), symbols(data)
    except (WasmError, IndexError) as error:
        raise _unreadable(name, error) from None
    ours = [symbol for symbol in found if symbol.defined and not symbol.local]
    return ObjectFile(
        format="WASM",
        defined={symbol.name for symbol in ours},
        visible={symbol.name for symbol in ours if not symbol.hidden},
        wanted={symbol.name for symbol in found if not symbol.defined} - set(_LINKER_SYMBOLS),
        findings=list(_features(used, device)),
        features=used,
    )


def _undefined(names: Sequence[str], device: Device) -> Iterator[Finding]:
    if bad := disallowed_symbols(device, names):
        yield Finding("undefined symbols", ", ".join(bad), "functions of libc and libm")


def _unreadable(name: str, error: Exception) -> CheckFailedError:
    reason = error if isinstance(error, WasmError) else "it ends too soon"
    return CheckFailedError(f"{name}: format: {reason}; allowed: WebAssembly, version 1")


def _imports(imports: Sequence[str], device: Device, kind: AuditKind) -> Iterator[Finding]:
    allowed = (*(PROGRAM_IMPORTS if kind == "program" else MODULE_IMPORTS), *device.audit.needed)
    if bad := [name for name in imports if not within(name, allowed)]:
        yield Finding("imports", ", ".join(bad), _joined(allowed))


def _exports(
    exports: Sequence[str], exported: Collection[str], device: Device, kind: AuditKind
) -> Iterator[Finding]:
    own: tuple[str, ...] = _PROGRAM_EXPORTS if kind == "program" else _MODULE_EXPORTS
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
    found = wasm_sections.imported_memories(data) if threads else wasm_sections.memories(data)
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
