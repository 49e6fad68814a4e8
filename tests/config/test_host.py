"""The host device: what operating systems report becomes LLVM features, vectors, caches and threads.

Of the texts in machines/ the Xeon's is a recording; the others hold the lines that such machines are known to
print.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgepack.config import cpuinfo, host
from edgepack.config.device import load_device
from edgepack.config.host import Machine, describe
from edgepack.errors import ConfigError
from edgepack.plan.target import CPU_FEATURES

RECORDED = Path(__file__).parent / "machines"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "arch", "expected"),
    [
        (
            "xeon-sapphire-rapids.txt",
            "x86_64",
            "amx-int8 amx-tile avx avx2 avx512bf16 avx512bw avx512cd avx512dq avx512f avx512fp16 avx512vbmi "
            "avx512vl avx512vnni avxvnni bmi bmi2 f16c fma lzcnt movbe popcnt sse3 sse4.1 sse4.2 ssse3",
        ),
        (
            "epyc-zen3.txt",
            "x86_64",
            "avx avx2 bmi bmi2 f16c fma lzcnt movbe popcnt sse3 sse4.1 sse4.2 ssse3",
        ),
        (
            "epyc-zen4.txt",
            "x86_64",
            "avx avx2 avx512bf16 avx512bw avx512cd avx512dq avx512f avx512vbmi avx512vl avx512vnni bmi "
            "bmi2 f16c fma lzcnt movbe popcnt sse3 sse4.1 sse4.2 ssse3",
        ),
        ("raspberrypi4.txt", "aarch64", "neon"),
        ("neoverse-v1.txt", "aarch64", "bf16 dotprod fullfp16 i8mm neon sve"),
        ("raspberrypi2.txt", "arm", "neon vfp3 vfp4"),
        ("raspberrypi4-32bit.txt", "arm", "neon vfp3 vfp4"),
    ],
)
def test_features_of_recorded_machines(name: str, arch: str, expected: str) -> None:
    found = cpuinfo.linux_features(recorded(name), arch)
    assert found == set(expected.split())
    assert found <= set(CPU_FEATURES[arch])


def test_a_feature_counts_only_if_all_cores_have_it() -> None:
    text = "processor : 0\nFeatures : asimd asimddp\n\nprocessor : 1\nFeatures : asimd\n"
    assert cpuinfo.linux_features(text, "aarch64") == {"neon"}


def test_riscv_vectors() -> None:
    assert cpuinfo.linux_features("isa\t\t: rv64imafdcv_zicsr_zvl128b\n", "riscv64") == {"v"}
    assert cpuinfo.linux_features("isa\t\t: rv64imafdc_zvfh_svpbmt\n", "riscv64") == set()


def test_apple_silicon() -> None:
    machine = host.macos_machine(recorded("apple-m2.txt"), "aarch64")
    assert machine.features == {"neon", "fullfp16", "dotprod", "i8mm", "bf16"}
    assert (machine.l1d, machine.l2, machine.cores, machine.heterogeneous) == (131072, 16777216, 4, True)


def test_an_intel_mac() -> None:
    machine = host.macos_machine(recorded("intel-mac.txt"), "x86_64")
    assert cpuinfo.x86_level(machine.features)[0] == "x86-64-v3"
    assert (machine.l1d, machine.l2, machine.cores, machine.heterogeneous) == (32768, 262144, 4, False)


@pytest.mark.parametrize(
    ("present", "level"),
    [([13, 36, 37, 38, 39, 40, 41], "x86-64-v4"), ([13, 36, 37, 38, 39, 40], "x86-64-v3"), ([13], "x86-64")],
)
def test_windows(present: list[int], level: str) -> None:
    assert cpuinfo.x86_level(cpuinfo.windows_features(present, "x86_64"))[0] == level


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ("", "x86-64"),
        ("sse3 ssse3 sse4.1 sse4.2", "x86-64"),
        ("sse3 ssse3 sse4.1 sse4.2 popcnt", "x86-64-v2"),
        ("sse3 ssse3 sse4.1 sse4.2 popcnt avx", "x86-64-v2"),
        ("sse3 ssse3 sse4.1 sse4.2 popcnt avx avx2 bmi bmi2 f16c fma lzcnt movbe", "x86-64-v3"),
    ],
)
def test_x86_levels_are_whole(features: str, level: str) -> None:
    assert cpuinfo.x86_level(frozenset(features.split()))[0] == level


def _x86(name: str) -> dict[str, Any]:
    return describe(Machine("linux", "x86_64", cpuinfo.linux_features(recorded(name), "x86_64")))


def test_avx512_means_512_bits() -> None:
    found = _x86("xeon-sapphire-rapids.txt")
    assert (found["cpu"]["vector_bits"], found["cpu"]["vector_registers"]) == (512, 32)
    assert found["llvm"]["cpu"] == "x86-64-v4"
    assert found["llvm"]["features"] == [
        "+amx-int8",
        "+amx-tile",
        "+avx512bf16",
        "+avx512fp16",
        "+avx512vbmi",
        "+avx512vnni",
        "+avxvnni",
        "-prefer-256-bit",
    ]


def test_vectors_that_are_done_in_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu(name: str) -> dict[str, Any]:
        files = {"proc/cpuinfo": recorded(name)}
        return describe(_probe(_fake_linux(tmp_path / name, 1, **files), monkeypatch, {0}))["cpu"]

    assert cpu("epyc-zen4.txt")["datapath_bits"] == 256
    assert "datapath_bits" not in cpu("xeon-sapphire-rapids.txt")
    assert "datapath_bits" not in cpu("epyc-zen3.txt")


def test_avx2_means_256_bits() -> None:
    found = _x86("epyc-zen3.txt")
    assert (found["cpu"]["vector_bits"], found["cpu"]["fma"]) == (256, True)
    assert found["llvm"] == {"cpu": "x86-64-v3", "features": []}


def test_avx_without_fma_has_none() -> None:
    features = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx"})
    found = describe(Machine("linux", "x86_64", features))
    assert found["cpu"] == {"vector_bits": 256, "vector_registers": 16, "fma": False}
    assert found["llvm"] == {"cpu": "x86-64-v2", "features": ["+avx"]}


def test_arm_without_neon_is_scalar() -> None:
    found = describe(Machine("linux", "arm", frozenset({"vfp3"})))
    assert found["cpu"] == {"vector_bits": 0, "vector_registers": 0, "fma": False}
    assert found["cpu_requires"] == ["vfp3"]


def test_an_unknown_machine_is_told_to_name_a_device() -> None:
    with pytest.raises(ConfigError) as caught:
        describe(Machine("plan9", "mips"))
    assert "plan9, mips" in caught.value.message
    assert "--device" in caught.value.hint


@pytest.mark.parametrize(
    ("machine", "bits", "arch"),
    [("AMD64", 64, "x86_64"), ("arm64", 64, "aarch64"), ("aarch64", 32, "arm"), ("armv7l", 32, "arm")],
)
def test_the_architecture_is_the_process(machine: str, bits: int, arch: str) -> None:
    assert host._architecture(machine, bits) == arch


def _fake_linux(root: Path, cpus: int, **files: str) -> Path:
    for number in range(cpus):
        files.setdefault(f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{number}")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    return root


def _probe(root: Path, monkeypatch: pytest.MonkeyPatch, cpus: set[int]) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: cpus, raising=False)
    return host._probe_linux("linux", "x86_64", root)


def test_threads_are_physical_cores_of_the_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {
        f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}"
        for n in range(8)
    }
    root = _fake_linux(tmp_path, 8, **siblings)
    assert _probe(root, monkeypatch, set(range(8))).cores == 4
    assert _probe(root, monkeypatch, {0, 1, 4}).cores == 2


def test_threads_respect_a_container_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _fake_linux(tmp_path, 8, **{"sys/fs/cgroup/cpu.max": "250000 100000"})
    assert _probe(root, monkeypatch, set(range(8))).cores == 3
    (root / "sys/fs/cgroup/cpu.max").write_text("max 100000\n", encoding="utf-8")
    assert _probe(root, monkeypatch, set(range(8))).cores == 8


def test_cores_of_unequal_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    even = {f"sys/devices/system/cpu/cpu{n}/cpu_capacity": "1024" for n in range(4)}
    assert not _probe(_fake_linux(tmp_path / "even", 4, **even), monkeypatch, set(range(4))).heterogeneous
    even["sys/devices/system/cpu/cpu3/cpu_capacity"] = "446"
    assert _probe(_fake_linux(tmp_path / "big-little", 4, **even), monkeypatch, set(range(4))).heterogeneous


def test_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = "sys/devices/system/cpu/cpu0/cache/index"
    files = {}
    rows = [
        (0, 1, "Data", "48K"),
        (1, 1, "Instruction", "32K"),
        (2, 2, "Unified", "2048K"),
        (3, 3, "Unified", "480M"),
    ]
    for index, level, kind, size in rows:
        files |= {
            f"{cache}{index}/level": str(level),
            f"{cache}{index}/type": kind,
            f"{cache}{index}/size": size,
        }
    machine = _probe(_fake_linux(tmp_path, 1, **files), monkeypatch, {0})
    assert (machine.l1d, machine.l2, machine.l3) == (48 * 1024, 2 * 1024 * 1024, 480 * 1024 * 1024)


def test_a_machine_that_tells_nothing_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _probe(tmp_path, monkeypatch, {0, 1})
    assert (machine.cores, machine.l1d, machine.features, machine.heterogeneous) == (2, 0, frozenset(), False)


def test_this_machine_is_a_device() -> None:
    device = load_device("host")
    assert 1 <= device.threads <= (os.cpu_count() or 1)
    assert device.runner.name == "native"
    assert set(device.cpu_requires) <= set(CPU_FEATURES[device.arch])
    assert device.cpu.vector_bits >= 128


def test_a_user_wins_over_what_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "quiet.yaml"
    path.write_text("extends: host\nthreads: 1\ncpu: {l2: 1 MiB}\n", encoding="utf-8")
    device = load_device(path)
    assert (device.threads, device.cpu.l2) == (1, 1 << 20)
    assert device.llvm == load_device("host").llvm
