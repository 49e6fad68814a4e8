"""The CMake and pkg-config files of a bundle; tests/runtime/test_project.py builds with them."""

from __future__ import annotations

import pytest

from edgepack.render.project import render_project
from edgepack.render.sources import kernels_object
from tests.support.mini import mini_plan


@pytest.mark.parametrize("shared", [None, "lib/libmini.so"])
def test_project_names_only_what_was_built(shared: str | None) -> None:
    kernels = [kernels_object(0, 1)]
    texts = render_project(
        mini_plan(), kernels=kernels, params_mode="embed", shared=shared, static="lib/libmini.a"
    )
    config = texts["cmake/mini-config.cmake"]
    assert ("libmini.so" in config) == (shared is not None)
    assert "mini::static" in config
    assert "mini_PARAMS" not in config  # they are in the library
    libs = texts["pkgconfig/mini.pc"]
    assert ("Libs.private" in libs) == (shared is not None)
