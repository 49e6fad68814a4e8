#!/usr/bin/env python3
"""Run a command on this machine as if its CPU were an older one: ``tools/on_cpu.py haswell -- make test``.

The command sees another ``/proc/cpuinfo`` and other sizes of caches (in a mount namespace of its own, so
nothing outside it changes): what edgepack takes for the ``host`` device is then that CPU. The instructions
that the real CPU has beyond it stay usable to code that asks the CPU itself, as ONNX Runtime and NumPy do.

``--emulate`` hides them from these too: the command, which must be a program and not a script, runs under
``qemu-x86_64`` as that CPU (10 to 50 times slower; programs that it starts run on the real CPU).

Needs Linux on x86-64, ``unshare`` (util-linux), and root or user namespaces. ``--emulate`` needs QEMU 7.2 or
newer, the first that knows AVX2 (Debian: ``qemu-user``); it does not know AVX-512.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgepack.system.paths import find_program

#: What CPUs after Skylake-X added, as /proc/cpuinfo spells it.
_NEWER = (
    r"avx512_?(vnni|bf16|fp16|vbmi|vbmi2|ifma|bitalg|vpopcntdq|vp2intersect)"
    r"|avx_vnni\w*|avx_ifma|amx_\w+|gfni|vaes|vpclmulqdq"
)


@dataclass(frozen=True)
class Cpu:
    """A kind of CPU.

    ``lacks`` is a regular expression of flags, ``needs`` a flag without which a CPU cannot stand in for it;
    ``caches`` are sizes by level as sysfs writes them; ``qemu`` is QEMU's name, "" if it cannot emulate it.
    """

    lacks: str
    needs: str
    caches: dict[str, str]
    qemu: str = ""


#: Caches: Intel 64 and IA-32 Architectures Optimization Reference Manual, tables of each microarchitecture;
#: the last one is that of a common model (i7-3770, i7-4770, Xeon Platinum 8168).
CPUS = {
    "ivybridge": Cpu(
        rf"{_NEWER}|avx2|avx512\w*|fma4?|bmi[12]|abm|movbe",
        "avx",
        {"1": "32K", "2": "256K", "3": "8192K"},
        "IvyBridge",
    ),
    "haswell": Cpu(rf"{_NEWER}|avx512\w*", "avx2", {"1": "32K", "2": "256K", "3": "8192K"}, "Haswell"),
    "skylake-server": Cpu(_NEWER, "avx512vl", {"1": "32K", "2": "1024K", "3": "33792K"}),
}

#: Variable that tells the command which CPU it is shown.
SHOWN = "EDGEPACK_TESTS_ON_CPU"

#: Arguments: pairs of (file, what to show in its place), "--", the command.
_MOUNT = """
set -e
while [ "$1" != -- ]; do mount --bind "$2" "$1"; shift 2; done
shift
exec "$@"
"""


def cpuinfo(text: str, cpu: Cpu) -> str:
    """``/proc/cpuinfo`` without the flags that the CPU lacks."""
    lacks = re.compile(cpu.lacks)
    lines = []
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if key.strip() == "flags":
            value = " " + " ".join(word for word in value.split() if not lacks.fullmatch(word))
        lines.append(f"{key}{colon}{value}")
    return "\n".join(lines) + "\n"


def replacements(cpu: Cpu, folder: Path, *, hide_caches: bool) -> list[str]:
    """Writes the files to show into ``folder``; pairs of what to cover and with what, one after the other."""
    shown = folder / "cpuinfo"
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if cpu.needs not in text.split():
        raise SystemExit(f"This machine's CPU is older than that: it lacks {cpu.needs}.")
    shown.write_text(cpuinfo(text, cpu), encoding="utf-8")
    pairs = ["/proc/cpuinfo", str(shown)]
    for level in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index*/level"):
        kind = (level.parent / "type").read_text(encoding="utf-8").strip()
        size = cpu.caches.get(level.read_text(encoding="utf-8").strip())
        if size and kind in {"Data", "Unified"}:
            file = folder / ("unknown" if hide_caches else size)
            file.write_text("\n" if hide_caches else f"{size}\n", encoding="utf-8")
            pairs += [str(level.parent / "size"), str(file)]
    return pairs


def main() -> int:
    """Runs the command; its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cpu", choices=sorted(CPUS))
    parser.add_argument("--emulate", action="store_true", help="run the command under qemu-x86_64, too")
    parser.add_argument(
        "--hide-caches", action="store_true", help="sizes of caches are unknown, as in some VMs"
    )
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    cpu, command = CPUS[arguments.cpu], arguments.command
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        raise SystemExit("This needs Linux on x86-64.")
    for program in ("unshare", "mount", *(["qemu-x86_64"] if arguments.emulate else [])):
        if find_program(program) is None:
            raise SystemExit(f"{program} is missing (Debian: util-linux, mount, qemu-user).")
    if arguments.emulate:
        program = find_program(command[0])
        if program is None or not cpu.qemu:
            raise SystemExit(f"{command[0]} is not a program." if cpu.qemu else "QEMU knows no AVX-512.")
        command = ["qemu-x86_64", "-cpu", cpu.qemu, program, *command[1:]]
    with tempfile.TemporaryDirectory(prefix="on-cpu-") as folder:
        pairs = replacements(cpu, Path(folder), hide_caches=arguments.hide_caches)
        os.environ[SHOWN] = arguments.cpu
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        inside = ["sh", "-c", _MOUNT, "sh", *pairs, "--", *command]
        return os.spawnvp(os.P_WAIT, "unshare", ["unshare", "--mount", *user, *inside])


if __name__ == "__main__":
    sys.exit(main())
