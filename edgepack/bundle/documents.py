"""The texts of a bundle beside its code: README, CMake and pkg-config files, and what a platform wants beside
these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from edgepack.bundle.manifest import Manifest
from edgepack.plan.types import Plan
from edgepack.render import sources as driver
from edgepack.render.documents import render

if TYPE_CHECKING:
    from edgepack.bundle.recipe import Recipe

__all__ = ["papers"]

Papers = Callable[["Recipe", Plan, Manifest], dict[str, str]]

#: By operating system: the function that writes what its users need beside, or instead of, the common texts;
#: an empty text leaves a common one out.
_PLATFORMS: Mapping[str, str] = {
    "android": "edgepack.formats.android:papers",
    "none": "edgepack.bundle.firmware.project:papers",
    "wasi": "edgepack.formats.npm:papers",
}


def papers(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """Path in the bundle -> text."""
    built = {artifact.kind: artifact.path for artifact in manifest.artifacts}
    texts = driver.render_project(
        plan,
        kernels=recipe.kernels,
        params_mode=recipe.params_mode,
        shared=built.get("shared"),
        static=built.get("static"),
        libraries=recipe.device.libraries,
    )
    values = {"m": manifest, "built": built, "macro": recipe.name.upper(), "params": recipe.layout.params}
    texts["README.md"] = render("bundle/README.md.j2", values)
    if place := _PLATFORMS.get(recipe.device.os):
        module, _, name = place.partition(":")
        more: Papers = getattr(import_module(module), name)
        texts |= more(recipe, plan, manifest)
    return {path: text for path, text in texts.items() if text}
