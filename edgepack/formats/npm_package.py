"""The npm package of a bundle for WebAssembly as the tarball that ``npm pack`` would make of it.

Such a bundle is a package already (:mod:`edgepack.formats.platform.npm`); here its package.json gets the
caller's metadata, and its README speaks to who installs it. Source: the documentation of package.json and of
npm-pack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.platform.npm import SYSTEMS, check_identity
from edgepack.render.templates import render

__all__ = ["NPM"]

#: What is taken over of the bundle's own package.json: no scripts, which npm would run.
_FIELDS = ("type", "main", "types", "exports", "files", "sideEffects", "engines")


def _refusal(bundle: SourceBundle) -> str:
    if bundle.manifest.device.os not in SYSTEMS:
        return f"npm packages are made of bundles for WebAssembly, not for {bundle.manifest.device.name}."
    if bundle.artifact("shared") is None or "package.json" not in bundle.files():
        return "it has no module for JavaScript; pack for a device whose artifacts include `shared`."
    return ""


def _package_json(job: ExportJob) -> dict[str, Any]:
    path = job.bundle.root / "package.json"
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
        package = {name: own[name] for name in _FIELDS if name in own}
        name, version = str(own["name"]), str(own["version"])
        files = [str(one) for one in package["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not what edgepack wrote: {error}.", hint="Pack the model again."
        ) from error
    meta = job.package
    name, version = meta.name or name, meta.version or version
    check_identity(name, version)
    identity: dict[str, Any] = {
        "name": name,
        "version": version,
        "description": meta.summary or f"{job.name}, a model compiled ahead of time to WebAssembly",
        "license": meta.license or "SEE LICENSE IN LICENSES/NOTICE.txt",
    }
    if meta.homepage:
        identity["homepage"] = meta.homepage
    if meta.authors:
        people = [_person(author) for author in meta.authors]
        identity |= {"author": people[0], **({"contributors": people[1:]} if people[1:] else {})}
    return {**identity, **package, "files": files}


def _person(author: str) -> dict[str, str]:
    name, separator, mail = author.rpartition(" <")
    return {"name": name, "email": mail.rstrip(">")} if separator else {"name": author}


def _write(job: ExportJob) -> Sequence[str]:
    package, bundle = _package_json(job), job.bundle
    file = f"{package['name'].lstrip('@').replace('/', '-')}-{package['version']}.tgz"
    readme = render(
        "formats/npm/readme.md.j2",
        {
            "m": bundle.manifest,
            "package_name": package["name"],
            "summary": package["description"],
            "file": file,
        },
    )
    texts = {"package.json": json.dumps(package, indent=2, ensure_ascii=False) + "\n", "README.md": readme}
    entries = [Entry(name, text.encode()) for name, text in texts.items()]
    for path in bundle.files():
        listed = any(path == one or (one.endswith("/") and path.startswith(one)) for one in package["files"])
        if listed and path not in texts:
            entries.append(Entry(path, bundle.root / path))
    write_tar_gz(job.folder / file, [entry.below("package") for entry in entries])
    return [file]


NPM = ExportFormat("An npm package for pages and node, of a bundle for WebAssembly", _refusal, _write)
