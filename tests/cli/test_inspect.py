"""``inspect``, for a bundle of unknown origin: it reads the manifest, and nothing else happens."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.api import Bundle
from tests.support.fake import ROOT

#: The program with an ear for all that a process can do to others.
_AUDITED = """
import json, sys
from edgepack.cli.main import main
heard = []
watched = ("os.exec", "os.fork", "os.posix_spawn", "os.putenv", "os.spawn", "os.system", "open",
           "os.remove", "os.rename", "os.mkdir", "pty.spawn", "subprocess.Popen", "socket.", "ctypes.dlopen")

def hear(event, arguments):
    if event.startswith(watched) and not (event == "open" and isinstance(arguments[0], int)):
        heard.append([event, str(arguments[0]) if arguments else "", str(arguments[1:2])])

sys.addaudithook(hear)
code = main(sys.argv[1:])
print(json.dumps(heard), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("options", [(), ("--kernels",), ("--json",)])
def test_inspect_reads_the_manifest_starts_nothing_and_loads_nothing(
    options: tuple[str, ...], small_bundle: Bundle, tmp_path: Path
) -> None:
    root = shutil.copytree(small_bundle.path, tmp_path / "copy")
    for name in ("sitecustomize.py", "numpy.py", "edgepack.py", "click.py"):
        (root / name).write_text("raise SystemExit('a module of the bundle was imported')")
    done = subprocess.run(
        [
            sys.executable,
            "-B",  # a cache of compiled modules would be written where there is none
            "-P" if sys.version_info >= (3, 11) else "-I",
            "-c",
            _AUDITED,
            "inspect",
            ".",
            *options,
        ],
        cwd=root,
        env={"PYTHONPATH": str(ROOT), "PATH": "/nowhere", "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "small" in done.stdout
    heard = json.loads(done.stderr.splitlines()[-1])
    others = [one for one in heard if one[0] != "open" and one[:2] != ["ctypes.dlopen", "None"]]
    assert not others
    opened = {
        Path(root, path)
        for event, path, _ in heard
        if event == "open" and Path(root, path).is_relative_to(root)
    }
    assert opened == {root / "manifest.json"}
    assert not [one for one in heard if one[0] == "open" and ("'w" in one[2] or "'a" in one[2])]
