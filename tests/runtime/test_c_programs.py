"""The C tests: each program is built plainly and with sanitizers; each of its tests is a process."""

from __future__ import annotations

import hashlib
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgepack.render.sources import kernels_object
from tests.runtime.conftest import Build
from workbench.mini import ARCH, VARIANTS, WARNINGS, MiniBundle, make_sources, run

HERE = Path(__file__).parent

RUNS = (
    "numbers",
    "sleeping_pool",
    "affinity",
    "typed_header",
    "descriptor",
    "kernel_failure",
    "profile",
    "many_sessions",
    "shared_session",
    "caller_threads",
    "absent_threads",
    "caller_params",
    "denormals_flushed",
)
STATUSES = (
    "params_files",
    "flipped_bytes",
    "params_tables",
    "cpu_features",
    "variants",
    "params_memory",
    "libraries",
    "backends",
    "opening",
    "closed_models",
    "options",
    "buffers",
    "sentences",
)
MEMORY = (
    "callers_memory",
    "callers_threads",
    "one_allocation",
    "allocator_hooks",
    "thread_failure",
    "refusals",
)
PHASES = ("around", "unclaimed", "late", "branches", "end")
WRAPPED = (
    *("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "pthread_create"),
    *(
        "pthread_mutex_init",
        "pthread_cond_init",
        "mmap64",
        "clock_gettime",
        "sched_getaffinity",
        "pthread_sigmask",
    ),
)

Program = Callable[[str, str], tuple[Path, MiniBundle]]


def link(bundle: MiniBundle, variant: str, source: str, extra: tuple[str, ...] = ()) -> Path:
    """Builds a C test with the bundle's static library."""
    cc, flags = VARIANTS[variant]
    program = bundle.root / "objects" / Path(source).stem
    if not program.exists():
        run(
            [
                *(*cc, *WARNINGS, *flags, *bundle.includes, HERE / source, bundle.static),
                *("-o", program, "-lpthread", "-lm", *extra),
            ]
        )
    return program


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", RUNS)
def test_runs(build: Build, variant: str, name: str) -> None:
    bundle = build(variant)
    run([link(bundle, variant, "runs.c"), name, bundle.root])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PHASES)
def test_phases(build: Build, variant: str, name: str) -> None:
    """Of a program of which the runtime is a part."""
    bundle = build(variant)
    cc, flags = VARIANTS[variant]
    program = bundle.root / "objects" / "phases"
    if not program.exists():
        kernels = bundle.root / kernels_object(0, 1)
        sources = [HERE / "phases.c", kernels, "-o", program, "-lpthread", "-lm"]
        run([*cc, *WARNINGS, *flags, *bundle.includes, *sources])
    run([program, name, bundle.root])


@pytest.mark.skipif(
    sys.platform != "linux" or ARCH != "x86_64", reason="tiles are of x86-64, Linux permits them"
)
def test_tiles_are_used_where_cpu_and_system_allow_it(build: Build) -> None:
    bundle = build("address")
    cc, flags = VARIANTS["address"]
    program = bundle.root / "objects" / "tiles"
    kernels = bundle.root / kernels_object(0, 1)
    sources = [HERE / "tiles.c", kernels, "-o", program, "-lpthread", "-lm"]
    run([*cc, *WARNINGS, *flags, *bundle.includes, *sources])
    run([program])


@pytest.mark.parametrize("variant", ["gcc", "address"])
def test_embedded_params(build: Build, variant: str) -> None:
    bundle = build(variant, "embed")
    program = link(bundle, variant, "runs.c")
    run([program, "embedded", bundle.root])
    run([program, "numbers", bundle.root])  # a file can still be given


@pytest.mark.parametrize("variant", ["gcc", "address"])
def test_a_run_without_a_session(build: Build, variant: str, tmp_path: Path) -> None:
    bundle = build(variant, "embed")
    program = link(bundle, variant, "direct.c")
    run([program, "numbers", bundle.root])
    run([program, "refused", bundle.root])
    other = make_sources(tmp_path / "other", mode="embed")
    make_sources(tmp_path / "else", seed=2).params.replace(other.params)
    cc, flags = VARIANTS[variant]
    other.build(cc=cc, flags=flags, shared=False, program=False)
    run([link(other, variant, "direct.c"), "others_params", other.root])


def test_large_arena(tmp_path: Path) -> None:
    """One that begins on a page, in memory for huge pages."""
    cc, flags = VARIANTS["address"]
    bundle = make_sources(tmp_path / "bundle", unused_arena=3 << 20)
    bundle.build(cc=cc, flags=flags, shared=False, program=False)
    run([link(bundle, "address", "runs.c"), "numbers", bundle.root])


def test_strict_mathematics_has_denormals(tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle", keep_denormals=True).build(shared=False, program=False)
    run([link(bundle, "gcc", "runs.c"), "denormals_kept", bundle.root])


@pytest.mark.parametrize("variant", ["gcc", "address"])
@pytest.mark.parametrize("name", STATUSES)
def test_statuses(build: Build, variant: str, name: str, tmp_path: Path) -> None:
    bundle = build(variant)
    program = link(bundle, variant, "statuses.c")
    root = tmp_path / "bundle"
    shutil.copytree(bundle.root / "test", root / "test")
    shutil.copytree(bundle.root / "params", root / "params")
    write_bad_params(bundle.params, root / "bad", tmp_path)
    run([program, name, root])


@pytest.mark.parametrize("name", MEMORY)
def test_memory(build: Build, name: str) -> None:
    bundle = build("gcc")
    wrap = tuple(f"-Wl,--wrap={function}" for function in WRAPPED)
    run([link(bundle, "gcc", "memory.c", wrap), name, bundle.root])


def write_bad_params(good: Path, folder: Path, tmp_path: Path) -> None:
    """Params files that are named after their defect."""
    folder.mkdir()
    data = good.read_bytes()

    def patched(offset: int, form: str, value: int) -> bytes:
        changed = bytearray(data)
        struct.pack_into(form, changed, offset, value)
        return bytes(changed)

    def resealed(offset: int, form: str, value: int) -> bytes:
        """With the header's own hash set right."""
        changed = bytearray(patched(offset, form, value))
        changed[80:112] = bytes(32)
        changed[80:112] = hashlib.sha256(changed[: struct.unpack_from("<I", changed, 12)[0]]).digest()
        return bytes(changed)

    other = make_sources(tmp_path / "other", seed=2)
    entry = 128 + 72  # the second tensor's
    files = {
        "other_model": other.params.read_bytes(),
        "not_params": b"PK\x03\x04" + data,
        "empty": b"",
        "cut_in_header": data[:100],
        "cut_in_data": data[:-1],
        "trailing_byte": data + b"\0",
        "next_version": patched(8, "<I", 2),
        "offset_beyond_file": patched(24, "<Q", 1 << 40),
        "table_beyond_header": patched(40, "<I", 0xFFFFFFFF),
        "name_beyond": resealed(entry, "<I", 0xFFFFFFFF),
        "names_end_beyond": resealed(entry + 4, "<I", 0xFFFFFFFF),
        "unknown_dtype": resealed(entry + 8, "<I", 14),
        "rank_beyond": resealed(entry + 12, "<I", 0xFFFFFFFF),
        "shape_before": resealed(entry + 16, "<I", 8),
        "data_beyond": resealed(entry + 24, "<Q", 1 << 63),
        "data_misaligned": resealed(entry + 24, "<Q", 1),
    }
    for name, content in files.items():
        (folder / f"{name}.params").write_bytes(content)
