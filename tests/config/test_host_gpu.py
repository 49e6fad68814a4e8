"""The `host-gpu` device: what a driver says becomes a device, and what is said where there is no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgepack.cli.main import main
from edgepack.commands.doctor_gpu import examine_gpu
from edgepack.config import host_gpu
from edgepack.config.device import load_device
from edgepack.config.host_gpu import describe_gpu
from edgepack.errors import ToolchainError

CARD = {
    "name": "A100 (8.0)",
    "gpu": True,
    "capability": 80,
    "units": 108,
    "group_size": 1024,
    "local_memory": 49152,
}
ADRENO = {"name": "Q: Adreno", "gpu": True, "units": 4, "group_size": 128, "local_memory": 32768}
POCL = {"name": "PoCL: a CPU", "gpu": False, "units": 2, "group_size": 4096, "local_memory": 1 << 20}


def test_a_card_of_nvidias() -> None:
    found = describe_gpu({"cuda": [CARD, {**CARD, "capability": 89}], "opencl": [ADRENO]}, "linux")
    assert found == {
        **{"api": "cuda", "capabilities": [80], "groups": 108},
        **{"group_size": 256, "local_memory": 48 * 1024},
    }


def test_a_gpu_by_opencl() -> None:
    found = describe_gpu({"cuda": [], "opencl": [POCL, ADRENO]}, "linux")
    assert found == {"api": "opencl", "groups": 32, "group_size": 64, "local_memory": 32 * 1024}


def test_what_is_no_gpu_is_not_taken() -> None:
    """A CPU's driver, a card that is too old, work groups that are too small."""
    found = {"cuda": [{**CARD, "capability": 35}], "opencl": [POCL, {**ADRENO, "group_size": 32}]}
    missing = str(describe_gpu(found, "linux")["missing"])
    assert missing.startswith(
        "CUDA's driver (libcuda.so.1) has no such GPU (A100 (8.0)); OpenCL (libOpenCL.so.1)"
    )
    assert "nvcuda.dll" in describe_gpu({"cuda": []}, "win32")["missing"]
    assert describe_gpu({"metal": [{"name": "M2", "family": 8}]}, "darwin") == {"api": "metal", "family": 8}


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What they say of their devices, by API."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(host_gpu, "gpus", lambda api: found.get(api, ()))
    return found


def test_this_machine_with_a_gpu(drivers: dict[str, Any], tmp_path: Path) -> None:
    drivers["cuda"] = [CARD]
    device = load_device("host-gpu")
    host = load_device("host")
    assert (device.gpu.api, device.gpu.capabilities, device.gpu.missing) == ("cuda", (80,), "")
    assert (device.cpu, device.llvm, device.cpu_requires) == (host.cpu, host.llvm, host.cpu_requires)
    if device.os == "linux":
        assert set(device.audit.needed) == {*host.audit.needed, "libdl.so.2"}
        assert device.audit.glibc == host.audit.glibc
    own = tmp_path / "own.yaml"
    own.write_text("extends: host-gpu\ngpu: {groups: 7}\n", encoding="utf-8")
    assert load_device(own).gpu == device.gpu.model_copy(update={"groups": 7})


def test_this_machine_without_one(
    drivers: dict[str, Any], tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The device can be listed; what needs the GPU ends with what was looked for, and what to try."""
    drivers["opencl"] = [POCL]
    assert main(["devices", "host-gpu"]) == 0
    capsys.readouterr()
    for command in (
        ["check", str(small_model)],
        ["pack", str(small_model), "--output", str(tmp_path / "out")],
    ):
        assert main([*command, "--device", "host-gpu"]) == ToolchainError.exit_code
        said = capsys.readouterr().err
        assert "host-gpu: no GPU of this machine was found: " in said
        assert "PoCL: a CPU" in said
        assert "opencl-generic" in said
    (tool,) = examine_gpu(load_device("host-gpu"))
    assert (tool.needed, tool.found) == (True, "")
    assert "none was found" in tool.problem
    own = tmp_path / "own.yaml"
    own.write_text("extends: host-gpu\ngpu: {api: opencl}\n", encoding="utf-8")
    host_gpu.require_gpu(load_device(own).gpu, "own")  # who asks for it gets it
