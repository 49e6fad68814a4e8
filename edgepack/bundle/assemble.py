"""Makes a bundle's folder from the worker's results: sources, libraries, program, params, recorded data,
texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgepack.bundle import web_threads
from edgepack.bundle.checksums import write_sums
from edgepack.bundle.compile_sources import compile_sources
from edgepack.bundle.documents import bundle_texts
from edgepack.bundle.firmware import project as firmware
from edgepack.bundle.firmware.placement import move_params, place_outside
from edgepack.bundle.layout import MANIFEST, SBOM
from edgepack.bundle.manifest import (
    Artifact,
    FileRecord,
    Footprint,
    Manifest,
)
from edgepack.bundle.manifest_builder import Built, make_manifest
from edgepack.bundle.merge_params import share_params
from edgepack.bundle.params_layout import params_layout
from edgepack.bundle.recipe import Recipe
from edgepack.bundle.recorded_records import CornerRecord, Recorded, RecordedTensor
from edgepack.bundle.sbom import render_sbom
from edgepack.bundle.writer import normalise_modes
from edgepack.config.device_sections import ArtifactKind
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.code_size import runtime_text_bytes
from edgepack.objectfiles.loading import loader_digest
from edgepack.pipeline.job import UNCONFINED, WARNINGS
from edgepack.plan.nested import NESTED
from edgepack.plan.types import Plan
from edgepack.render import sources
from edgepack.render.model import Execution, TrustedKey, Variant, render_model
from edgepack.render.names import direct_symbol, model_symbol
from edgepack.render.params_file import SIGNATURE_BYTES, params_file_bytes, write_params
from edgepack.resources import TEMPLATES
from edgepack.system.files import list_files, sha256_file
from edgepack.system.progress import Progress

__all__ = ["assemble"]


def assemble(recipe: Recipe, progress: Progress) -> Manifest:
    """Fill ``recipe.bundle``; returns its manifest.

    Raises:
        ToolchainError: compiling or linking failed.
        CheckFailedError: a file that was built needs or exports what it must not.
    """
    progress("write sources", "")
    variants, blob = _variants(recipe)
    if recipe.device.memories:
        recipe, variants, blob = _placed(recipe, variants[-1], blob)
    plan = variants[-1].plan
    layout = _write_kernels(recipe, variants)
    params_id = _write_sources(recipe, variants, blob, layout)
    recorded = _copy_recorded(recipe)
    if recipe.device.bare_metal:
        firmware.check_estimate(recipe, plan)
        firmware.write_sources(recipe, plan, recorded)
    artifacts, footprint = _build(recipe, plan, progress)
    threads = web_threads.build(recipe, plan, progress)
    progress("write bundle", "")
    before = () if recipe.quantised is None else (recipe.quantised,)
    folders = (*before, recipe.imported, *(one.folder for one in recipe.compiled))
    built = Built(
        variants=variants,
        params_id=params_id.hex(),
        params_layout=layout.hex(),
        recorded=recorded,
        artifacts=artifacts,
        web_threads=threads,
        footprint=footprint,
        text_bytes=_runtime_bytes(recipe),
        warnings=[text for folder in folders for text in _read_json(folder / WARNINGS)],
        unconfined=_unconfined(folders),
        nested=_read_json(nested) if (nested := recipe.imported / NESTED).is_file() else None,
        params_place=firmware.params_address(recipe, plan),
    )
    manifest = make_manifest(recipe, built)
    return _write_texts(recipe, plan, manifest)


def _unconfined(folders: Iterable[Path]) -> str:
    """Why a worker that made something of this was not confined; "" where all were."""
    files = (folder / UNCONFINED for folder in folders)
    return next((file.read_text(encoding="utf-8") for file in files if file.is_file()), "")


def _variants(recipe: Recipe) -> tuple[list[Variant], Path]:
    """The plans, and the file with the params of them all."""
    folders = [one.folder for one in recipe.compiled]
    plans = [Plan.from_json((folder / "plan.json").read_text(encoding="utf-8")) for folder in folders]
    blob = folders[-1] / "params.bin"
    if len(plans) > 1:
        names = [one.name for one in recipe.compiled]
        blob = recipe.build / "params.bin"
        plans = share_params(plans, names, [folder / "params.bin" for folder in folders], blob)
    return [
        Variant(one.name, plan, one.cpu_requires, one.gpu_kernels)
        for one, plan in zip(recipe.compiled, plans, strict=True)
    ], blob


def _placed(recipe: Recipe, variant: Variant, blob: Path) -> tuple[Recipe, list[Variant], Path]:
    """The recipe with what lies in which of the device's memories, and the plan and params in that order,
    which is another one where the params are in the image."""
    if recipe.params_mode != "embed":
        file_bytes = params_file_bytes(variant.plan, listed=False) + SIGNATURE_BYTES
        outside = place_outside(variant.plan, recipe.device, recipe.compiled[-1].kernels, file_bytes)
        return replace(recipe, placed=outside), [variant], blob
    output = recipe.build / "placed.bin"
    plan, placed = move_params(variant.plan, recipe.device, recipe.compiled[-1].kernels, blob, output)
    return replace(recipe, placed=placed), [replace(variant, plan=plan)], output


def _write_kernels(recipe: Recipe, variants: Sequence[Variant]) -> bytes:
    """Kernels' objects and the user's C; returns the layout that params must have for them."""
    root = recipe.bundle
    (root / "src").mkdir()
    for one, name in zip(recipe.compiled, recipe.kernels, strict=True):
        recipe.toolchain.strip_debug(one.kernels, root / name)
        # Not every linker takes a list of what a library exports.
        recipe.toolchain.format.hide_symbols(root / name, ())
    for source in recipe.custom:
        _write(root / "src" / "custom" / source.name, source.read_text(encoding="utf-8"))
    code = [*(root / name for name in recipe.kernels), *recipe.custom]
    gpu = [one.gpu_kernels for one in recipe.compiled]
    texts = [text for one in gpu for text in (one.source.encode(), *(image.content for image in one.images))]
    return params_layout([variant.plan for variant in variants], code, texts)


def _write_sources(recipe: Recipe, variants: Sequence[Variant], blob: Path, layout: bytes) -> bytes:
    """Params, C sources, licences; returns the params' id."""
    root = recipe.bundle
    params = root / recipe.layout.params
    params.parent.mkdir(parents=True)
    listed = not recipe.device.bare_metal
    params_id = write_params(variants[-1].plan, blob, params, listed=listed)
    texts = render_model(
        variants,
        params_id=params_id,
        params_mode=recipe.params_mode,
        execution=Execution(
            cpu_arch=recipe.device.arch,
            threads=recipe.device.threads,
            heterogeneous=recipe.device.heterogeneous,
            keep_denormals=recipe.options.strict_math,
            params_listed=listed,
            direct=recipe.device.bare_metal,
            placed=recipe.placed,
        ),
        trusted=TrustedKey(recipe.params_key, layout) if recipe.params_key else None,
    )
    for name, text in texts.items():
        _write(root / name, text)
    cascades = any(kernel.cascade for variant in variants for kernel in variant.plan.kernels)
    signed = bool(recipe.params_key)
    for name, source in sources.runtime_files(recipe.gpu_apis, signed=signed, cascades=cascades).items():
        _write(root / name, source.read_text(encoding="utf-8"))
    for kernels in (one.gpu_source for one in recipe.compiled):
        if kernels is not None:
            _write(root / "src" / kernels.name, kernels.read_text(encoding="utf-8"))
    shutil.copytree(TEMPLATES / "project" / "LICENSES", root / "LICENSES", copy_function=shutil.copyfile)
    return params_id


def _build(recipe: Recipe, plan: Plan, progress: Progress) -> tuple[list[Artifact], Footprint | None]:
    """Compile and link what the device asks for, and audit it; firmware is measured too."""
    root, device, toolchain, layout = recipe.bundle, recipe.device, recipe.toolchain, recipe.layout
    progress("compile C", "")
    objects = compile_sources(recipe)
    model = objects[sources.MODEL_SOURCE]
    loader = [objects[name] for name in sources.LOADER_SOURCES if name in objects]
    library = [model, *(root / name for name in recipe.kernels)]
    bare = device.bare_metal
    symbol = [model_symbol(recipe.name)]
    source, functions = sources.shared_library(recipe.name, device.os)
    symbol += [direct_symbol(recipe.name)] * bare
    exported = {"shared": functions, "static": symbol, "program": []}
    toolchain.wait_until_prepared(progress)
    progress("link", "")
    footprint = firmware.measured(recipe, plan, objects, library) if bare else None
    for kind in device.artifacts:
        output = root / layout.artifacts[kind]
        output.parent.mkdir(exist_ok=True)
        if kind == "shared":
            of_shared = [objects[source], *library[1:]]
            toolchain.link_shared(of_shared, output, exported=functions, soname=output.name)
        elif kind == "static":
            toolchain.archive(library, output, exported=symbol)
        elif bare:
            firmware.link(recipe, plan, objects, library, output)
        else:
            toolchain.link_program([*loader, *library], output)
    progress("audit", "")
    integers = bare and plan.float_calls == 0
    return [_audited(recipe, kind, exported[kind], integers) for kind in device.artifacts], footprint


def _audited(recipe: Recipe, kind: ArtifactKind, exported: list[str], integers: bool) -> Artifact:
    path = recipe.layout.artifacts[kind]
    report = audit(recipe.bundle / path, recipe.device, kind=kind, exported=exported, integers=integers)
    nbytes = (recipe.bundle / path).stat().st_size
    loads = kind == "shared" and recipe.device.object_format != "wasm"
    try:
        read = loader_digest(recipe.bundle / path, recipe.device.os, recipe.device.arch) if loads else ""
    except ValueError as error:
        raise CheckFailedError(
            f"{Path(path).name} could not be loaded: {error}.", hint="Build with another --toolchain."
        ) from error
    return Artifact(kind=kind, path=path, nbytes=nbytes, loader_sha256=read, audit=report.to_json())


def _runtime_bytes(recipe: Recipe) -> int | None:
    shared = recipe.bundle / recipe.layout.shared
    kernels = [recipe.bundle / name for name in recipe.kernels]
    return runtime_text_bytes(shared, kernels) if shared.is_file() else None


def _copy_recorded(recipe: Recipe) -> Recorded:
    """``test/``: the recorded tensors and their tolerances."""
    source = recipe.imported / "recorded"
    data = _read_json(source / "recorded.json")
    names = data.pop("corners", [])
    left_out = data.pop("corners_left_out", {})
    if recipe.device.bare_metal:
        left_out = {**left_out, **dict.fromkeys(names, "an image holds the usual run alone")}
        names = []
    tensors = _copy_run(source, recipe.bundle, "test", data)
    corners = []
    for name in names:
        own = _read_json(source / name / "recorded.json")
        run = _copy_run(source / name, recipe.bundle, f"test/{name}", own)
        inputs, outputs = run["inputs"], run["outputs"]
        corners.append(CornerRecord(name=name, inputs=inputs, outputs=outputs))
    return Recorded(
        reference=data["reference"],
        noise_of=data.get("noise_of", ""),
        drawn=data.get("drawn", ""),
        inputs=tensors["inputs"],
        outputs=tensors["outputs"],
        corners=tuple(corners),
        corners_left_out=left_out,
    )


def _copy_run(
    source: Path, bundle: Path, folder: str, data: dict[str, Any]
) -> dict[str, tuple[RecordedTensor, ...]]:
    """A recorded run in a folder of the bundle, as a manifest has it: its inputs and outputs."""
    target = bundle / folder
    target.mkdir()
    for tensor in (*data["inputs"], *data["outputs"]):
        shutil.copyfile(source / tensor["file"], target / tensor["file"])
    lines = [f"{output['atol']!r} {output['rtol']!r}\n" for output in data["outputs"]]
    _write(target / "tolerances.txt", "".join(lines))
    _write(target / "recorded.json", json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return {
        role: tuple(RecordedTensor(**{**one, "file": f"{folder}/{one['file']}"}) for one in data[role])
        for role in ("inputs", "outputs")
    }


def _write_texts(recipe: Recipe, plan: Plan, manifest: Manifest) -> Manifest:
    """Texts, bill of materials, manifest, checksums: in this order."""
    root = recipe.bundle
    built = {artifact.kind: artifact.path for artifact in manifest.artifacts}
    for name, text in bundle_texts(recipe, plan, manifest).items():
        _write(root / name, text)
    manifest = manifest.model_copy(update={"files": _files(root)})
    _write(root / SBOM, render_sbom(manifest))
    manifest = manifest.model_copy(update={"files": _files(root)})
    _write(root / MANIFEST, manifest.to_json())
    write_sums(root)
    executables = {built[kind] for kind in ("program", "shared") if kind in built}
    normalise_modes(root, executables)
    return manifest


def _files(root: Path) -> tuple[FileRecord, ...]:
    return tuple(
        FileRecord(path=name, nbytes=(root / name).stat().st_size, sha256=sha256_file(root / name))
        for name in list_files(root)
    )


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
