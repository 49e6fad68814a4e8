"""A Go module: cgo over the static libraries of one or several targets.

All files that a build needs lie in folders with Go files, for ``go mod vendor`` leaves out others; libraries
and params have their digest in their names, for cgo's cache looks at names only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.abi.header import header
from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_zip
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import Argument, argument_lists, package_name, quoted, snake_case
from edgepack.render.templates import render
from edgepack.system.files import sha256_file

__all__ = ["GO"]

_TYPES = {
    "bool": "byte",
    "float16": "uint16",
    "bfloat16": "uint16",
    "float32": "float32",
    "float64": "float64",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
#: Keywords, and what the generated functions and programs name.
_KEYWORDS = frozenset(
    """
    break case chan const continue default defer else fallthrough for func go goto if import interface map
    package range return select struct switch type var
    byte check err error fmt init len log main make model nil s session string unsafe
    float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
    """.split()  # noqa: SIM905
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm": "arm", "riscv64": "riscv64"}
_SYSTEMS = {
    "linux": ("linux", "linux && !android", " -lm -ldl -lpthread"),
    "android": ("android", "android", " -lm"),
    "macos": ("darwin", "darwin && !ios", ""),
    "windows": ("windows", "windows", ""),
}


@dataclass(frozen=True)
class _Target:
    """What Go builds for.

    Attributes:
        name: ``linux/amd64``.
        constraint: of the files that are for it alone.
        flags: of the linker.
        library, params: names of the files.
    """

    name: str
    constraint: str
    flags: str
    library: str
    params: str


def _refusal(bundle: SourceBundle) -> str:
    device = bundle.manifest.device
    if device.os not in _SYSTEMS or device.arch not in _ARCHITECTURES:
        return f"the module's targets do not have {device.arch} with {device.os}."
    if bundle.artifact("static") is None:
        return "it has no static library, which the module links."
    return ""


def _target(job: ExportJob, bundle: SourceBundle) -> tuple[_Target, list[Entry]]:
    device, static, params = bundle.manifest.device, bundle.artifact("static"), bundle.params
    assert static is not None, "refused before"
    system, constraint, flags = _SYSTEMS[device.os]
    arch = _ARCHITECTURES[device.arch]
    stem = f"{job.name}_{system}_{arch}"
    library = f"lib{stem}_{_digest(static)}.a"
    file = f"{stem}_{_digest(params)}.params" if params is not None else ""
    entries = [Entry(library, static), *([Entry(file, params)] if params is not None else [])]
    return _Target(f"{system}/{arch}", f"{constraint} && {arch}", flags, library, file), entries


def _digest(path: Path) -> str:
    return sha256_file(path)[:12]


def _targets(job: ExportJob) -> tuple[list[_Target], list[Entry]]:
    found: list[_Target] = []
    entries: list[Entry] = []
    for bundle in job.bundles:
        target, files = _target(job, bundle)
        if target.name in {other.name for other in found}:
            raise ConfigError(
                f"Two bundles are for {target.name}; a Go module has one library for each target.",
                hint="Leave one of them out, or export them one by one.",
            )
        found.append(target)
        entries += files
    return found, entries


def _module(job: ExportJob) -> str:
    """The module's path; from version 2 on it ends in the major version."""
    rule = "a Go module: a host and a path, github.com/acme/detector"
    pattern = r"[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+"
    name = package_name(job.package.name, f"edgepack.local/{job.name}", pattern, rule)
    major = int(job.version.partition(".")[0])
    suffix = f"/v{major}" if major > 1 else ""
    return name if name.endswith(suffix) else name + suffix


def _write(job: ExportJob) -> Sequence[str]:
    if len({bundle.manifest.params.mode == "embed" for bundle in job.bundles}) != 1:
        raise ConfigError(
            "Some of the bundles have their params inside the library, and some in a file.",
            hint="Pack them all with the same --params.",
        )
    targets, entries = _targets(job)
    values = _values(job, targets)
    texts = {"model.go": "model.go.j2", "other.go": "other.go.j2", "README.md": "README.md.j2"}
    entries += [Entry(path, render(f"formats/go/{name}", values).encode()) for path, name in texts.items()]
    entries += [
        Entry("go.mod", f"module {values['module']}\n\ngo 1.17\n".encode()),
        Entry("edgepack/doc.go", b"// Package edgepack is the folder of a C header.\npackage edgepack\n"),
        *(Entry(one.name.removeprefix("/"), one.data) for one in job.headers("")),
        *job.licenses(),
    ]
    for target in targets:
        own = {**values, "target": target}
        suffix = target.name.replace("/", "_")
        entries.append(Entry(f"library_{suffix}.go", render("formats/go/library.go.j2", own).encode()))
        if target.params:
            entries.append(Entry(f"params_{suffix}.S", render("formats/go/params.S.j2", own).encode()))
    stem = str(values["stem"])
    write_zip(job.folder / f"{stem}-go.zip", [entry.below(stem) for entry in entries])
    return [f"{stem}-go.zip"]


def _values(job: ExportJob, targets: Sequence[_Target]) -> dict[str, object]:
    manifest = job.bundle.manifest
    inputs, outputs = argument_lists(manifest, _TYPES, _KEYWORDS, (snake_case(job.name),))
    package = snake_case(job.name) + ("_" if snake_case(job.name) in _KEYWORDS else "")
    used: set[str] = set()
    tensors = [_spelled(one, used) for one in (*inputs, *outputs)]
    constants = {
        code: "Err" + "".join(map(str.capitalize, status.name.split("_")[2:]))
        for code, status in header().statuses.items()
        if code
    }
    return {
        "m": manifest,
        "module": _module(job),
        "package": package,
        "version": job.version,
        "stem": f"{job.name}-{job.version}",
        "summary": job.package.summary
        or f"{manifest.name}, compiled ahead of time by edgepack {manifest.edgepack}",
        "embedded": manifest.params.mode == "embed",
        "targets": targets,
        "tensors": tensors,
        "inputs": tensors[: len(inputs)],
        "outputs": tensors[len(inputs) :],
        "constants": constants,
        "longest": max(map(len, constants.values())),  # columns, as gofmt has them
        "widest": max(len(f"{one['camel']}Elements") for one in tensors),
    }


def _spelled(argument: Argument, used: set[str]) -> dict[str, object]:
    """An argument's fields for the templates, its name also as Go's exported names are: ``my_input`` gives
    ``MyInput``."""
    base = "".join(word[:1].upper() + word[1:] for word in argument.identifier.split("_"))
    camel, count = base, 1
    while camel in used:
        count += 1
        camel = f"{base}X{count}"
    used.add(camel)
    return {**vars(argument), "camel": camel, "quoted": quoted(argument.name)}


GO = ExportFormat("A Go module, by cgo", _refusal, _write, several=True)
