"""Wheels: installed by pip into an empty environment, imported, called, type-checked, removed."""

from __future__ import annotations

import ast
import csv
import email.parser
import email.policy
import email.utils
import shutil
import sys
import sysconfig
import venv
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.api import Bundle, export
from edgepack.bundle.manifest import Manifest
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.wheel import WHEEL, module_name, platform_tags
from tests.support.packages import HOSTILE_NAMES, METADATA, blocks, hostile, run, write


@pytest.fixture(scope="module")
def wheel(small_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whéel s") / "dist"
    (made,) = write(WHEEL, [source_bundle(small_bundle.path)], folder, replace(METADATA, name="Acme_Small"))
    return made


@pytest.fixture
def python(wheel: Path, tmp_path: Path) -> Path:
    """The interpreter of an environment where pip installed the wheel; it finds NumPy in the tests' one."""
    root = tmp_path / "ënv with spaces"
    venv.create(root, with_pip=False, symlinks=True)
    (site,) = root.glob("lib/python*/site-packages")
    (site / "numpy.pth").write_text(str(Path(np.__file__).parents[1]), encoding="utf-8")
    python = root / "bin" / "python"
    pip(python, "install", wheel)
    return python


def pip(python: Path, *arguments: str | Path) -> str:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    more = ("--no-index", "--no-compile") if arguments[0] == "install" else ("--yes",)
    command, *rest = arguments
    pip = (sys.executable, "-m", "pip", "--python", python, *quiet)
    return run(*pip, command, *more, *rest, cwd=python.parent)


def read_readme(wheel: Path, folder: Path) -> list[str]:
    """The Python in it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode("utf-8")
    (folder / "README.md").write_text(text.partition("\n\n")[2], encoding="utf-8")
    return blocks(folder / "README.md", "python")


#: Its last three lines are wrong.
CALLER = """\
import numpy as np
import small
x = np.zeros((4, 8), np.float32)
with small.Session(threads=2) as session:
    sign: np.typing.NDArray[np.int8] = session.run(input=x).sign
    output, sign = small.run(x)
    session.run_into(x, output=output, sign=sign)
y = x.astype(np.float64)
small.run(y)
small.run(x, x)
small.Session(threads="2")
"""
USE = """
import pickle, sys, threading
import numpy as np
import small

x = np.fromfile(sys.argv[1], np.float32).reshape(4, 8)
want = [np.fromfile(path, dtype).reshape(4, 8) for path, dtype in zip(sys.argv[2:], (np.float32, np.int8))]

def right(got):
    assert np.allclose(got.output, want[0], rtol=1e-4, atol=1e-5) and (got[1] == want[1]).all()

right(small.run(x))
right(small.run(input=np.asfortranarray(x)))
assert small.INPUTS[0] == ("input", "float32", (4, 8))
assert [one.name for one in small.OUTPUTS] == ["output", "sign"]
with small.Session(threads=1) as session:
    output, sign = session.run(x)
    right(small.Outputs(output, sign))
    assert session.backend == "cpu"
    session.check_params()
    tensors = "'input' float32[4, 8] -> 'output' float32[4, 8], 'sign' int8[4, 8]"
    assert repr(session) == f"<small.Session: {tensors}>", session
    into = small.Outputs(np.empty((4, 8), np.float32), np.empty((4, 8), np.int8))
    session.run_into(x, output=into.output, sign=into.sign)
    right(into)
    with pickle.loads(pickle.dumps(session)) as other:
        right(other.run(x))
with small.Session(threads=1, sessions=2) as session:
    threads = [threading.Thread(target=lambda: [right(session.run(x)) for _ in range(50)]) for _ in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
threads = [threading.Thread(target=lambda: [right(small.run(x)) for _ in range(50)]) for _ in range(4)]
[one.start() for one in threads]
[one.join() for one in threads]

def refused(kind, what, *words):
    try:
        what()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind}")

refused(TypeError, lambda: small.run(x.astype(float)), "float64", "float32")
refused(ValueError, lambda: small.run(x[:2]), "(2, 8)", "(4, 8)")
refused(ValueError, lambda: session.run(x), "closed")
refused(ValueError, lambda: session.backend, "closed")
refused(ValueError, lambda: small.Session(threads=0), "threads")
refused(ValueError, lambda: small.Session(sessions=0), "sessions")
refused(ValueError, lambda: pickle.dumps(session), "closed")
with small.Session() as other:
    refused(ValueError, lambda: other.run_into(x, output=x, sign=into.sign), "overlaps")
    columns = np.asfortranarray(into.output)
    refused(ValueError, lambda: other.run_into(x, output=columns, sign=into.sign), "contiguous")
    refused(TypeError, lambda: other.run_into(x, output=x.astype(float), sign=into.sign), "float64")
    refused(TypeError, lambda: other.run_into(x, output=[1], sign=into.sign), "list")

def used_until_closed(session):
    try:
        while True:
            right(session.run(x))
    except ValueError as error:
        assert "closed" in str(error), error

wrong = []
threading.excepthook = wrong.append
for _ in range(100):
    session = small.Session(threads=2)
    threads = [threading.Thread(target=used_until_closed, args=(session,)) for _ in range(2)]
    threads += [threading.Thread(target=session.close) for _ in range(2)]
    [one.start() for one in threads]
    [one.join() for one in threads]
assert not wrong, wrong
import os
pid = os.fork()
if pid == 0:
    right(small.run(x))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
from pathlib import Path
params = Path(small.__file__).with_name("small.params")
whole = params.read_bytes()
params.write_bytes(whole[:1000])
error = refused(small.Error, small.Session, "EP_E_PARAMS_TRUNCATED", "copy the file again")
assert (error.status, error.name) == (11, "EP_E_PARAMS_TRUNCATED")
params.write_bytes(whole)
"""


def test_is_installed_called_and_removed(
    python: Path, wheel: Path, small_bundle: Bundle, tmp_path: Path
) -> None:
    """In an environment of its own: only NumPy is there beside it."""
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    tensors = [*small_bundle.manifest.recorded.inputs, *small_bundle.manifest.recorded.outputs]
    run(python, "-B", tmp_path / "use.py", *(small_bundle.path / one.file for one in tensors), cwd=tmp_path)
    (block,) = read_readme(wheel, tmp_path)
    more = "\nfrom importlib.metadata import version\nprint(version('acme-small'))"
    assert run(python, "-I", "-B", "-c", block + more, cwd=tmp_path) == "(4, 8) (4, 8)\n1.2.0b1\n"
    pip(python, "uninstall", "acme-small")
    assert not list(python.parents[1].rglob("*small*"))


@pytest.mark.slow
def test_callers_are_type_checked(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.unpack_archive(wheel, site, "zip")
    (tmp_path / "caller.py").write_text(CALLER, encoding="utf-8")
    command = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache")
    environment = {"MYPYPATH": str(site)}
    shown = run(*command, "caller.py", cwd=tmp_path, code=1, **environment)
    lines = [line.split(":")[1] for line in shown.splitlines() if " error: " in line]
    assert lines == ["9", "10", "11"], shown


def test_what_the_archive_says_of_itself(wheel: Path, small_bundle: Bundle) -> None:
    assert wheel.name.startswith("acme_small-1.2.0b1-py3-none-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        read = {
            name.partition("/")[2]: archive.read(name).decode() for name in names if ".dist-info/" in name
        }
        rows = list(csv.reader(read["RECORD"].splitlines()))
        assert sorted(row[0] for row in rows) == sorted(names)
        sizes = {info.filename: str(info.file_size) for info in archive.infolist()}
        assert all(sizes[name] == size for name, _, size in rows if size)
    metadata = email.parser.Parser(policy=email.policy.default).parsestr(read["METADATA"])
    assert metadata["Summary"] == f"{METADATA.summary} (import small)"  # which `pip show` displays
    assert metadata["License-Expression"] == METADATA.license
    assert email.utils.parseaddr(metadata["Author-email"]) == ('Zoë "Q" O\'Neil ]] */ \\', "zoe@example.org")
    assert metadata["Author"] == "Plain Name"
    assert metadata["Project-URL"] == f"Homepage, {METADATA.homepage}"
    assert metadata.get_all("Requires-Dist") == ["numpy>=1.21"]
    tags = [line.partition(": ")[2] for line in read["WHEEL"].splitlines() if line.startswith("Tag: ")]
    assert tags == [f"py3-none-{tag}" for tag in platform_tags(small_bundle.manifest)]
    assert {"licenses/Apache-2.0.txt", "licenses/NOTICE.txt", "sboms/sbom.cdx.json"} <= set(read)


def test_same_bytes_each_time(wheel: Path, small_bundle: Bundle, tmp_path: Path) -> None:
    package = replace(METADATA, name="Acme_Small")
    (again,) = write(WHEEL, [source_bundle(small_bundle.path)], tmp_path / "dist", package)
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


def test_names_of_tensors_are_data(small_bundle: Bundle, tmp_path: Path) -> None:
    """The module with hostile names is imported and says them; its arguments and results are told apart."""
    (made,) = write(WHEEL, [hostile(small_bundle)], tmp_path / "dist")
    shutil.unpack_archive(made, tmp_path / "site", "zip")
    script = (
        "import inspect, small as m\n"
        "names = [*inspect.signature(m.run).parameters, *m.Outputs._fields]\n"
        "assert len(set(names)) == 40 and all(name.isidentifier() for name in names), names\n"
        "print(ascii([one.name for one in (*m.INPUTS, *m.OUTPUTS)]))\n"
        "help(m)\n"
    )
    shown = run(sys.executable, "-c", script, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert ast.literal_eval(shown.splitlines()[0]) == [*HOSTILE_NAMES, *HOSTILE_NAMES]
    (block,) = read_readme(made, tmp_path)
    ast.parse(block)


@pytest.mark.parametrize("wrong", ["a b", "../x", "ü", 'a"', "-x", "x-"])
def test_a_name_that_pip_does_not_know_is_refused(wrong: str, small_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no name of a wheel"):
        export(small_bundle, "wheel", tmp_path / "dist", package_name=wrong)


def test_modules_do_not_hide_pythons_own() -> None:
    names = ("resnet18", "lambda", "json", "numpy", "None", "imp", "JSON")
    assert [module_name(name) for name in names] == [
        "resnet18",
        "lambda_model",
        "json_model",
        "numpy_model",
        "None_model",
        "imp_model",
        "JSON_model",
    ]


@pytest.mark.parametrize(
    ("device", "audit", "tags"),
    [
        ({}, {"glibc": "2.28"}, "manylinux_2_28_x86_64"),
        ({}, {"glibc": "2.3"}, "manylinux2014_x86_64.manylinux_2_17_x86_64"),
        ({}, {}, "manylinux2014_x86_64.manylinux_2_17_x86_64"),
        ({}, {"glibc": "2.28", "needed": ["libc.so.6", "libfoo.so.1"]}, "linux_x86_64"),
        ({"arch": "aarch64"}, {"glibc": "2.34", "needed": ["libc.so.6"]}, "manylinux_2_34_aarch64"),
        (
            {"arch": "arm", "triple": "armv7a-unknown-linux-gnueabihf"},
            {"glibc": "2.28", "needed": ["ld-linux-armhf.so.3", "libm.so.6"]},
            "linux_armv7l.manylinux_2_28_armv7l",
        ),
        ({"arch": "arm", "triple": "armv7a-unknown-linux-gnueabi"}, {"glibc": "2.28"}, "linux_armv7l"),
        ({"arch": "arm", "triple": "armv6-unknown-linux-gnueabihf"}, {"glibc": "2.28"}, "linux_armv6l"),
        ({"arch": "riscv64"}, {"glibc": "2.31"}, "manylinux_2_31_riscv64"),
        ({"libc": "musl", "triple": "x86_64-unknown-linux-musl"}, {}, "musllinux_1_2_x86_64"),
        ({"os": "macos", "arch": "aarch64", "triple": "arm64-apple-macosx11.0"}, {}, "macosx_11_0_arm64"),
        ({"os": "macos", "triple": "x86_64-apple-macosx10.15"}, {}, "macosx_10_15_x86_64"),
        ({"os": "windows", "triple": "x86_64-w64-windows-gnu"}, {}, "win_amd64"),
        ({"os": "windows", "arch": "aarch64"}, {}, "win_arm64"),
        (
            {"os": "android", "arch": "arm", "triple": "armv7a-unknown-linux-androideabi24"},
            {},
            "android_24_armeabi_v7a",
        ),
        ({"os": "wasi", "arch": "wasm32", "triple": "wasm32-unknown-wasi"}, {}, ""),
        ({"os": "none", "arch": "arm"}, {}, ""),
    ],
)
def test_platforms_are_tagged_by_what_the_library_needs(
    device: dict[str, str], audit: dict[str, Any], tags: str, small_bundle: Bundle
) -> None:
    data = small_bundle.manifest.model_dump(mode="json")
    data["device"] |= {"triple": f"{device.get('arch', 'x86_64')}-unknown-linux-gnu"} | device
    for artifact in data["artifacts"]:
        artifact["audit"] = audit
    assert ".".join(platform_tags(Manifest.model_validate(data))) == tags


@pytest.mark.slow
def test_auditwheel_says_the_same(wheel: Path) -> None:
    """Needs auditwheel (PyPI) on the path; where it is not, ``pip install auditwheel``."""
    program = shutil.which("auditwheel") or str(Path(sysconfig.get_path("scripts")) / "auditwheel")
    if not Path(program).is_file():
        pytest.skip("auditwheel is not installed")
    shown = " ".join(run(program, "show", wheel, cwd=wheel.parent).split())
    assert 'is consistent with the following platform tag: "manylinux_2_17_x86_64"' in shown, shown
