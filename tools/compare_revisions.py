#!/usr/bin/env python3
"""Packs networks for devices with the code of two revisions and says what differs in the bundles.

    tools/compare_revisions.py BEFORE [AFTER] [--work DIR] [--jobs N] [--network NAME ...] [--device NAME ...]

BEFORE and AFTER are git revisions; without AFTER it is the working tree. Each is installed as a wheel into a
folder of its own, so that the code compared is the code that users get, and every bundle is packed by
``python -m edgepack pack`` with an empty cache. Run it with the Python of an environment that has edgepack's
dependencies and pip.

Must be equal for every network and device, whatever was restructured:

* the kernels' object file, byte for byte or, where symbols were renamed, in all its sections of code;
* the params file, byte for byte; the recorded inputs and outputs;
* the manifest but for the C sources, the linked files and their sizes: arena, steps, kernels, tolerances.

And, once: what ``devices``, ``toolchains`` and ``inspect`` of a model print as JSON. Other files (C sources,
libraries, projects) are listed where they differ, for whoever explains it. The exit status is 1 if something
differs that must be equal. Results of a revision are kept in DIR, so that it is packed once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: Each family of networks that the tests have, at sizes that are quick to pack.
NETWORKS = (
    "bert",
    "convnext",
    "ds_cnn",
    "efficientnet",
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_shufflenet",
    "light_squeezenet",
    "light_zfnet512",
    "mlp",
    "mobilenetv2",
    "mobilenetv3",
    "regnet",
    "resnet18",
    "resnet50",
    "segformer",
    "unet_resize",
    "unet_transpose",
    "vit",
    "yolo",
)
#: Each architecture and object format; two kinds of x86-64 and of ARM with other register files.
DEVICES = (
    "cortex-m7",
    "linux-armv6",
    "linux-riscv64",
    "linux-x86_64-multi",
    "linux-x86_64-v4",
    "macos-arm64",
    "raspberrypi2",
    "raspberrypi4",
    "wasm32-wasi",
    "windows-x86_64-v3",
)
#: Commands whose output is compared once, besides ``inspect`` of each network.
COMMANDS = (["devices", "--json"], ["toolchains", "--json"])


def main() -> int:
    """Parses the command line, packs with both revisions, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("before", help="git revision")
    parser.add_argument("after", nargs="?", help="git revision; default the working tree")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "compare", help="where results are kept"
    )
    parser.add_argument("--jobs", type=int, default=2, help="bundles packed at a time")
    parser.add_argument("--network", action="append", choices=NETWORKS, metavar="NAME")
    parser.add_argument("--device", action="append", metavar="NAME")
    arguments = parser.parse_args()
    networks = tuple(arguments.network or NETWORKS)
    devices = tuple(arguments.device or DEVICES)
    models = write_models(networks, arguments.work / "models")
    before = results(arguments.before, models, devices, arguments.work, arguments.jobs)
    after = results(arguments.after, models, devices, arguments.work, arguments.jobs)
    return report(before, after, len(networks), len(devices))


def write_models(networks: tuple[str, ...], folder: Path) -> dict[str, tuple[Path, dict[str, int]]]:
    """The networks as ONNX files in ``folder``, each with the sizes of its open dimensions."""
    from workbench.models import DIMS, build, save

    folder.mkdir(parents=True, exist_ok=True)
    models = {}
    for name in networks:
        path = folder / f"{name}.onnx"
        if not path.exists():
            save(build(name), folder, path.name)
        models[name] = path, DIMS.get(name, {})
    return models


def results(
    revision: str | None,
    models: dict[str, tuple[Path, dict[str, int]]],
    devices: tuple[str, ...],
    work: Path,
    jobs: int,
) -> dict[str, Any]:
    """What the code of a revision makes: a key for each command and bundle to what it made."""
    label = _git("rev-parse", f"{revision}^{{commit}}") if revision else "worktree"
    folder = work / label
    if label == "worktree":
        shutil.rmtree(folder, ignore_errors=True)
    if not (folder / "site" / "edgepack").is_dir():
        _install(revision, folder)
    known = folder / "results.json"
    made: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    tasks: dict[str, list[str]] = {" ".join(command): command for command in COMMANDS}
    for name, (path, dims) in models.items():
        tasks[f"inspect {name}"] = ["inspect", str(path), "--json"]
        for device in devices:
            output = folder / "bundles" / f"{name}-{device}"
            sizes = [part for key, value in dims.items() for part in ("--dim", f"{key}={value}")]
            key = f"pack {name} {device}"
            tasks[key] = ["pack", str(path), "-d", device, "-o", str(output), *sizes, "--no-cache", "--json"]
    missing = {key: command for key, command in tasks.items() if key not in made}
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = pool.map(lambda command: _run(command, folder), missing.values())
        for number, (key, outcome) in enumerate(zip(missing, outcomes, strict=True), 1):
            made[key] = outcome
            print(f"\r{label[:12]}: {number} of {len(missing)}", end="", file=sys.stderr, flush=True)
            known.write_text(json.dumps(made, indent=1))
    if missing:
        print(file=sys.stderr)
    return {key: made[key] for key in tasks}


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def _install(revision: str | None, folder: Path) -> None:
    """The revision's wheel, unpacked into ``folder/site`` with its entry points."""
    source = folder / "source"
    source.mkdir(parents=True)
    if revision:
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
    else:
        for name in _git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
            if (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "site"]
    subprocess.run([*command, "."], cwd=source, check=True)


def _run(command: list[str], folder: Path) -> dict[str, Any]:
    """One command's outcome: of ``pack`` the bundle in digests, of others what they print."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "site"),
        "EDGEPACK_CACHE_DIR": str(folder.parent / "cache"),  # of the C compiler: the results are not cached
        "SOURCE_DATE_EPOCH": "0",
    }
    run = subprocess.run(
        [sys.executable, "-m", "edgepack", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return {"exit code": run.returncode, "stderr": _sentence(run.stderr)}
    if command[0] != "pack":
        return {"stdout": json.loads(run.stdout)}
    bundle = Path(command[command.index("-o") + 1])
    outcome = _bundle(bundle)
    shutil.rmtree(bundle)
    return outcome


def _sentence(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("[")]
    return " ".join(lines[-4:])


def _bundle(bundle: Path) -> dict[str, Any]:
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    files = {file.pop("path"): file["sha256"] for file in manifest.pop("files")}
    must = {path: digest for path, digest in files.items() if path.startswith(("params/", "test/"))}
    for path in list(must):
        del files[path]
    code = {}
    for path in [path for path in files if path.endswith(".o")]:
        code[path] = {"file": files.pop(path), "code": _code(bundle / path)}
    return {"must": must, "objects": code, "manifest": _comparable(manifest), "files": files}


def _comparable(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without sizes of what the runtime's C became."""
    manifest["runtime"].pop("text_bytes", None)
    for artifact in manifest["artifacts"]:
        artifact.pop("nbytes", None)
    if manifest.get("footprint"):
        manifest["footprint"] = {"sections": len(manifest["footprint"])}
    return manifest


def _code(path: Path) -> list[str] | None:
    """Digests of the object's sections of code in order; None where no reader knows the format."""
    import lief

    binary = lief.parse(str(path))
    if binary is None:
        return None
    found = []
    for section in binary.sections:
        if "text" in str(section.name):
            found.append(hashlib.sha256(bytes(section.content)).hexdigest())
    return found or None


def _same_code(before: dict[str, Any], after: dict[str, Any]) -> bool:
    if before.keys() != after.keys():
        return False
    return all(
        one["file"] == after[path]["file"] or (one["code"] is not None and one["code"] == after[path]["code"])
        for path, one in before.items()
    )


def report(before: dict[str, Any], after: dict[str, Any], networks: int, devices: int) -> int:
    """Prints what differs; the exit status."""
    wrong: list[str] = []
    others: Counter[str] = Counter()
    packed = refused = 0
    for key, old in before.items():
        new = after[key]
        if "must" not in old or "must" not in new:
            refused += key.startswith("pack ") and "exit code" in old
            if old != new:
                wrong.append(f"{key}: {_short(old)} -> {_short(new)}")
            continue
        packed += 1
        if not _same_code(old["objects"], new["objects"]):
            wrong.append(f"{key}: machine code")
        wrong += [f"{key}: {path}" for path in _differing(old["must"], new["must"])]
        wrong += [f"{key}: manifest, {field}" for field in _differing(old["manifest"], new["manifest"])]
        others.update(_differing(old["files"], new["files"]))
    print(f"{networks} networks, {devices} devices: {packed} bundles compared, {refused} refused by both")
    folders: dict[str, list[str]] = {}
    for path in sorted(others):
        folders.setdefault(str(Path(path).parent), []).append(Path(path).name)
    for folder, names in folders.items():
        print(f"  differs, as what is not compiled from the model may: {folder}/ ({len(names)} names)")
    for line in wrong:
        print(f"  DIFFERS: {line}")
    print("what must be equal is equal" if not wrong else f"{len(wrong)} differences in what must be equal")
    return 1 if wrong else 0


def _differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _short(outcome: dict[str, Any]) -> str:
    return json.dumps(outcome)[:200]


if __name__ == "__main__":
    sys.exit(main())
