"""tools/on_cpu.py shows an older CPU to a command, and nothing of it to anyone else."""

from __future__ import annotations

import json
import platform
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.config import cpuinfo

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "on_cpu.py"
XEON = Path(__file__).parent / "machines" / "xeon-sapphire-rapids.txt"

SHOW = "import json; from edgepack.config.host import detect; print(json.dumps(detect()))"


@pytest.mark.parametrize(
    ("cpu", "level", "more"),
    [
        ("ivybridge", "x86-64-v2", {"avx", "f16c"}),
        ("haswell", "x86-64-v3", set()),
        ("skylake-server", "x86-64-v4", set()),
    ],
)
def test_features_of_a_newer_cpu_are_taken_away(cpu: str, level: str, more: set[str]) -> None:
    tool = runpy.run_path(str(TOOL))
    text = tool["cpuinfo"](XEON.read_text(encoding="utf-8"), tool["CPUS"][cpu])
    features = cpuinfo.linux_features(text, "x86_64")
    found, filled = cpuinfo.x86_level(features)
    assert (found, features - filled) == (level, more)


def test_a_command_sees_the_other_cpu() -> None:
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        pytest.skip("needs Linux on x86-64")
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        pytest.skip("this machine's CPU is older than the one to show")
    allowed = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "true"], capture_output=True, check=False
    )
    if allowed.returncode != 0:
        pytest.skip(f"no namespaces here: {allowed.stderr.decode().strip()}")
    before = Path("/proc/cpuinfo").read_bytes()
    done = subprocess.run(
        [sys.executable, TOOL, "haswell", "--", sys.executable, "-c", SHOW],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)
    assert machine["llvm"] == {"cpu": "x86-64-v3", "features": []}
    assert machine["cpu"]["vector_bits"] == 256
    assert machine["cpu"].get("l2", 256 << 10) == 256 << 10  # some virtual machines show no caches
    assert Path("/proc/cpuinfo").read_bytes().split(b"flags")[1] == before.split(b"flags")[1]
