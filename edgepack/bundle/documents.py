"""The texts of a bundle beside its code: README, CMake and pkg-config files, what a platform adds."""

from __future__ import annotations

from typing import Protocol

from edgepack.bundle.manifest import Manifest
from edgepack.bundle.recipe import Recipe
from edgepack.plan.types import Plan
from edgepack.registry import PLATFORM_FILES
from edgepack.render.project import render_project
from edgepack.render.templates import render

__all__ = ["PlatformFiles", "bundle_texts"]


class PlatformFiles(Protocol):
    """What a bundle for one platform holds beside, or instead of, the texts of every bundle."""

    def __call__(self, recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
        """Path in the bundle to text; an empty text leaves one of the common files out."""
        ...


def bundle_texts(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """Path in the bundle -> text."""
    built = {artifact.kind: artifact.path for artifact in manifest.artifacts}
    texts = render_project(
        plan,
        kernels=recipe.kernels,
        params_mode=recipe.params_mode,
        shared=built.get("shared"),
        static=built.get("static"),
        libraries=recipe.device.libraries,
        arch=recipe.device.arch,
    )
    values = {
        "m": manifest,
        "built": built,
        "macro": recipe.name.upper(),
        "params": recipe.layout.params,
        "package_name": recipe.package_name,
    }
    texts["README.md"] = render("project/README.md.j2", values)
    if recipe.device.os in PLATFORM_FILES:
        platform_files: PlatformFiles = PLATFORM_FILES.find(recipe.device.os)
        texts |= platform_files(recipe, plan, manifest)
    return {path: text for path, text in texts.items() if text}
