"""A bundle for WebAssembly as an npm package: loader, types, package.json, and a page to try it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import ConfigError
from edgepack.objectfiles.wasm.sections import imported_memories
from edgepack.plan.types import Plan
from edgepack.render.params_file import params_file_bytes
from edgepack.render.templates import render
from edgepack.resources import TEMPLATES

if TYPE_CHECKING:
    from edgepack.bundle.recipe import Recipe

__all__ = ["SYSTEMS", "check_identity", "content_version", "package_files"]

#: Operating systems of the devices whose bundles are npm packages.
SYSTEMS = ("emscripten", "wasi")

#: Path in the bundle -> file in templates/web that is the same for every model.
_PLAIN = {
    **{name: name for name in ("worker.js", "image.js", "image.d.ts", "audio.js", "audio.d.ts")},
    **{
        f"web/{name}": name
        for name in (
            *("dtypes.js", "error.js", "runtime.d.ts", "runtime.js", "sources.js", "thread.js"),
            "threads.js",
        )
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
#: The same of a package with a module for threads that share its memory.
_POOL = {f"web/{name}": name for name in ("pool.js", "pool_worker.js")}
_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
_NUMBER, _PART = r"(?:0|[1-9][0-9]*)", r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PART}(?:\.{_PART})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
#: Of the option `threads`.
_THREADS_DOC = "How many threads compute, 1 to 64. Default: as many as the machine has, at most {}."
_NOTES = {"float16": ", their bits", "bfloat16": ", their bits", "bool": ", 0 or 1"}


def package_files(recipe: Recipe, plan: Plan, manifest: Manifest) -> dict[str, str]:
    """Path in the bundle -> text; nothing for a device whose bundles hold no module."""
    module = manifest.artifact("shared")
    if module is None:
        return {}
    threaded = _threaded(recipe.bundle, manifest)
    rules = {kernel.symbol: kernel.rule for kernel in manifest.kernels}
    glue = str(PurePosixPath(module.path).with_suffix(".mjs")) if manifest.device.os == "emscripten" else ""
    values = {
        "m": manifest,
        "glue": glue,
        "module": module.path,
        "params_bytes": params_file_bytes(plan),
        "features": [one[1:] for one in manifest.device.features if one.startswith("+")],
        "notes": {tensor.dtype: "" for tensor in (*manifest.inputs, *manifest.outputs)} | _NOTES,
        "rules": rules,
        "threaded": threaded,
        "threads": threaded["threads"] if threaded else manifest.runtime.threads,
        "threads_doc": _THREADS_DOC.format(threaded["threads"] if threaded else manifest.runtime.threads),
    }
    plain = _PLAIN | (_POOL if threaded else {})
    texts = {path: (TEMPLATES / "web" / name).read_text(encoding="utf-8") for path, name in plain.items()}
    texts |= {path: render(f"web/{name}", values) for path, name in _RENDERED.items()}
    files = [module.path, *([str(threaded["module"])] if threaded else [])]
    if glue:
        texts["web/emscripten.js"] = (TEMPLATES / "web" / "emscripten.js").read_text(encoding="utf-8")
        files += _scripts(recipe.bundle, glue)
        # The scripts of Emscripten's threads are no ES modules, as other .js files of the package are.
        texts |= dict.fromkeys(("bin/package.json", "lib/package.json"), '{"type": "commonjs"}\n')
    if manifest.params.mode == "file" and manifest.params.file:
        files.append(manifest.params.file)
    contents = {path: (recipe.bundle / path).read_bytes() for path in files}
    version = recipe.package.version or content_version(texts, contents)
    texts["package.json"] = _package(manifest, recipe.package_name, version, files)
    return texts


def _threaded(bundle: Path, manifest: Manifest) -> dict[str, Any]:
    """Of the module with threads: where it lies, how many compute, what memory it takes; {} without one."""
    module = manifest.web_threads
    if module is None:
        return {}
    (memory,) = imported_memories((bundle / module.path).read_bytes())
    tensors = sum(tensor.nbytes for tensor in (*manifest.inputs, *manifest.outputs))
    return {
        "module": module.path,
        "threads": module.threads,
        "pages": memory.minimum,
        "memory_bytes": manifest.params.nbytes + manifest.memory.arena + tensors,
        "thread_bytes": manifest.memory.scratch_per_thread,
    }


def _scripts(bundle: Path, glue: str) -> list[str]:
    """What Emscripten wrote beside the module: the script that starts it, and that of its threads, if it has
    one."""
    threads = str(PurePosixPath(glue).with_suffix(".worker.js"))
    return [glue, *([threads] if (bundle / threads).is_file() else [])]


def check_identity(name: str, version: str) -> None:
    """Raise ConfigError for what npm takes for no name or no version; "" is the default.

    Sources: the documentation of package.json (``name``), and https://semver.org, whose grammar this is.
    """
    if name and (len(name) > 214 or not _NAME.fullmatch(name)):
        raise ConfigError(
            f"{name!r} is no name of an npm package.",
            hint="Lower case letters, digits, `-`, `.`, `_`, perhaps behind a scope: @acme/detector.",
        )
    if version and not _VERSION.fullmatch(version):
        raise ConfigError(
            f"{version!r} is no version of an npm package.",
            hint="Three numbers, and perhaps what comes before a release: 1.2.0, 2.0.0-beta.1.",
        )


def content_version(texts: Mapping[str, str], files: Mapping[str, bytes]) -> str:
    """A version that is another one whenever anything in the package is, params included.

    A digest behind the hyphen, for npm drops what stands behind a plus; with three zeros, for digests have no
    order: no range but the version itself must match. The letter keeps it from being a number with zeros in
    front.
    """
    digest = hashlib.sha256()
    for path, data in sorted({**{path: text.encode() for path, text in texts.items()}, **files}.items()):
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return f"0.0.0-m{digest.hexdigest()[:12]}"


def _package(manifest: Manifest, name: str, version: str, built: Sequence[str]) -> str:
    made_by = f"edgepack {manifest.edgepack}"
    entries = ("index", "worker", "image", "audio")
    scripts = [f"{name}{suffix}" for name in entries for suffix in (".js", ".d.ts")]
    files = [*scripts, "web/", "LICENSES/", *built]
    if manifest.device.os == "emscripten":
        files.append("lib/package.json")
    exports: dict[str, Any] = {
        ".": {"types": "./index.d.ts", "default": "./index.js"},
        **{f"./{name}": {"types": f"./{name}.d.ts", "default": f"./{name}.js"} for name in entries[1:]},
        **{f"./{path}": f"./{path}" for path in built if path.endswith((".wasm", ".params"))},
    }
    package = {
        "name": name,
        "version": version,
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
