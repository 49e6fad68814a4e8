"""The audit of WebAssembly: each check is made to fail by a module or object that differs in one thing."""

from __future__ import annotations

from pathlib import Path

import pytest
import wasmtime

from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.report import AuditKind, AuditReport
from edgepack.objectfiles.wasm import sections
from edgepack.objectfiles.wasm.code import features_used
from edgepack.objectfiles.wasm.relocatable import hide_symbols, symbols
from edgepack.toolchains import resolve

DEVICE = "wasm32-wasi"
MEMORY = '(memory (export "memory") 2)'
GOOD = f'(module {MEMORY} (func (export "net") (result i32) (i32.const 1)))'
C = "int net(int x);\nint helper(int x);\nint missing(int x);\n"


@pytest.fixture(scope="module")
def device() -> Device:
    return load_device(DEVICE)


def check(text: str, folder: Path, kind: AuditKind = "shared", device: str | Device = DEVICE) -> AuditReport:
    path = folder / "net.wasm"
    path.write_bytes(wasmtime.wat2wasm(text))
    device = load_device(device) if isinstance(device, str) else device
    return audit(path, device, kind=kind, exported=() if kind == "program" else ("net",))


def test_a_good_module_passes(tmp_path: Path) -> None:
    report = check(GOOD, tmp_path)
    assert (report.format, report.machine, report.exported) == ("WASM", "wasm32", ("memory", "net"))
    assert "features" in report.checks


def body(instructions: str, more: str = "") -> str:
    return f'(module {MEMORY} {more} (func (export "net") {instructions}))'


LOAD = "(i32.const 0)"
BAD = {
    "imports": (
        '(module (import "env" "expf" (func)) (memory (export "memory") 1) (func (export "net")))',
        r"imports: found env\.expf; allowed: edgepack\.now",
    ),
    "imported memory": (
        '(module (import "env" "memory" (memory 1)) (export "memory" (memory 0)) (func (export "net")))',
        r"imports: found env\.memory; allowed",
    ),
    "no export": (f"(module {MEMORY})", "exports: found no net; allowed: .*memory, net"),
    "more exports": (
        f'(module {MEMORY} (func (export "net")) (func (export "internal")))',
        "exports: found internal; allowed",
    ),
    "no memory": ('(module (func (export "memory")) (func (export "net")))', "memory: found 0 memories"),
    "memory that cannot grow": (
        '(module (memory (export "memory") 2 16) (func (export "net")))',
        "memory: found a maximum of 1024 KiB; allowed: none, or 4 GiB",
    ),
    "shared memory": (
        '(module (memory (export "memory") 2 65536 shared) (func (export "net")))',
        "memory: found a memory that is shared; allowed: a memory of one thread",
    ),
    "64-bit memory": (
        '(module (memory (export "memory") i64 2) (func (export "net")))',
        "memory: found 64-bit addresses; allowed: 32-bit",
    ),
    "relaxed SIMD": (
        body(f"(drop (f32x4.relaxed_madd {' '.join(['(f32x4.splat (f32.const 1))'] * 3)}))"),
        r"features: found relaxed-simd \(1 instructions\); allowed: .*simd128",
    ),
    "atomics": (body(f"(drop (i32.atomic.load {LOAD}))"), r"features: found atomics \(1 instructions\)"),
    "fence": (body("(atomic.fence)"), r"features: found atomics \(1 instructions\)"),
    "tail calls": (body("(return_call 0)"), r"features: found tail-call"),
    "exceptions": (body("(throw 0)", "(tag)"), r"features: found exception-handling"),
    "references": (body("(drop (ref.null func))"), r"features: found reference-types"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_allowed_is_found(name: str, tmp_path: Path) -> None:
    text, message = BAD[name]
    with pytest.raises(CheckFailedError, match=rf"^net\.wasm: {message}"):
        check(text, tmp_path)


def test_simd_is_refused_where_the_device_has_none(tmp_path: Path) -> None:
    device = load_device(DEVICE)
    scalar = device.model_copy(update={"llvm": device.llvm.model_copy(update={"features": ("+sign-ext",)})})
    text = body(f"(drop (v128.load {LOAD}))")
    check(text, tmp_path)
    with pytest.raises(
        CheckFailedError, match=r"features: found simd128 \(1 instructions\); allowed: sign-ext"
    ):
        check(text, tmp_path, device=scalar)


def test_a_program_imports_wasi_and_nothing_else(tmp_path: Path) -> None:
    start = f'{MEMORY} (func (export "_start"))'
    wasi = '(import "wasi_snapshot_preview1" "fd_write" (func))'
    check(f"(module {wasi} {start})", tmp_path, "program")
    with pytest.raises(CheckFailedError, match=r"imports: found edgepack\.now; allowed: wasi_snapshot"):
        check(f'(module (import "edgepack" "now" (func)) {start})', tmp_path, "program")


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + bytes(60), b"\0asm\x02\0\0\0", "cut", "unknown"])
def test_what_is_no_webassembly_is_refused(content: bytes | str, device: Device, tmp_path: Path) -> None:
    good = bytes(wasmtime.wat2wasm(GOOD))
    if content == "cut":
        content = good[:-3]
    elif content == "unknown":
        content = good.replace(b"\x41\x01\x0b", b"\xf1\x01\x0b")  # i32.const 1, end
    assert isinstance(content, bytes)
    path = tmp_path / "net.wasm"
    path.write_bytes(content)
    with pytest.raises(CheckFailedError, match=r"^net\.wasm: format: .*allowed: WebAssembly, version 1"):
        audit(path, device, kind="shared", exported=["net"])


def test_every_instruction_is_walked_over_to_the_next() -> None:
    """Immediates of every kind, each followed by the one atomic instruction that must be found."""
    fence = "(atomic.fence)"
    v128 = "(v128.const i64x2 1 2)"
    lines = [
        "(drop (i64.const -1234567890123))",
        "(drop (f32.const 1.5)) (drop (f64.const 2.5))",
        "(block (br_table 0 0 0 (i32.const 1)))",
        "(drop (call_indirect (type 0) (i32.const 0)))",
        "(drop (select (result i32) (i32.const 1) (i32.const 2) (i32.const 0)))",
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const 2)) (memory.copy (i32.const 0) (i32.const 1) "
        "(i32.const 2)) (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 0)) (data.drop 0)",
        "(table.set (i32.const 0) (ref.func 0)) (drop (table.size))",
        "(drop (i32.trunc_sat_f32_s (f32.const 1)))",
        f"(drop (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 {v128} {v128}))",
        f"(drop (f32x4.extract_lane 3 {v128}))",
        f"(drop (v128.load8_lane offset=300 3 (i32.const 0) {v128}))",
        "(drop (i32.load offset=70000 (i32.const 0)))",
        "(drop (memory.grow (memory.size)))",
        "(drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1)))",
        "(block $caught (try_table (catch 0 $caught) (catch_all $caught)))",
    ]
    code = fence.join(lines) + fence
    text = (
        '(module (type (func (result i32))) (memory 1 1 shared) (table 1 funcref) (tag) (data "x") '
        f"(func (type 0) (local i32 f64) {code} (i32.const 1)) (elem declare func 0))"
    )
    used = features_used(bytes(wasmtime.wat2wasm(text)))
    assert used["atomics"] == len(lines) + 1
    assert used["bulk-memory"] == 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects with a function ``net`` that calls a static, a global and an undefined one."""
    folder = tmp_path_factory.mktemp("objects")
    toolchain = resolve(load_device(DEVICE))
    visible = '__attribute__((visibility("default"))) '
    (folder / "net.c").write_text(
        f"{C}const int table[3] = {{1, 2, 3}};\nstatic int own(int x) {{ return x + table[x]; }}\n"
        f"{visible}int helper(int x) {{ return own(x) * 3; }}\n"
        f"{visible}int net(int x) {{ return helper(x) + missing(x); }}\n"
    )
    (folder / "tvm.c").write_text(f"{visible}int TVMThing(void);\nint TVMThing(void) {{ return 1; }}\n")
    for name in ("net", "tvm"):
        toolchain.compile_c(folder / f"{name}.c", folder / f"{name}.o")
    return folder


def test_symbols_of_an_object_are_read(built: Path) -> None:
    found = {symbol.name: symbol for symbol in symbols((built / "net.o").read_bytes())}
    assert found["net"].defined and not found["net"].hidden
    assert found["table"].defined and found["table"].hidden  # -fvisibility=hidden
    assert not found["missing"].defined


def test_all_but_the_kept_symbols_are_hidden(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.o"
    path.write_bytes((built / "net.o").read_bytes())
    before = len(path.read_bytes())
    hide_symbols(path, {"net"})
    found = {symbol.name: symbol for symbol in symbols(path.read_bytes()) if symbol.defined}
    assert found["helper"].hidden and not found["net"].hidden
    assert len(path.read_bytes()) == before


def test_only_an_object_can_be_hidden_in(tmp_path: Path) -> None:
    path = tmp_path / "net.wasm"
    path.write_bytes(wasmtime.wat2wasm(GOOD))
    with pytest.raises(ToolchainError, match=r"net\.wasm: is not a WebAssembly object: is linked already"):
        hide_symbols(path, {"net"})


def test_undefined_symbols_of_an_object_are_found(built: Path, device: Device) -> None:
    with pytest.raises(CheckFailedError, match=r"net\.o: undefined symbols: found missing; allowed"):
        audit(built / "net.o", device, kind="object")


def test_symbols_of_tvm_are_found(built: Path, device: Device) -> None:
    with pytest.raises(CheckFailedError, match=r"tvm\.o: global symbols: found TVMThing; allowed"):
        audit(built / "tvm.o", device, kind="object")


def test_a_static_library_shows_its_exports_only(built: Path, device: Device, tmp_path: Path) -> None:
    allowed = device.audit.model_copy(update={"symbols": ("missing",)})
    device = device.model_copy(update={"audit": allowed})
    toolchain = resolve(device)
    path = tmp_path / "libnet.a"
    toolchain.archive([built / "net.o"], path, exported=["net"])
    report = audit(path, device, kind="static", exported=["net"])
    assert (report.exported, report.undefined, report.members) == (("net",), ("missing",), ("net.o",))
    toolchain.archive([built / "net.o"], path)
    with pytest.raises(CheckFailedError, match=r"libnet\.a: global symbols: found helper; allowed: net"):
        audit(path, device, kind="static", exported=["net"])


def test_an_undefined_function_fails_the_link(built: Path, device: Device, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"linking net\.wasm") as caught:
        resolve(device).link_shared(
            [built / "net.o"], tmp_path / "net.wasm", exported=["net"], soname="net.wasm"
        )
    assert "undefined symbol: missing" in caught.value.detail


def test_what_tvm_exports_asks_for_what_it_lacks(built: Path, tmp_path: Path) -> None:
    fcompile = resolve(load_device(DEVICE)).cross_compiler()
    output = tmp_path / f"lib.{fcompile.output_format}"
    fcompile(str(output), [str(built / "net.o"), str(built / "tvm.o")])
    data = output.read_bytes()
    assert ("env", "missing", "function") in sections.imports(data)
    assert {"net", "TVMThing"} <= {name for name, _ in sections.exports(data)}


def test_sections_of_a_linked_file_are_counted() -> None:
    data = bytes(wasmtime.wat2wasm(GOOD))
    assert sections.code_bytes(data) == len(b"\x01\x04\0\x41\x01\x0b")
