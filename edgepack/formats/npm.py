"""A bundle for WebAssembly as an npm package: loader, types, package.json, and a page to try it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edgepack.bundle.manifest import Manifest
from edgepack.plan.types import Plan
from edgepack.render.params_file import params_file_bytes
from edgepack.render.templates import render
from edgepack.resources import TEMPLATES

if TYPE_CHECKING:
    from edgepack.bundle.recipe import Recipe

__all__ = ["package_files", "package_name"]

#: Path in the bundle -> file in templates/web that is the same for every model.
_PLAIN = {
    "worker.js": "worker.js",
    **{
        f"web/{name}": name
        for name in ("dtypes.js", "error.js", "runtime.d.ts", "runtime.js", "sources.js", "thread.js")
    },
    **{f"demo/{name}": f"demo/{name}" for name in ("demo.js", "image.js", "results.js", "style.css")},
}
#: The same for templates.
_RENDERED = {
    "index.js": "index.js.j2",
    "index.d.ts": "index.d.ts.j2",
    "worker.d.ts": "worker.d.ts.j2",
    "web/steps.js": "steps.js.j2",
    "demo/index.html": "demo/index.html.j2",
}
_NOTES = {"float16": ", their bits", "bfloat16": ", their bits", "bool": ", 0 or 1"}


def package_files(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """Path in the bundle -> text; nothing for a device whose bundles hold no module."""
    module = manifest.artifact("shared")
    if module is None:
        return {}
    rules = {kernel.symbol: kernel.rule for kernel in manifest.kernels}
    values = {
        "m": manifest,
        "module": module.path,
        "params_bytes": params_file_bytes(plan),
        "features": [one[1:] for one in manifest.device.features if one.startswith("+")],
        "notes": {tensor.dtype: "" for tensor in (*manifest.inputs, *manifest.outputs)} | _NOTES,
        "rules": rules,
    }
    texts = {path: (TEMPLATES / "web" / name).read_text(encoding="utf-8") for path, name in _PLAIN.items()}
    texts |= {path: render(f"web/{name}", values) for path, name in _RENDERED.items()}
    texts["package.json"] = _package(manifest, module.path)
    return texts


def package_name(manifest: Manifest) -> str:
    """``mobilenetv2-wasm``: lower case, as npm demands, and no name of a module of node."""
    return f"{manifest.name.lower()}-wasm"


def _package(manifest: Manifest, module: str) -> str:
    made_by = f"edgepack {manifest.edgepack}"
    files = ["index.js", "index.d.ts", "worker.js", "worker.d.ts", "web/", "LICENSES/", module]
    exports: dict[str, Any] = {
        ".": {"types": "./index.d.ts", "default": "./index.js"},
        "./worker": {"types": "./worker.d.ts", "default": "./worker.js"},
        f"./{module}": f"./{module}",
    }
    if manifest.params.mode == "file" and manifest.params.file:
        files.append(manifest.params.file)
        exports[f"./{manifest.params.file}"] = f"./{manifest.params.file}"
    package = {
        "name": package_name(manifest),
        "version": "1.0.0",
        "description": f"{manifest.name}, compiled ahead of time to WebAssembly by {made_by}",
        "license": "SEE LICENSE IN LICENSES/NOTICE.txt",
        "type": "module",
        "main": "./index.js",
        "types": "./index.d.ts",
        "exports": {**exports, "./package.json": "./package.json"},
        "files": files,
        "sideEffects": False,
        "engines": {"node": ">=18"},
    }
    return json.dumps(package, indent=2) + "\n"
