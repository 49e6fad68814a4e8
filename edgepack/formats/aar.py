"""An Android library: the shared library for each ABI, a class for Kotlin and Java, and Prefab for C and C++.

The class is written by ``aar_classes.py``, its native half linked by zig without an NDK, as it calls
nothing of Android's: whoever exports needs neither Java nor an SDK, and gets the same bytes everywhere.

Sources: developer.android.com/studio/projects/android-library (what an AAR holds), google.github.io/prefab
(prefab.json, module.json and abi.json of schema version 2).
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.formats.aar_classes import jvm_classes
from edgepack.formats.archives import Entry, write_zip
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import argument_lists, package_name
from edgepack.formats.metadata import without_prerelease
from edgepack.render.templates import render
from edgepack.toolchains.freestanding import link_freestanding
from edgepack.toolchains.ndk import ABIS

__all__ = ["AAR", "java_classes", "native_half"]

#: zig's targets by architecture; of them nothing but instructions and the calling convention is used.
_TARGETS = {
    "aarch64": "aarch64-linux-android",
    "arm": "arm-linux-androideabi",
    "x86_64": "x86_64-linux-android",
}
#: Alignment that Google Play demands of 64-bit libraries since Android 15.
_PAGE = 16384
_HEADER = "edgepack/runtime.h"
#: A method takes 255 slots; two are the handle, one is `this`.
_MOST = 250

#: dtype -> Java's type, its descriptor, its place in the JNI's order, Kotlin's name.
_JAVA = {
    "bool": ("boolean", "Z", 0, "Boolean"),
    "int8": ("byte", "B", 1, "Byte"),
    "int16": ("short", "S", 3, "Short"),
    "int32": ("int", "I", 4, "Int"),
    "int64": ("long", "J", 5, "Long"),
    "float32": ("float", "F", 6, "Float"),
    "float64": ("double", "D", 7, "Double"),
}
_JAVA |= {"float16": _JAVA["int16"], "bfloat16": _JAVA["int16"]}
_JAVA |= {f"u{name}": _JAVA[name] for name in ("int8", "int16", "int32", "int64")}
_KEYWORDS = frozenset(
    """
    abstract as assert boolean break byte case catch char class const continue default do double else enum
    extends false final finally float for fun goto if implements import in instanceof int interface is long
    native new null object package private protected public record return sealed short static strictfp super
    switch synchronized this throw throws transient true try typealias typeof val var void volatile when while
    yield
    """.split()  # noqa: SIM905
)


def _refusal(bundle: SourceBundle) -> str:
    manifest = bundle.manifest
    device, shared = manifest.device, manifest.artifact("shared")
    if device.os != "android" or device.arch not in ABIS:
        return f"{device.name} is no device with Android."
    if shared is None:
        return "it has no shared library."
    if manifest.params.mode != "embed":
        return "its params are in a file; with `pack --params embed` Android maps them from inside the app."
    alignment = shared.audit.get("page_alignment", 0)
    if device.arch != "arm" and alignment % _PAGE:
        return f"its library is aligned for pages of {alignment} bytes, and 64-bit Android has some of 16384."
    tensors = (*manifest.inputs, *manifest.outputs)
    if len(tensors) > _MOST or any(tensor.nbytes >= 1 << 31 for tensor in tensors):
        return f"a method of Java takes at most {_MOST} arrays of less than 2 GiB."
    return ""


def _java_names(job: ExportJob) -> tuple[str, str]:
    """The package, and the class with its package."""
    own = job.name.lower()
    rule = "a Java package: lower-case words with dots between them, none a keyword"
    default = f"edgepack.{own}_" if own in _KEYWORDS else f"edgepack.{own}"
    name = package_name(job.package.name, default, r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+", rule)
    if _KEYWORDS & set(name.split(".")):
        raise ConfigError(f"{name!r} is no name of a Java package.", hint="One of its words is a keyword.")
    return name, f"{name}.{''.join(word[:1].upper() + word[1:] for word in job.name.split('_'))}"


def _values(job: ExportJob) -> dict[str, object]:
    manifest = job.bundle.manifest
    java_package, class_name = _java_names(job)
    types = {dtype: row[0] for dtype, row in _JAVA.items()}
    inputs, outputs = argument_lists(manifest, types, _KEYWORDS, ("model", "handle", "outputs"))
    sizes = [tensor.nbytes for tensor in (*manifest.inputs, *manifest.outputs)]
    tensors = [
        {
            **vars(one),
            **dict(zip(("descriptor", "kind", "kotlin"), _JAVA[one.dtype][1:], strict=True)),
            "nbytes": size,
        }
        for one, size in zip([*inputs, *outputs], sizes, strict=True)
    ]
    stem = f"{(job.package.name or job.name).rpartition('.')[2]}-{job.version}"
    return {
        "m": manifest,
        "version": job.version,
        "stem": stem,
        "summary": job.package.summary
        or f"{manifest.name}, compiled ahead of time by edgepack {manifest.edgepack}",
        "java_package": java_package,
        "class_name": class_name,
        "simple": class_name.rpartition(".")[2],
        "mangled": "Java_" + class_name.replace("_", "_1").replace(".", "_"),
        "tensors": tensors,
        "inputs": tensors[: len(inputs)],
        "outputs": tensors[len(inputs) :],
        "abis": [ABIS.get(bundle.manifest.device.arch, "") for bundle in job.bundles],
        "min_sdk": max((_level(bundle) for bundle in job.bundles), default=0),
    }


def _level(bundle: SourceBundle) -> int:
    found = re.search(r"android(?:eabi)?([0-9]+)$", bundle.manifest.device.triple)
    return int(found[1]) if found else 0


def java_classes(job: ExportJob) -> dict[str, bytes]:
    """Path and bytes of each class."""
    values = _values(job)
    inputs, outputs = values["inputs"], values["outputs"]
    return jvm_classes(str(values["class_name"]), f"{job.name}_jni", inputs, outputs)  # type: ignore[arg-type]


def native_half(job: ExportJob, bundle: SourceBundle, target: str) -> bytes:
    """The shared library with the class's native methods, which needs the bundle's own.

    Args:
        target: zig's.
    """
    shared = bundle.artifact("shared")
    assert shared is not None, "refused before"
    source = render("formats/aar/jni.c.j2", _values(job))
    name = f"lib{job.name}_jni.so"
    # The header alone: what else lies in the bundle's folder is nobody's word.
    header = bundle.file(f"include/{_HEADER}")
    headers = {_HEADER: header.read_bytes()} if header is not None else {}
    return link_freestanding(source, name, target, shared, headers=headers, page_size=_PAGE)


def _write(job: ExportJob) -> Sequence[str]:
    values = _values(job)
    entries = [
        Entry("AndroidManifest.xml", render("formats/aar/AndroidManifest.xml.j2", values).encode()),
        Entry("R.txt", b""),
        Entry("proguard.txt", render("formats/aar/proguard.txt.j2", values).encode()),
        Entry("README.md", render("formats/aar/README.md.j2", values).encode()),
        Entry("classes.jar", _jar(java_classes(job))),
        *job.licenses(),
        *_prefab(job),
    ]
    seen: set[str] = set()
    for bundle in job.bundles:
        abi, shared = ABIS[bundle.manifest.device.arch], bundle.artifact("shared")
        assert shared is not None, "refused before"
        if abi in seen:
            raise ConfigError(
                f"Two bundles are for {abi}; an AAR has one library for each ABI.",
                hint="Leave one of them out, or export them one by one.",
            )
        seen.add(abi)
        native = native_half(job, bundle, _TARGETS[bundle.manifest.device.arch])
        entries += [
            Entry(f"jni/{abi}/{shared.name}", shared),
            Entry(f"jni/{abi}/lib{job.name}_jni.so", native),
            *_prefab_abi(job, bundle, abi, shared),
        ]
    write_zip(job.folder / f"{values['stem']}.aar", entries)
    return [f"{values['stem']}.aar"]


def _jar(classes: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as jar:
        for path, data in classes.items():
            jar.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data)
    return file.getvalue()


def _prefab(job: ExportJob) -> list[Entry]:
    """What is the same for all ABIs; versions are numbers there, as CMake's."""
    version = without_prerelease(job.version)
    module = f"prefab/modules/{job.name}"
    package = {"schema_version": 2, "name": job.name, "version": version, "dependencies": []}
    return [
        _json("prefab/prefab.json", package),
        _json(f"{module}/module.json", {"export_libraries": [], "library_name": f"lib{job.name}"}),
        *job.headers(f"{module}/include"),
    ]


def _prefab_abi(job: ExportJob, bundle: SourceBundle, abi: str, shared: Path) -> list[Entry]:
    ndk = re.search(r"NDK ([0-9]+)", bundle.manifest.toolchain.version)
    said = {
        "abi": abi,
        "api": _level(bundle),
        "ndk": int(ndk[1]) if ndk else 0,
        "stl": "none",
        "static": False,
    }
    place = f"prefab/modules/{job.name}/libs/android.{abi}"
    return [_json(f"{place}/abi.json", said), Entry(f"{place}/{shared.name}", shared)]


def _json(path: str, data: Mapping[str, object]) -> Entry:
    return Entry(path, (json.dumps(data, indent=2) + "\n").encode())


AAR = ExportFormat("An Android library with Prefab, which Gradle takes", _refusal, _write, several=True)
