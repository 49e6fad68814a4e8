"""The XCFramework: its property lists by plistlib, its slices by lief and our own reader of archives; its
Swift by a compiler for Linux, where there is one, over a bundle for this machine. Xcode is not here."""

from __future__ import annotations

import json
import plistlib
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import lief
import numpy as np
import pytest

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.base import SourceBundle
from edgepack.formats.metadata import PackageMetadata
from edgepack.formats.xcframework import XCFRAMEWORK
from edgepack.objectfiles.ar import members
from edgepack.objectfiles.macho.fat import archive_machine, fat_file
from tests.support import fake, packages
from tests.support.worker import COLUMNS, ROWS, reference

APP = Path(__file__).with_name("consumers") / "app.swift"
X86_64, ARM64 = (0x01000007, 3), (0x0100000C, 0)


@pytest.fixture(scope="module")
def macs(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Bundle]:
    """For both CPUs of Macs."""
    folder = tmp_path_factory.mktemp("macs")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        return [
            pack(small_model, device, folder / device, params="embed")
            for device in ("macos-arm64", "macos-x86_64")
        ]


def unpacked(file: Path, folder: Path) -> Path:
    shutil.unpack_archive(file, folder, "zip")
    (inside,) = folder.iterdir()
    return inside


def ios(bundle: SourceBundle, suffix: str = "") -> SourceBundle:
    """As if it were for iOS or its simulator."""
    return packages.on(bundle, os="ios", triple=f"arm64-apple-ios14.0{suffix}")


def libraries(package: Path) -> dict[str, dict[str, Any]]:
    info = plistlib.loads((package / "small.xcframework" / "Info.plist").read_bytes())
    assert (info["CFBundlePackageType"], info["XCFrameworkFormatVersion"]) == ("XFWK", "1.0")
    return {one["LibraryIdentifier"]: one for one in info["AvailableLibraries"]}


def test_slices_of_a_platform_are_one_file(macs: list[Bundle], tmp_path: Path) -> None:
    """Each slice of the merged library is the library that was packed, byte for byte."""
    (made,) = export(macs, "xcframework", tmp_path, package_version="1.2.0")
    assert made.name == "small-1.2.0-xcframework.zip"
    packages.assert_same_bytes("xcframework", macs, made, tmp_path / "copies", package_version="1.2.0")
    package = unpacked(made, tmp_path / "place")
    (library,) = libraries(package).values()
    assert library == {
        "LibraryIdentifier": "macos-arm64_x86_64",
        "LibraryPath": "libsmall.a",
        "BinaryPath": "libsmall.a",
        "HeadersPath": "Headers",
        "SupportedArchitectures": ["arm64", "x86_64"],
        "SupportedPlatform": "macos",
    }
    folder = package / "small.xcframework" / "macos-arm64_x86_64"
    data = (folder / "libsmall.a").read_bytes()
    magic, count = struct.unpack_from(">2I", data)
    assert (magic, count) == (0xCAFEBABE, 2)
    found = {}
    for index in range(count):
        cpu, subtype, offset, size, align = struct.unpack_from(">5I", data, 8 + 20 * index)
        assert offset % (1 << align) == 0
        found[cpu, subtype] = data[offset : offset + size]
    originals = [bundle.path / "lib" / "libsmall.a" for bundle in macs]
    assert found == {ARM64: originals[0].read_bytes(), X86_64: originals[1].read_bytes()}
    for machine, content in found.items():
        (tmp_path / "slice.a").write_bytes(content)
        assert archive_machine(tmp_path / "slice.a") == machine
        for _, member in members(tmp_path / "slice.a"):
            binary = lief.MachO.parse(list(member))
            assert binary is not None
            assert binary.at(0).header.cpu_type.value == machine[0]


def test_the_headers_are_a_module_and_stand_alone(macs: list[Bundle], tmp_path: Path) -> None:
    (made,) = export(macs, "xcframework", tmp_path)
    (headers,) = unpacked(made, tmp_path / "place").glob("small.xcframework/*/Headers")
    assert (headers / "small" / "module.modulemap").read_text().startswith("module small {")
    (tmp_path / "app.c").write_text("#include <small/small.h>\nint main(void) { return SMALL_INPUTS - 1; }\n")
    packages.run("cc", "-I", headers, "-fsyntax-only", "app.c", cwd=tmp_path)
    (tmp_path / "app.m").write_text("@import small;\nint main(void) { return SMALL_OUTPUTS - 2; }\n")
    clang = packages.tool("clang")
    options = ("-fmodules", f"-fmodules-cache-path={tmp_path / 'cache'}", "-fsyntax-only")
    packages.run(clang, *options, "-I", headers, "app.m", cwd=tmp_path)


def test_every_platform_has_a_library_and_the_package_names_it(macs: list[Bundle], tmp_path: Path) -> None:
    arm, intel = (source_bundle(bundle.path) for bundle in macs)
    bundles = [ios(arm), arm, ios(arm, "-simulator"), intel]
    (made,) = packages.write(XCFRAMEWORK, bundles, tmp_path / "dist", PackageMetadata(version="1.2.0"))
    package = unpacked(made, tmp_path / "place")
    found = libraries(package)
    assert set(found) == {"ios-arm64", "ios-arm64-simulator", "macos-arm64_x86_64"}
    assert [one.get("SupportedPlatformVariant") for one in found.values()] == [None, "simulator", None]
    for name, one in found.items():
        place = package / "small.xcframework" / name
        assert (place / one["LibraryPath"]).is_file()
        assert (place / one["HeadersPath"] / "small" / "edgepack" / "runtime.h").is_file()
    text = (package / "Package.swift").read_text()
    assert 'platforms: [.iOS("14.0"), .macOS("11.0")]' in text
    for path in re.findall(r'path: "([^"]+)"', text):
        assert (package / path).is_dir()


def test_the_privacy_manifest_says_what_the_library_calls(macs: list[Bundle], tmp_path: Path) -> None:
    (made,) = export(macs, "xcframework", tmp_path)
    package = unpacked(made, tmp_path / "place")
    said = plistlib.loads((package / "Sources" / "smallSwift" / "PrivacyInfo.xcprivacy").read_bytes())
    assert said == {
        "NSPrivacyTracking": False,
        "NSPrivacyTrackingDomains": [],
        "NSPrivacyCollectedDataTypes": [],
        "NSPrivacyAccessedAPITypes": [
            {
                "NSPrivacyAccessedAPIType": "NSPrivacyAccessedAPICategoryFileTimestamp",
                "NSPrivacyAccessedAPITypeReasons": ["C617.1"],
            }
        ],
    }


def test_no_name_and_no_metadata_ends_a_line(macs: list[Bundle], tmp_path: Path) -> None:
    (made,) = packages.write(XCFRAMEWORK, [packages.hostile(macs[0])], tmp_path / "dist")
    package = unpacked(made, tmp_path / "place")
    assert "evil" not in (package / "Package.swift").read_text()
    (example,) = packages.blocks(package / "README.md", "swift")
    assert '"' not in example
    source = (package / "Sources" / "smallSwift" / "Session.swift").read_text("utf-8")
    lines = [line.strip() for line in source.splitlines()]
    # Names as they are stand in comments of a line alone; what is made of them is identifiers.
    code = "\n".join(line for line in lines[1:] if not line.startswith("///"))
    assert not re.search(r"[`$#']|//|evil\(", code)
    texts = set(re.findall(r'"([^"]*)"', code))
    assert all(re.fullmatch(r"[a-z0-9_]+", text) for text in texts if not text.startswith("\\(name) has"))
    lines = (package / "README.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if re.search(r" \| (in|out)put \| ", line)]
    assert len(rows) == 2 * len(packages.HOSTILE_NAMES)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)


def swift(package: Path, headers: Path, folder: Path) -> list[str | Path]:
    """The options for a program with the package's class, which is compiled for this machine; the last is
    its library.

    Args:
        headers: of the C interface, with its module map.
    """
    folder.mkdir()
    source = package / "Sources" / "smallSwift" / "Session.swift"
    options = (
        "-emit-library",
        "-static",
        "-emit-module",
        "-module-name",
        "smallSwift",
        "-warnings-as-errors",
    )
    packages.run(packages.tool("swiftc"), *options, "-I", headers, source, cwd=folder)
    return ["-I", folder, "-I", headers, folder / "libsmallSwift.a"]


@pytest.mark.slow
def test_its_class_computes_here(small_model: Path, macs: list[Bundle], tmp_path: Path) -> None:
    """Used as its README says, and with what is refused. Debian 13: ``apt-get install swiftlang``."""
    swiftc = packages.tool("swiftc")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        here = pack(small_model, "host", tmp_path / "here", params="embed").path
    (made,) = export(macs, "xcframework", tmp_path / "dist")
    package = unpacked(made, tmp_path / "place")
    described = json.loads(packages.run(packages.tool("swift"), "package", "dump-package", cwd=package))
    assert [one["name"] for one in described["targets"]] == ["small", "smallSwift"]
    (modules,) = package.glob("small.xcframework/*/Headers/small/module.modulemap")
    shutil.copy(modules, here / "include")
    options = swift(package, here / "include", tmp_path / "swift")
    libraries = (here / "lib" / "libsmall.a", "-lm")
    (tmp_path / "example.swift").write_text(packages.blocks(package / "README.md", "swift")[0])
    inputs = here / "test" / "input_0.bin"
    for source in (tmp_path / "example.swift", APP):
        packages.run(swiftc, source, "-o", source.stem, *options, *libraries, cwd=tmp_path)
    assert float(packages.run(tmp_path / "example", cwd=tmp_path)) >= 0
    text = packages.run(tmp_path / "app", inputs, cwd=tmp_path)
    values = np.array([line.split() for line in text.splitlines()], "f4")
    x = np.fromfile(inputs, "f4").reshape(ROWS, COLUMNS)
    expected = np.stack([part.ravel() for part in reference(x)], axis=1)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_swift_takes_every_name(macs: list[Bundle], tmp_path: Path) -> None:
    """Twenty inputs and outputs of all types; the C function that takes them is declared here."""
    odd = packages.hostile(macs[0])
    (made,) = packages.write(XCFRAMEWORK, [odd], tmp_path / "dist")
    package = unpacked(made, tmp_path / "place")
    types = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float"}
    types |= {"float64": "double"}
    arguments = [
        f"{const}{types.get(one.dtype, one.dtype + '_t')} *{side}{index}"
        for const, side, tensors in (("const ", "i", odd.manifest.inputs), ("", "o", odd.manifest.outputs))
        for index, one in enumerate(tensors)
    ]
    (headers,) = package.glob("small.xcframework/*/Headers/small")
    text = (headers / "small.h").read_text()
    text = re.sub(r"^static inline ep_status small_run\(.*?^}", "", text, flags=re.MULTILINE | re.DOTALL)
    declared = f"ep_status small_run(ep_session *session, {', '.join(arguments)});\n#ifdef __cplusplus\n}}"
    (headers / "small.h").write_text(text.replace("#ifdef __cplusplus\n}", declared))
    options = swift(package, headers, tmp_path / "swift")
    (tmp_path / "main.swift").write_text(packages.blocks(package / "README.md", "swift")[0])
    packages.run(packages.tool("swiftc"), "-typecheck", "main.swift", *options[:-1], cwd=tmp_path)


def test_what_no_framework_can_hold_is_refused(macs: list[Bundle], tmp_path: Path) -> None:
    mac = source_bundle(macs[0].path)
    assert XCFRAMEWORK.refusal(packages.on(mac, os="linux")) == "macos-arm64 is not for macOS or iOS."
    params = mac.manifest.params.model_copy(update={"mode": "file"})
    other = SourceBundle(mac.root, mac.manifest.model_copy(update={"params": params}))
    assert "with `pack --params embed`" in XCFRAMEWORK.refusal(other)
    word = SourceBundle(mac.root, mac.manifest.model_copy(update={"name": "func"}))
    assert XCFRAMEWORK.refusal(word).startswith("'func' is a word of Swift")
    with pytest.raises(ConfigError, match="Two bundles are for macos aarch64"):
        export([macs[0], macs[0]], "xcframework", tmp_path)
    with pytest.raises(ConfigError, match="two libraries are for the same machine"):
        packages.write(XCFRAMEWORK, [mac, packages.on(mac, arch="x86_64")], tmp_path / "same")
    elf = tmp_path / "libelf.a"
    elf.write_bytes(
        b"!<arch>\n" + b"model.o/".ljust(48) + b"16".ljust(10) + b"`\n" + b"\x7fELF".ljust(16, b"\0")
    )
    with pytest.raises(ValueError, match=r"its member 'model\.o' is no Mach-O file of 64 bits"):
        fat_file([elf, macs[0].path / "lib" / "libsmall.a"])
