"""A Rust crate: the static libraries of one or several targets, their C interface (``sys``) and safe types.

One crate, not two: a ``-sys`` crate is for libraries that several crates share, and this one's only symbol
belongs to it (``links`` says so). ``build.rs`` takes the library by rustc's target; nothing of C is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.abi.header import header
from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import Argument, argument_lists, package_name, quoted, snake_case
from edgepack.render.templates import render

__all__ = ["RUST"]

_TYPES = {
    "bool": "u8",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float16": "u16",
    "bfloat16": "u16",
    "float32": "f32",
    "float64": "f64",
}
_KEYWORDS = frozenset(
    """
    abstract as async await become box break const continue crate do dyn else enum extern false final fn for
    gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super
    trait true try type typeof union unsafe unsized use virtual where while yield
    """.split()  # noqa: SIM905
)
#: What crates of the standard library and the names in the generated function are called.
_CRATES = frozenset({"std", "core", "alloc", "test", "proc_macro", "build", "main"})
_TAKEN = frozenset({"read_buffers", "written_buffers", "session", "check_length", "api", "descriptor"})

#: Architecture, operating system and libc of a device (bionic's and Apple's say nothing) -> rustc's targets.
_TARGETS = {
    ("x86_64", "linux", "glibc"): ("x86_64-unknown-linux-gnu",),
    ("x86_64", "linux", "musl"): ("x86_64-unknown-linux-musl",),
    ("aarch64", "linux", "glibc"): ("aarch64-unknown-linux-gnu",),
    ("aarch64", "linux", "musl"): ("aarch64-unknown-linux-musl",),
    ("armv7", "linux", "glibc"): ("armv7-unknown-linux-gnueabihf", "thumbv7neon-unknown-linux-gnueabihf"),
    ("armv7", "linux", "musl"): ("armv7-unknown-linux-musleabihf",),
    ("armv6", "linux", "glibc"): ("arm-unknown-linux-gnueabihf",),
    ("armv6", "linux", "musl"): ("arm-unknown-linux-musleabihf",),
    ("riscv64", "linux", "glibc"): ("riscv64gc-unknown-linux-gnu",),
    ("riscv64", "linux", "musl"): ("riscv64gc-unknown-linux-musl",),
    ("aarch64", "android", ""): ("aarch64-linux-android",),
    ("armv7", "android", ""): ("armv7-linux-androideabi", "thumbv7neon-linux-androideabi"),
    ("x86_64", "android", ""): ("x86_64-linux-android",),
    ("aarch64", "macos", ""): ("aarch64-apple-darwin",),
    ("x86_64", "macos", ""): ("x86_64-apple-darwin",),
    ("aarch64", "ios", ""): ("aarch64-apple-ios",),
    ("aarch64", "ios-simulator", ""): ("aarch64-apple-ios-sim",),
    ("x86_64", "windows", "mingw"): ("x86_64-pc-windows-gnu", "x86_64-pc-windows-gnullvm"),
    ("aarch64", "windows", "mingw"): ("aarch64-pc-windows-gnullvm",),
}


def _targets(bundle: SourceBundle) -> tuple[str, ...]:
    """rustc's targets that its library is for; none if there is none."""
    device = bundle.manifest.device
    arch = device.triple.split("-")[0].replace("armv7a", "armv7") if device.arch == "arm" else device.arch
    simulator = device.os == "ios" and device.triple.endswith("-simulator")
    libc = device.libc if device.os in {"linux", "windows"} else ""
    return _TARGETS.get((arch, "ios-simulator" if simulator else device.os, libc), ())


def _refusal(bundle: SourceBundle) -> str:
    device = bundle.manifest.device
    if not _targets(bundle):
        return f"the crate's targets do not have {device.arch} with {device.os} ({device.libc or 'no libc'})."
    if bundle.artifact("static") is None:
        return "it has no static library, which the crate links."
    return ""


def _libraries(job: ExportJob) -> tuple[list[tuple[str, str]], list[Entry]]:
    """rustc's target -> folder, and the files of the folders."""
    libraries: list[tuple[str, str]] = []
    entries = []
    for bundle in job.bundles:
        targets = _targets(bundle)
        if any(target == targets[0] for target, _ in libraries):
            raise ConfigError(
                f"Two bundles are for {targets[0]}; a crate has one library for each target.",
                hint="Leave one of them out, or export them one by one.",
            )
        libraries += [(target, targets[0]) for target in targets]
        files = {f"lib{job.name}.a": bundle.artifact("static"), f"{job.name}.params": bundle.params}
        entries += [Entry(f"lib/{targets[0]}/{name}", path) for name, path in files.items() if path]
    return libraries, entries


def _write(job: ExportJob) -> Sequence[str]:
    modes = {bundle.manifest.params.mode == "embed" for bundle in job.bundles}
    if len(modes) != 1:
        raise ConfigError(
            "Some of the bundles have their params inside the library, and some in a file.",
            hint="Pack them all with the same --params.",
        )
    libraries, entries = _libraries(job)
    values = _values(job, libraries, embedded=modes.pop())
    files = {
        "Cargo.toml": "Cargo.toml.j2",
        "build.rs": "build.rs.j2",
        "src/lib.rs": "lib.rs.j2",
        "src/error.rs": "error.rs.j2",
        "src/sys.rs": "sys.rs.j2",
        "README.md": "README.md.j2",
    }
    entries += [Entry(path, render(f"formats/rust/{name}", values).encode()) for path, name in files.items()]
    entries += job.licenses()
    stem = str(values["stem"])
    write_tar_gz(job.folder / f"{stem}.crate", [entry.below(stem) for entry in entries])
    return [f"{stem}.crate"]


def _values(job: ExportJob, libraries: Sequence[tuple[str, str]], *, embedded: bool) -> dict[str, object]:
    manifest, package = job.bundle.manifest, job.package
    rule = "a crate: at most 64 letters, digits, - and _, a letter first"
    name = package_name(package.name, job.name.lower(), r"[A-Za-z][A-Za-z0-9_-]{0,63}", rule)
    crate = snake_case(name)
    crate += "_" if crate in _KEYWORDS or crate in _CRATES else ""
    inputs, outputs = argument_lists(manifest, _TYPES, _KEYWORDS, _TAKEN)
    summary = package.summary or f"{manifest.name}, compiled ahead of time by edgepack {manifest.edgepack}"
    toml = {
        "name": quoted(name),
        "summary": quoted(summary),
        "license": quoted(package.license) if package.license else "",
        "authors": [quoted(author) for author in package.authors],
        "homepage": quoted(package.homepage) if package.homepage else "",
    }
    return {
        "m": manifest,
        "name": manifest.name,
        "symbol": manifest.symbol,
        "package": toml,
        "package_name": name,
        "crate": crate,
        "summary": summary,
        "version": job.version,
        "stem": f"{name}-{job.version}",
        "libraries": libraries,
        "targets": [target for target, _ in libraries],
        "embedded": embedded,
        "inputs": [_literal(one) for one in inputs],
        "outputs": [_literal(one) for one in outputs],
        "zero": {kind: "0.0" if kind.startswith("f") else "0" for kind in _TYPES.values()},
        "statuses": _statuses(),
        "abi_version": header().abi_version,
        "magic": header().magic,
    }


def _literal(argument: Argument) -> dict[str, object]:
    return {**vars(argument), "quoted": quoted(argument.name, "\\u{{{:04x}}}", "\\u{{{:x}}}")}


def _statuses() -> list[dict[str, object]]:
    """``EP_E_NO_PARAMS`` becomes ``NoParams``."""
    return [
        {
            "code": code,
            "variant": "".join(word.capitalize() for word in status.name.split("_")[2:]),
            "text": status.text,
            "quoted": quoted(status.text, "\\u{{{:04x}}}", "\\u{{{:x}}}"),
        }
        for code, status in header().statuses.items()
        if code
    ]


RUST = ExportFormat("A crate, which cargo adds to a Rust program", _refusal, _write, several=True)
