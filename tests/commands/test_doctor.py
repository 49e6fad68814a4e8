"""``edgepack doctor`` tries toolchains out for real, and says how to get what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.cli.install_command import install_commands
from edgepack.cli.main import main
from edgepack.commands import doctor, doctor_gpu
from edgepack.commands.doctor import Diagnosis, examine_toolchain, trial
from edgepack.commands.doctor_gpu import GpuTool
from edgepack.config.device import load_device
from edgepack.resources import PACKAGE
from edgepack.system.confinement import what_is_missing
from edgepack.toolchains import resolve


def test_the_host_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {(item["kind"], item["name"]): item for item in report["found"]}
    assert report["ok"] is True
    zig = found["toolchain", "zig"]
    assert zig["ok"] and zig["chosen"] and zig["version"].startswith("zig ") and "ziglang" in zig["found"]
    assert found["runner", "native"]["ok"]
    assert found["confinement", "landlock"]["ok"] == (not what_is_missing())


def test_where_models_are_read_unconfined_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPACK_CONFINE", "off")
    said = doctor.examine_confinement()
    assert not said.ok and "is not confined: EDGEPACK_CONFINE is off" in said.problem


def test_the_table_marks_what_the_device_uses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "raspberrypi2", "--quiet", "--verbose"]) == 0
    out = capsys.readouterr().out
    table = out.partition("\n\n")[0]
    rows = {tuple(line.split()[1:3]): line.split()[0] for line in table.splitlines()[1:]}
    assert rows["toolchain", "zig"] == "ok"
    assert rows["runner", "qemu"] == "ok"
    assert rows["runner", "native"] == "--"
    assert "zig *" in out
    assert "runner native: This machine is " in out
    assert "toolchain ndk: builds nothing for raspberrypi2, which has no `compilers: ndk:`" in out


def test_what_is_missing_comes_first_with_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "TVM_NDK_CC", "ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert main(["doctor", "--device", "android-arm64"]) == 4
    out = capsys.readouterr().out
    assert out.splitlines()[:5] == [
        "Missing for android-arm64:",
        "  toolchain ndk: no Android NDK was found",
        "  runner adb: adb was not found",
        "Get them:",
        "  sdkmanager 'ndk;27.2.12479018' platform-tools",
    ]
    assert "toolchain xcode" not in out and "runner wine" not in out
    assert "more are for other devices or places: --verbose" in out


@pytest.mark.parametrize(
    ("hints", "commands"),
    [
        (
            ["Install it: apt install clang lld (Debian, Ubuntu), or name yours."],
            ["apt-get install clang lld"],
        ),
        (
            ["qemu-arm was not found: apt-get install qemu-user (or qemu-user-static)."],
            ["apt-get install qemu-user"],
        ),
        (
            ["Install it: /usr/bin/python3 -m pip install ziglang."],
            ["/usr/bin/python3 -m pip install ziglang"],
        ),
        (["apt install a b (1 MB)", "node was not found: apt-get install b c."], ["apt-get install a b c"]),
        (
            ["Install it: python -m pip install x.", "apt-get install y."],
            ["python -m pip install x", "apt-get install y"],
        ),
        (["Get the NDK for linux."], []),
    ],
)
def test_commands_are_read_from_hints_and_joined(hints: list[str], commands: list[str]) -> None:
    lacking = [Diagnosis("toolchain", str(i), False, True, hint=hint) for i, hint in enumerate(hints)]
    assert install_commands(lacking) == commands


def test_a_missing_toolchain_is_exit_code_4_with_the_command_that_installs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nocc.yaml").write_text("extends: gcc\nexecutables: {cc: [nocc]}\n", encoding="utf-8")
    board = tmp_path / "board.yaml"
    board.write_text("extends: raspberrypi4\ntoolchain: ./nocc.yaml\n", encoding="utf-8")
    assert main(["doctor", "--device", str(board)]) == 4
    out = capsys.readouterr().out
    assert "no `cc` for board (aarch64-linux-gnu) is installed" in out
    assert "Looked for: nocc" in out
    assert "apt install gcc-aarch64-linux-gnu" in out


def test_a_program_for_a_newer_glibc_is_not_ok() -> None:
    found = examine_toolchain(load_device("raspberrypi4"), "gcc")
    assert not found.ok
    assert "glibc version: found GLIBC_2.34" in found.problem
    assert found.version.startswith("aarch64-linux-gnu-gcc")


def test_a_compiler_that_fails_is_shown_with_its_output(tmp_path: Path) -> None:
    path = tmp_path / "strange.yaml"
    path.write_text("extends: gcc\nflags: [-mno-such-flag]\n", encoding="utf-8")
    found = examine_toolchain(load_device("linux-x86_64"), str(path))
    assert not found.ok
    assert "compiling trial_library.c" in found.problem
    assert "-mno-such-flag" in found.detail


def test_the_trial_builds_every_artifact(folder: Path) -> None:
    built = trial(resolve(load_device("raspberrypi2")), folder)
    assert set(built) == {"shared", "static", "program"}
    assert all(path.stat().st_size > 0 for path in built.values())


def gpu_tools(device: str) -> dict[str, GpuTool]:
    return {tool.name: tool for tool in doctor_gpu.examine_gpu(load_device(device))}


def test_what_a_gpu_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NVRTC, without which nothing can be packed; drivers and Xcode's compiler, without which it can."""
    versions = {"nvidia-cuda-nvrtc-cu12": "12.9", "metal": "Apple metal version 1"}
    monkeypatch.setattr(doctor_gpu, "tool_versions", lambda api: versions)
    monkeypatch.setattr(doctor_gpu.Nvcc, "commands", lambda nvcc: [["no-such-nvcc"]])
    monkeypatch.setattr(doctor_gpu, "ask", lambda command: "PoCL: a CPU\n")
    assert gpu_tools("host") == {}
    assert gpu_tools("jetson-orin-gpu")["nvrtc"].version == "12.9"
    packed = "nvidia-cuda-nvrtc-cu12; PTX for drivers since CUDA 10.2"
    assert gpu_tools("jetson-nano-gpu")["nvrtc"].found == packed
    assert gpu_tools("macos-arm64-metal")["xcode-metal"].found == "xcrun metal"
    drivers = [
        tool for name in ("opencl-generic", "linux-aarch64-opencl") for tool in gpu_tools(name).values()
    ]
    assert [driver.found for driver in drivers] == ["PoCL: a CPU"]  # of the one that this machine is
    versions |= {"nvidia-cuda-nvrtc": "13.0.48", "nvidia-cuda-nvrtc-cu11": "11.8.89"}
    assert gpu_tools("jetson-orin-gpu")["nvrtc"].version == "13.0.48"
    jetpack_5 = tmp_path / "jetpack5.yaml"
    jetpack_5.write_text('extends: jetson-orin-gpu\ngpu: {cuda: "11.4"}\n', encoding="utf-8")
    packed = "nvidia-cuda-nvrtc-cu11; machine code and PTX for drivers since CUDA 11.4"
    assert gpu_tools(str(jetpack_5))["nvrtc"].found == packed
    versions.clear()
    monkeypatch.setattr(doctor_gpu, "ask", lambda command: "")
    assert not gpu_tools("macos-arm64-metal")["xcode-metal"].found
    works = Diagnosis("toolchain", "zig", True, True)
    monkeypatch.setattr(doctor, "examine_toolchain", lambda *arguments: works)
    assert main(["doctor", "--device", "jetson-orin-gpu", "--json"]) == 4
    found = json.loads(capsys.readouterr().out)["found"]
    nvrtc, nvcc = (one for one in found if one["kind"] == "gpu")
    assert (nvrtc["ok"], nvrtc["chosen"]) == (False, True)
    assert "[cuda]" in nvrtc["hint"]
    assert (nvcc["name"], nvcc["ok"], nvcc["chosen"]) == ("nvcc", False, False)
    assert "only TVM's own CUDA code needs" in nvcc["hint"] and "nvidia-cuda-toolkit" in nvcc["hint"]


@pytest.mark.parametrize("api", ["opencl", "cuda"])
def test_devices_of_drivers_are_listed_or_there_are_none(api: str) -> None:
    script = PACKAGE / "trial" / "gpu_devices.py"
    done = subprocess.run([sys.executable, "-I", script, api], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
