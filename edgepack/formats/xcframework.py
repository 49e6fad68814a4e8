"""An XCFramework of static libraries, in a Swift package with a Swift class over it and its privacy manifest.

Sources: developer.apple.com, "Distributing binary frameworks as Swift packages", "Privacy manifest files",
"Describing use of required reason API"; Info.plist as xcodebuild writes it. All headers of a model lie in a
folder of its name, for Xcode copies those of all XCFrameworks into one.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Sequence
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_zip
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import argument_lists, package_name
from edgepack.objectfiles.macho.fat import fat_file
from edgepack.render.templates import render

__all__ = ["XCFRAMEWORK"]

_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64"}
_SWIFT = {"macos": "macOS", "ios": "iOS"}
#: dtype -> Swift's type of an element.
_TYPES = {"bool": "UInt8", "float16": "UInt16", "bfloat16": "UInt16", "float32": "Float", "float64": "Double"}
_TYPES |= {f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
#: The Swift Programming Language, "Keywords and Punctuation": those that no identifier is.
_KEYWORDS = frozenset(
    """
    any as associatedtype await break case catch class continue default defer deinit do else enum extension
    fallthrough false fileprivate for func guard if import in init inout internal is let nil open operator
    precedencegroup private protocol public repeat rethrows return self static struct subscript super switch
    throw throws true try typealias var where while
    """.split()  # noqa: SIM905
)
#: Modules of Swift's own and of Apple's that every program has.
_MODULES = frozenset({"Swift", "Darwin", "Foundation", "Dispatch", "ObjectiveC", "SwiftShims"})
#: Functions whose use Apple wants explained -> category, and the reason that is ours: the size of a params
#: file in the app's container, time between events within the app.
_REASONS = {
    "fstat": ("NSPrivacyAccessedAPICategoryFileTimestamp", "C617.1"),
    "stat": ("NSPrivacyAccessedAPICategoryFileTimestamp", "C617.1"),
    "lstat": ("NSPrivacyAccessedAPICategoryFileTimestamp", "C617.1"),
    "mach_absolute_time": ("NSPrivacyAccessedAPICategorySystemBootTime", "35F9.1"),
}


def _refusal(bundle: SourceBundle) -> str:
    device = bundle.manifest.device
    if device.os not in _SWIFT or device.arch not in _ARCHITECTURES:
        return f"{device.name} is not for macOS or iOS."
    if bundle.artifact("static") is None:
        return "it has no static library."
    if bundle.manifest.params.mode != "embed":
        return "its params are in a file; with `pack --params embed` they are in the library of each CPU."
    if bundle.manifest.name in _KEYWORDS | _MODULES:
        return f"{bundle.manifest.name!r} is a word of Swift; `pack --name` gives the model another name."
    return ""


def _slices(job: ExportJob) -> dict[tuple[str, str], list[SourceBundle]]:
    """Platform and variant -> bundles by architecture."""
    found: dict[tuple[str, str], list[SourceBundle]] = {}
    for bundle in job.bundles:
        device = bundle.manifest.device
        variant = "simulator" if device.triple.endswith("-simulator") else ""
        group = found.setdefault((device.os, variant), [])
        if device.arch in {other.manifest.device.arch for other in group}:
            raise ConfigError(
                f"Two bundles are for {' '.join(filter(None, (device.os, variant, device.arch)))}.",
                hint="Leave one of them out, or export them one by one.",
            )
        group.append(bundle)
    return dict(sorted(found.items()))


def _write(job: ExportJob) -> Sequence[str]:
    rule = "a Swift package: letters, digits, _ and -, a letter first"
    title = package_name(job.package.name, job.name, r"[A-Za-z][A-Za-z0-9_-]{0,99}", rule)
    framework = f"{job.name}.xcframework"
    entries, libraries = [], []
    for (system, variant), bundles in _slices(job).items():
        archs = sorted(_ARCHITECTURES[bundle.manifest.device.arch] for bundle in bundles)
        identifier = "-".join(filter(None, (system, "_".join(archs), variant)))
        place = f"{framework}/{identifier}"
        said = {
            "LibraryIdentifier": identifier,
            "LibraryPath": f"lib{job.name}.a",
            "BinaryPath": f"lib{job.name}.a",
            "HeadersPath": "Headers",
            "SupportedArchitectures": archs,
            "SupportedPlatform": system,
        }
        libraries.append({**said, "SupportedPlatformVariant": variant} if variant else said)
        entries += [Entry(f"{place}/lib{job.name}.a", _merged(bundles)), *_headers(job, bundles, place)]
    info = {
        "AvailableLibraries": libraries,
        "CFBundlePackageType": "XFWK",
        "XCFrameworkFormatVersion": "1.0",
    }
    values = _values(job, title)
    sources = f"Sources/{job.name}Swift"
    entries += [
        Entry(f"{framework}/Info.plist", plistlib.dumps(info)),
        Entry("Package.swift", render("formats/xcframework/Package.swift.j2", values).encode()),
        Entry(f"{sources}/PrivacyInfo.xcprivacy", plistlib.dumps(_privacy(job))),
        Entry(f"{sources}/Session.swift", render("formats/xcframework/Session.swift.j2", values).encode()),
        Entry("README.md", render("formats/xcframework/README.md.j2", values).encode()),
        *job.licenses(),
    ]
    stem = str(values["stem"])
    write_zip(job.folder / f"{stem}-xcframework.zip", [entry.below(stem) for entry in entries])
    return [f"{stem}-xcframework.zip"]


def _merged(bundles: Sequence[SourceBundle]) -> bytes:
    libraries = [path for bundle in bundles if (path := bundle.artifact("static")) is not None]
    try:
        return fat_file(libraries)
    except ValueError as error:
        raise ConfigError(
            f"The libraries of {', '.join(str(one.root) for one in bundles)} do not go into one: {error}.",
            hint="Pack the model again.",
        ) from None


def _headers(job: ExportJob, bundles: Sequence[SourceBundle], place: str) -> list[Entry]:
    """Below ``Headers/NAME``, with a module map by which Swift imports them."""
    folder = f"{place}/Headers/{job.name}"
    entries = []
    for entry in ExportJob(bundles, job.package, job.folder).headers(folder):
        text = entry.data.read_bytes() if isinstance(entry.data, Path) else entry.data
        text = text.replace(b"#include <edgepack/runtime.h>", b'#include "edgepack/runtime.h"')
        entries.append(Entry(entry.name, text))
    module = f'module {job.name} {{\n    header "{job.name}.h"\n    export *\n}}\n'
    return [*entries, Entry(f"{folder}/module.modulemap", module.encode())]


def _privacy(job: ExportJob) -> dict[str, object]:
    """What the libraries call, by the audit of them."""
    called = {
        name.removeprefix("_").partition("$")[0]
        for bundle in job.bundles
        if (static := bundle.manifest.artifact("static")) is not None
        for name in static.audit.get("undefined", ())
    }
    reasons = sorted({reason for function, reason in _REASONS.items() if function in called})
    return {
        "NSPrivacyTracking": False,
        "NSPrivacyTrackingDomains": [],
        "NSPrivacyCollectedDataTypes": [],
        "NSPrivacyAccessedAPITypes": [
            {"NSPrivacyAccessedAPIType": category, "NSPrivacyAccessedAPITypeReasons": [reason]}
            for category, reason in reasons
        ],
    }


def _values(job: ExportJob, title: str) -> dict[str, object]:
    manifest = job.bundle.manifest
    oldest: dict[str, str] = {}
    for bundle in job.bundles:
        device = bundle.manifest.device
        number = re.search(r"(?:macosx|ios)([0-9]+(?:\.[0-9]+)?)", device.triple)
        if number is not None:
            known = oldest.get(device.os, "0")
            oldest[device.os] = max(known, number[1], key=lambda text: [int(one) for one in text.split(".")])
    # The names in the generated functions that are no keywords.
    inputs, outputs = argument_lists(manifest, _TYPES, _KEYWORDS, (job.name, f"{job.name}_run", "session"))
    return {
        "m": manifest,
        "inputs": inputs,
        "outputs": outputs,
        "title": title,
        "stem": f"{title}-{job.version}",
        "version": job.version,
        "summary": job.package.summary
        or f"{manifest.name}, compiled ahead of time by edgepack {manifest.edgepack}",
        "platforms": [f'.{_SWIFT[system]}("{number}")' for system, number in sorted(oldest.items())],
    }


XCFRAMEWORK = ExportFormat("A Swift package with an XCFramework", _refusal, _write, several=True)
