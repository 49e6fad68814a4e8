"""What bundles for macOS and iOS have beside the common files: a module map, by which Swift imports the
header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.bundle.manifest import Manifest
from edgepack.plan.types import Plan
from edgepack.render.templates import render

if TYPE_CHECKING:
    from edgepack.bundle.recipe import Recipe

__all__ = ["package_files"]


def package_files(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """Path in the bundle -> text. The map lies in a folder of the module's name, where clang finds it too:
    the headers of several bundles can go into one folder."""
    del plan
    values = {"name": recipe.name, "version": manifest.edgepack}
    text = render("platform/apple/module.modulemap.j2", values)
    return {f"include/{recipe.name}/module.modulemap": text}
