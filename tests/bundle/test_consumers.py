"""Who has only the bundle: no repository, no edgepack; CMake, pkg-config, a C compiler, its README."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgepack.api import Bundle, pack
from tests.support import fake
from tests.support.packages import run
from tests.support.worker import COLUMNS, ROWS, reference

CONSUMER = Path(__file__).with_name("consumer")
MODES = ("file", "embed", "caller")


@pytest.fixture(scope="module")
def bundles(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle for each way to ship params, in folders with spaces."""
    folder = tmp_path_factory.mktemp("taken away")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        for mode in MODES:
            pack(small_model, "host", folder / f"small {mode}", params=mode)  # type: ignore[arg-type]
    return {mode: folder / f"small {mode}" for mode in MODES}


@pytest.fixture(params=MODES)
def bundle(request: pytest.FixtureRequest, bundles: dict[str, Path]) -> Path:
    return bundles[request.param]


def check_app(app: Path, bundle: Path, **environment: str) -> None:
    """The consumer's program gives what numpy gives."""
    params = bundle / "params" / "small.params"
    embedded = bundle.name == "small embed"
    text = run(app, *([] if embedded else [params]), cwd=app.parent, **environment)
    values = np.array([line.split() for line in text.splitlines()], "f8")
    x = (np.arange(ROWS * COLUMNS) % 5 - 2).astype("f4").reshape(ROWS, COLUMNS)
    output, sign = reference(x)
    np.testing.assert_allclose(values[:, 0], output.ravel(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(values[:, 1], sign.ravel())


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        ("file", "find_package"),
        ("embed", "add_subdirectory"),
        ("caller", "find_package"),
        pytest.param("file", "add_subdirectory", marks=pytest.mark.slow),
        pytest.param("embed", "find_package", marks=pytest.mark.slow),
        pytest.param("caller", "add_subdirectory", marks=pytest.mark.slow),
    ],
)
def test_cmake(mode: str, how: str, bundles: dict[str, Path], tmp_path: Path) -> None:
    bundle = bundles[mode]
    shutil.copy(CONSUMER / "app.c", tmp_path)
    shutil.copy(CONSUMER / f"{how}.cmake", tmp_path / "CMakeLists.txt")
    run("cmake", "-S", ".", "-B", "build it", f"-DBUNDLE={bundle}", cwd=tmp_path)
    run("cmake", "--build", "build it", cwd=tmp_path)
    check_app(tmp_path / "build it" / "app", bundle)


@pytest.mark.parametrize("static", [False, True])
def test_pkg_config(static: bool, bundle: Path, tmp_path: Path) -> None:
    environment = {"PKG_CONFIG_PATH": str(bundle / "pkgconfig")}
    shutil.copy(CONSUMER / "app.c", tmp_path)
    linking = "-static " if static else ""
    command = f"cc {linking}app.c $(pkg-config {'--static ' if static else ''}--cflags --libs small) -o app"
    # The shell splits what pkg-config prints, as it would for a user; `eval` undoes its quotes.
    run("bash", "-c", f'eval "{command}"', cwd=tmp_path, **environment)
    check_app(tmp_path / "app", bundle, LD_LIBRARY_PATH=str(bundle / "lib"))


@pytest.mark.parametrize(
    "mode", ["caller", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("file", "embed"))]
)  # tests/runtime/test_project.py has the first two of MODES
def test_everything_is_rebuilt_from_src(mode: str, bundles: dict[str, Path], tmp_path: Path) -> None:
    bundle = bundles[mode]
    copy = Path(shutil.copytree(bundle, tmp_path / "cöpy"))
    for built in ("lib", "bin"):
        shutil.rmtree(copy / built)
    run("cmake", "-S", copy, "-B", "build", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    loader = tmp_path / "build" / "bin" / "small"
    params = [] if bundle.name == "small embed" else ["--params", copy / "params" / "small.params"]
    result = json.loads(run(loader, "verify", copy / "test", *params, cwd=tmp_path))
    assert result["status"] == "ok"


def test_the_commands_of_the_readme_work(bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    readme = (copy / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (bin/small .*?)(?:\s+#.*)?$", readme, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["verify", "bench", "run", "info"]
    for command in commands:
        assert json.loads(run(*shlex.split(command), cwd=copy))["status"] == "ok", command
    assert (copy / "output_0.bin").read_bytes() == (copy / "test" / "output_0.bin").read_bytes()


def test_it_can_be_moved_and_still_verifies(bundle: Path, tmp_path: Path) -> None:
    assert Bundle(shutil.copytree(bundle, tmp_path / "élsewhere")).verify().ok
