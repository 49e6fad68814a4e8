"""What an Android developer reads beside the README: how the bundle gets into an app."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgepack.bundle.manifest import Manifest
from edgepack.plan.types import Plan
from edgepack.render.templates import render
from edgepack.toolchains.ndk import ABIS

if TYPE_CHECKING:
    from edgepack.bundle.recipe import Recipe

__all__ = ["package_files"]


def package_files(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """Path in the bundle -> text."""
    del plan
    device, layout = recipe.device, recipe.layout
    level = re.search(r"[0-9]+$", recipe.toolchain.target.target)
    values = {
        "m": manifest,
        "abi": ABIS.get(device.arch, device.arch),
        "level": level[0] if level else "of the toolchain",
        "page": device.page_size // 1024,
        "params": layout.params,
        "program": layout.program,
        "shared": layout.shared if manifest.artifact("shared") else "",
    }
    return {"ANDROID.md": render("platform/android/ANDROID.md.j2", values)}
