"""Bundles of the mini model, built once per test process and way of building."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.mini import VARIANTS, MiniBundle, make_sources

#: How programs are built that are to touch no memory but their own.
CHECKED = os.environ.get("EDGEPACK_TEST_CHECKED", "address")

Build = Callable[..., MiniBundle]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build(variant, mode="file")``: the mini bundle, built in one of the VARIANTS."""
    built: dict[tuple[str, str], MiniBundle] = {}

    def make(variant: str, mode: str = "file") -> MiniBundle:
        if (variant, mode) not in built:
            cc, flags = VARIANTS[variant]
            root = tmp_path_factory.mktemp(f"{variant}-{mode}") / "mini bündle"
            bundle = make_sources(root, mode=mode)  # type: ignore[arg-type]
            built[variant, mode] = bundle.build(cc=cc, flags=flags)
        return built[variant, mode]

    return make


@pytest.fixture(scope="session")
def mini(build: Build) -> MiniBundle:
    """The mini bundle, built with gcc, params in a file."""
    return build("gcc")


@pytest.fixture(scope="session")
def here() -> Path:
    """The folder of these tests, with their C programs."""
    return Path(__file__).parent
