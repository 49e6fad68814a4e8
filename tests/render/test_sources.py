"""Which C files a bundle holds, and the macro that embeds its params."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.errors import ConfigError
from edgepack.render.sources import LOADER_SOURCES, MODULE_SOURCE, params_define, runtime_files
from edgepack.resources import TEMPLATES


def test_loader_sources_are_all_there() -> None:
    shipped = {name for name in runtime_files() if name.startswith("src/loader/") and name.endswith(".c")}
    assert shipped == set(LOADER_SOURCES)
    assert "include/edgepack/runtime.h" in runtime_files()


def test_every_c_file_of_the_runtime_is_shipped_once() -> None:
    """Where the templates have it, but for the public header, which is on the include path of users."""
    files = runtime_files(["opencl"], signed=True, cascades=True)
    runtime = {path for path in (TEMPLATES / "runtime").rglob("*") if path.is_file()}
    assert runtime <= set(files.values())
    assert len(set(files.values())) == len(files)
    assert MODULE_SOURCE in files
    assert "src/runtime/core/session.c" in files
    assert "src/runtime/platform/posix.c" in files
    of_gpus = {name for name in files if name.startswith("src/runtime/gpu/")}
    others = {"src/runtime/signed/ed25519.c", "src/runtime/cascade/cascade.h"}
    assert files.keys() - runtime_files().keys() == of_gpus | others
    assert of_gpus


def test_params_define_refuses_what_no_assembler_takes(tmp_path: Path) -> None:
    assert params_define(tmp_path / "with space" / "ü.params").startswith('"/')
    with pytest.raises(ConfigError, match="cannot be embedded"):
        params_define(tmp_path / 'a"b' / "x.params")
