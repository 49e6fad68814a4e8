"""The C compiles without a warning for every kind of system and CPU: with gcc, clang, and, for other
systems than this one, zig's clang. Only what is native is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgepack.plan.target import CPU_FEATURES
from edgepack.render.sources import LOADER_SOURCES, MODEL_SOURCE
from edgepack.toolchains.zig_program import zig_program
from workbench.mini import ARCH, WARNINGS, MiniBundle, add_gpu_sources, make_sources, run

HERE = Path(__file__).parent
ZIG = (*zig_program(), "cc")
#: A library with a variant for each kind of GPU.
GPU_APIS = ("-DEP_GPU_API_OPENCL=1", "-DEP_GPU_API_CUDA=1", "-DEP_GPU_API_METAL=1")
MORE_WARNINGS = ("-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Wundef")

#: zig's target -> edgepack's name of its architecture
ZIG_TARGETS = {
    "x86_64-linux-gnu.2.17": "x86_64",
    "x86_64-linux-musl": "x86_64",
    "aarch64-linux-gnu.2.28": "aarch64",
    "arm-linux-gnueabihf.2.28": "arm",
    "riscv64-linux-gnu": "riscv64",
    "x86_64-windows-gnu": "x86_64",
    "aarch64-windows-gnu": "aarch64",
    "x86_64-macos": "x86_64",
    "aarch64-macos": "aarch64",
}


def sources(root: Path, arch: str, requires: tuple[str, ...] = ()) -> MiniBundle:
    return make_sources(root, arch=arch, requires=requires)


def compile_all(bundle: MiniBundle, command: Sequence[str], loader: bool = True) -> None:
    """clang's warnings do not depend on how it optimises, as gcc's do. zig's -O0 for Windows warns of its own
    flags."""
    sources = [bundle.root / source for source in (MODEL_SOURCE, *(LOADER_SOURCES if loader else ()))]
    objects = bundle.root / "objects"
    objects.mkdir()
    # For Windows zig takes one file at a time.
    calls = [[source] for source in sources] if any("windows" in word for word in command) else [sources]
    for call in calls:
        run([*command, *WARNINGS, *bundle.includes, "-c", *call], cwd=objects)
    assert any(objects.iterdir())


#: POSIX and 64 bits, as others of them are, and the second Windows.
LIKE_OTHERS = ("aarch64-linux-gnu.2.28", "riscv64-linux-gnu", "x86_64-macos", "aarch64-windows-gnu")


@pytest.mark.parametrize(
    "target",
    [pytest.param(one, marks=pytest.mark.slow) if one in LIKE_OTHERS else one for one in ZIG_TARGETS],
)
def test_compiles_for(target: str, tmp_path: Path) -> None:
    arch = ZIG_TARGETS[target]
    bundle = sources(tmp_path / "bundle", arch, CPU_FEATURES[arch])
    compile_all(
        bundle, [*ZIG, "-target", target, "-fno-sanitize=all", "-O1" if "windows" in target else "-O0"]
    )


@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "aarch64-macos", "arm-linux-gnueabihf.2.28"])
def test_compiles_for_gpus_of(target: str, tmp_path: Path) -> None:
    """What a library with a variant for a GPU holds, whatever it has in it."""
    bundle = add_gpu_sources(sources(tmp_path / "bundle", ZIG_TARGETS.get(target, "aarch64")))
    command = [
        *ZIG,
        "-target",
        target,
        "-fno-sanitize=all",
        "-O1" if "windows" in target else "-O0",
        *GPU_APIS,
    ]
    compile_all(bundle, command, loader=False)


@pytest.mark.parametrize("more", [(), ("-DEP_PLATFORM_BARE",)])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_has_no_warnings_for_gpus(cc: str, more: tuple[str, ...], tmp_path: Path) -> None:
    bundle = add_gpu_sources(sources(tmp_path / "bundle", ARCH))
    command = [cc, "-O1" if cc == "gcc" else "-O0", *GPU_APIS, *MORE_WARNINGS, *more]
    compile_all(bundle, command, loader=False)


@pytest.mark.parametrize(("cc", "level"), [("gcc", "-O0"), ("gcc", "-O3"), ("clang", "-O0")])
def test_has_no_warnings(cc: str, level: str, tmp_path: Path) -> None:
    bundle = sources(tmp_path / "bundle", ARCH)
    compile_all(bundle, [cc, *MORE_WARNINGS, level])


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_compiles_without_a_system(cc: str, tmp_path: Path) -> None:
    bundle = sources(tmp_path / "bundle", ARCH)
    compile_all(bundle, [cc, "-O2", "-DEP_PLATFORM_BARE"], loader=False)


@pytest.mark.parametrize(
    ("target", "cpu"),
    [
        ("thumb-freestanding-eabihf", "cortex_m4+vfp4d16sp"),
        ("thumb-freestanding-eabi", "cortex_m0"),  # has no atomics
    ],
)
def test_compiles_for_microcontrollers(target: str, cpu: str, tmp_path: Path) -> None:
    bundle = sources(tmp_path / "bundle", "arm")
    command = [*ZIG, "-target", target, f"-mcpu={cpu}", "-fno-sanitize=all", "-O0"]
    compile_all(bundle, command, loader=False)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> MiniBundle:
    bundle = make_sources(tmp_path_factory.mktemp("bare") / "bundle", mode="embed")
    return bundle.build(flags=("-O1", "-DEP_PLATFORM_BARE"), shared=False)


def test_bare_metal_platform_runs(bare: MiniBundle, tmp_path: Path) -> None:
    """With the caller's memory, params and threads: all that firmware has."""
    bundle = bare
    folder = bundle.root / "test"
    assert json.loads(run([bundle.program, "verify", folder, "--threads", "1"]))["status"] == "ok"
    refused = json.loads(run([bundle.program, "verify", folder, "--threads", "2"], ok=2))
    assert refused["code"] == "EP_E_UNSUPPORTED"
    mapped = json.loads(run([bundle.program, "check-params", "--params", bundle.params], ok=2))
    assert mapped["code"] == "EP_E_UNSUPPORTED"
    program = tmp_path / "runs"
    run(["gcc", *WARNINGS, *bundle.includes, HERE / "runs.c", bundle.static, "-o", program, "-lpthread"])
    run([program, "embedded_one_thread", bundle.root])
    run([program, "bare", bundle.root])


def test_firmware_may_bring_a_clock(bare: MiniBundle, tmp_path: Path) -> None:
    bundle = bare
    program = tmp_path / "runs"
    command = ["gcc", *WARNINGS, "-DWITH_CLOCK", *bundle.includes, HERE / "runs.c", bundle.static]
    run([*command, "-o", program, "-lpthread"])
    run([program, "bare", bundle.root])


@pytest.mark.parametrize(
    ("target", "qemu", "sysroot"),
    [
        ("aarch64-linux-musl", "qemu-aarch64", "aarch64"),
        ("arm-linux-musleabihf", "qemu-arm", "arm"),
    ],
)
@pytest.mark.slow
def test_runs_on_other_cpus(target: str, qemu: str, sysroot: str, tmp_path: Path) -> None:
    """Under qemu-user; minutes, where zig has to build a libc first."""
    bundle = sources(tmp_path / "bundle", sysroot, ("neon",))
    bundle.build(cc=(*ZIG, "-target", target, "-fno-sanitize=all", "-static"), flags=("-O2",), shared=False)
    for options in (["--threads", "1"], ["--threads", "3", "--schedule", "dynamic"]):
        result = json.loads(run([qemu, bundle.program, "verify", bundle.root / "test", *options]))
        assert result["status"] == "ok"
