"""The AAR: libraries for Android by what looks like an NDK, checked by their own parsers; its class and its
native half run here, in the JDK, over a bundle for this machine."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import lief
import numpy as np
import pytest

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.aar import AAR, java_classes, native_half
from edgepack.formats.base import ExportJob, SourceBundle
from edgepack.formats.class_file import ClassFile
from edgepack.formats.kotlin_metadata import Function, KotlinClass, getter
from edgepack.formats.metadata import PackageMetadata
from tests.support import fake, packages
from tests.support.worker import COLUMNS, ROWS, reference
from workbench.stand_ins.android import make_ndk

APP = Path(__file__).with_name("consumers") / "App.java"
KOTLIN = APP.with_suffix(".kt")
TARGET = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}


@pytest.fixture(scope="module")
def bundles(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Bundle]:
    """For two ABIs."""
    folder = tmp_path_factory.mktemp("android")
    ndk = make_ndk(folder / "ndk")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        return [
            pack(small_model, device, folder / device, params="embed", sdk=ndk)
            for device in ("android-arm64", "android-x86_64")
        ]


@pytest.fixture(scope="module")
def here(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> SourceBundle:
    """A bundle for this machine, with its params inside."""
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        bundle = pack(small_model, "host", tmp_path_factory.mktemp("here") / "small", params="embed")
    return source_bundle(bundle.path)


def unpacked(aar: Path, folder: Path) -> Path:
    shutil.unpack_archive(aar, folder, "zip")
    return folder


def classes(source: SourceBundle, package: PackageMetadata, folder: Path) -> tuple[Path, str]:
    """The class and its native half for this machine, in folders as java wants them; the options for java."""
    job = ExportJob([source], package, folder)
    for path, data in java_classes(job).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    native = native_half(job, source, TARGET[source.manifest.device.arch])
    (folder / "lib").mkdir()
    (folder / "lib" / f"lib{job.name}_jni.so").write_bytes(native)
    return folder, f"-Djava.library.path={folder / 'lib'}"


def expected_outputs(inputs: Path) -> np.ndarray:
    """Of the small model for a recorded input, a column for each."""
    x = np.fromfile(inputs, "f4").reshape(ROWS, COLUMNS)
    return np.stack([part.ravel() for part in reference(x)], axis=1)


def metadata(folder: Path) -> Path:
    """Kotlin's annotation, of which javac warns where it does not find it."""
    path = folder / "kotlin" / "Metadata.java"
    path.parent.mkdir()
    path.write_text(
        "package kotlin;\npublic @interface Metadata {\n"
        "    int[] mv();\n    int k();\n    int xi();\n    String[] d1();\n    String[] d2();\n}\n"
    )
    return path


def test_its_native_half_is_compiled_with_headers_of_the_bundle_alone(
    here: SourceBundle, tmp_path: Path
) -> None:
    copy = shutil.copytree(here.root, tmp_path / "bundle")
    (copy / "include" / "stdint.h").write_text('#error "of somebody else"\n')
    job = ExportJob([source_bundle(copy)], PackageMetadata(), tmp_path)
    target = TARGET[here.manifest.device.arch]
    assert native_half(job, job.bundle, target) == native_half(
        ExportJob([here], PackageMetadata(), tmp_path), here, target
    )


def test_its_class_computes_here(here: SourceBundle, bundles: list[Bundle], tmp_path: Path) -> None:
    """The class and the text of the native half are those in the package; it is used as its README says."""
    folder, option = classes(here, PackageMetadata(), tmp_path / "made")
    (made,) = export(bundles, "aar", tmp_path, package_version="1.2.0")
    aar = unpacked(made, tmp_path / "aar")
    with zipfile.ZipFile(aar / "classes.jar") as jar:
        assert sorted(jar.namelist()) == [
            f"edgepack/small/Small{name}.class" for name in ("$Companion", "$Outputs", "")
        ]
        assert all(jar.read(name) == (folder / name).read_bytes() for name in jar.namelist())
    (example,) = packages.blocks(aar / "README.md", "java")
    (folder / "Example.java").write_text(
        f"class Example {{ public static void main(String[] a) {{\n{example}}} }}\n"
    )
    shutil.copy(APP, folder)
    javac, java = packages.tool("javac"), packages.tool("java")
    sources = ("App.java", "Example.java", metadata(folder))
    packages.run(javac, "-Xlint:all", "-Werror", "-cp", aar / "classes.jar", *sources, cwd=folder)
    command = [java, "-Xverify:all", "-Xcheck:jni", option, "-cp", f"{folder}:{aar / 'classes.jar'}"]
    environment = {"LD_LIBRARY_PATH": str(here.root / "lib")}
    inputs = here.root / "test" / "input_0.bin"
    text = packages.run(*command, "App", inputs, cwd=folder, **environment)
    values = np.array([line.split() for line in text.splitlines()], "f4")
    np.testing.assert_allclose(values, expected_outputs(inputs), rtol=1e-5, atol=1e-6)
    float(packages.run(*command, "Example", cwd=folder, **environment))


def test_kotlins_metadata_are_as_its_proto_has_them() -> None:
    """Written out by hand: a table of two strings, then flags, name, parent and a constructor; the zero in
    front says how it is spelt, and has two bytes in a class file, as the one behind the name's tag."""
    out = ClassFile("a/B")
    KotlinClass("a/B", [Function("<init>")]).annotate(out)
    table, message = "04 0a02 0802", "0806 1800 3202 3001 4202 0806"
    text = bytes.fromhex(f"00 {table} {message}").replace(b"\0", b"\xc0\x80")
    assert struct.pack(">BH", 1, len(text)) + text in out.data()
    names = {"sign": "getSign", "is_on": "is_on", "is2": "is2", "island": "getIsland", "is": "getIs"}
    assert {name: getter(name) for name in names} == names


@pytest.mark.slow
def test_kotlin_sees_a_class_of_its_own(here: SourceBundle, tmp_path: Path) -> None:
    """Named arguments, properties, constants: ``pip install kotlin-jupyter-kernel``, whose compiler it is."""
    kotlinc, library = packages.kotlinc()
    folder, option = classes(here, PackageMetadata(), tmp_path / "made")
    path = f"{folder}:{library}"
    packages.run(*kotlinc, "-cp", path, KOTLIN, "-d", folder, cwd=tmp_path)
    command = [packages.tool("java"), "-Xverify:all", "-Xcheck:jni", option, "-cp", path, "AppKt"]
    inputs = here.root / "test" / "input_0.bin"
    text = packages.run(*command, inputs, cwd=folder, LD_LIBRARY_PATH=str(here.root / "lib"))
    values = np.array([line.split() for line in text.splitlines()], "f4")
    np.testing.assert_allclose(values, expected_outputs(inputs), rtol=1e-5, atol=1e-6)


def test_each_abi_has_libraries_that_android_can_load(bundles: list[Bundle], tmp_path: Path) -> None:
    (made,) = export(
        bundles, "aar", tmp_path, package_version="1.2.0-beta.1", package_name="org.example.small_1"
    )
    assert made.name == "small_1-1.2.0-beta.1.aar"
    same = {"package_version": "1.2.0-beta.1", "package_name": "org.example.small_1"}
    packages.assert_same_bytes("aar", bundles, made, tmp_path / "copies", **same)
    aar = unpacked(made, tmp_path / "aar")
    assert {path.name for path in (aar / "jni").iterdir()} == {"arm64-v8a", "x86_64"}
    for path in (aar / "jni").iterdir():
        assert {one.name for one in path.iterdir()} == {"libsmall.so", "libsmall_jni.so"}
        native = lief.ELF.parse(str(path / "libsmall_jni.so"))
        assert isinstance(native, lief.ELF.Binary)
        loads = [one for one in native.segments if one.type == lief.ELF.Segment.TYPE.LOAD]
        assert {one.alignment for one in loads} == {16384}
        assert native.libraries == ["libsmall.so"]
        assert {one.name for one in native.imported_symbols} == {"edgepack_model_small"}
        assert {one.name for one in native.exported_functions} == {
            "JNI_OnLoad",
            *(f"Java_org_example_small_11_Small_{name}" for name in ("create", "compute", "destroy")),
        }
    manifest = ElementTree.parse(aar / "AndroidManifest.xml").getroot()
    assert manifest.get("package") == "org.example.small_1"
    (sdk,) = manifest.findall("uses-sdk")
    assert sdk.get("{http://schemas.android.com/apk/res/android}minSdkVersion") == "24"
    assert (
        "-keep,includedescriptorclasses class org.example.small_1.Small {"
        in (aar / "proguard.txt").read_text()
    )


def test_prefab_finds_what_its_schema_asks_for(bundles: list[Bundle], tmp_path: Path) -> None:
    """prefab.json, module.json and abi.json of version 2, as google.github.io/prefab describes them."""
    (made,) = export(bundles, "aar", tmp_path, package_version="1.2.0-beta.1")
    prefab = unpacked(made, tmp_path / "aar") / "prefab"
    package = json.loads((prefab / "prefab.json").read_text())
    assert package == {"schema_version": 2, "name": "small", "version": "1.2.0", "dependencies": []}
    assert re.fullmatch(r"\d+(\.\d+(\.\d+(\.\d+)?)?)?", package["version"])
    module = prefab / "modules" / "small"
    said = json.loads((module / "module.json").read_text())
    assert said == {"export_libraries": [], "library_name": "libsmall"}
    assert (module / "include" / "edgepack" / "runtime.h").is_file()
    for abi in ("arm64-v8a", "x86_64"):
        folder = module / "libs" / f"android.{abi}"
        found = json.loads((folder / "abi.json").read_text())
        assert found == {"abi": abi, "api": 24, "ndk": 27, "stl": "none", "static": False}
        assert (folder / "libsmall.so").is_file()
    (tmp_path / "app.c").write_text("#include <small.h>\nint main(void) { return SMALL_INPUTS - 1; }\n")
    packages.run("cc", "-I", module / "include", "-fsyntax-only", "app.c", cwd=tmp_path)


@pytest.mark.slow
def test_no_name_and_no_metadata_ends_a_string_or_a_comment(
    here: SourceBundle, bundles: list[Bundle], tmp_path: Path
) -> None:
    """A class with twenty inputs and outputs of all types is verified by java and called from Java."""
    odd = packages.hostile(bundles[0])
    (made,) = packages.write(AAR, [odd], tmp_path / "dist")
    aar = unpacked(made, tmp_path / "aar")
    ElementTree.parse(aar / "AndroidManifest.xml")
    tensors = {"inputs": odd.manifest.inputs, "outputs": odd.manifest.outputs}
    source = SourceBundle(here.root, here.manifest.model_copy(update=tensors))
    folder, option = classes(source, packages.METADATA, tmp_path / "made")
    (example,) = packages.blocks(aar / "README.md", "java")
    text = f"class Example {{ public static void main(String[] a) {{\n{example}}} }}\n"
    (folder / "Example.java").write_text(text)
    javac, java = packages.tool("javac"), packages.tool("java")
    sources = ("Example.java", metadata(folder))
    packages.run(javac, "-Xlint:all", "-Werror", "-cp", aar / "classes.jar", *sources, cwd=folder)
    command = [java, "-Xverify:all", option, "-cp", f"{folder}:{aar / 'classes.jar'}", "Example"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"LD_LIBRARY_PATH": str(here.root / "lib")}
    )
    assert "java.lang.UnsatisfiedLinkError" not in done.stderr
    assert "IllegalStateException: The number of inputs or outputs is not the model's" in done.stderr


@pytest.mark.slow
def test_kotlin_takes_every_name(bundles: list[Bundle], tmp_path: Path) -> None:
    """The README's Kotlin, with twenty inputs and outputs of all types."""
    kotlinc, library = packages.kotlinc()
    (made,) = packages.write(AAR, [packages.hostile(bundles[0])], tmp_path / "dist")
    aar = unpacked(made, tmp_path / "aar")
    example = packages.blocks(aar / "README.md", "kotlin")[1]
    imported, _, body = example.partition("\n\n")
    (tmp_path / "Example.kt").write_text(f"{imported}\nfun main() {{\n{body}}}\n")
    packages.run(
        *kotlinc, "-cp", f"{aar / 'classes.jar'}:{library}", "Example.kt", "-d", "made", cwd=tmp_path
    )


def test_the_functions_are_where_the_jdk_has_them(tmp_path: Path) -> None:
    """The JNI's table, of which the native half names six places, against jni.h."""
    home = Path(packages.tool("javac")).resolve().parents[1]
    template = (packages.TEMPLATES / "formats" / "aar" / "jni.c.j2").read_text()
    (table,) = re.findall(r"^typedef const struct jni_functions.*?^};$", template, re.MULTILINE | re.DOTALL)
    names = {name: name for name in ("FindClass", "ThrowNew", "GetArrayLength")}
    for index, kind in enumerate(("Boolean", "Byte", "Char", "Short", "Int", "Long", "Float", "Double")):
        names |= {f"GetArrayElements[{index}]": f"Get{kind}ArrayElements"}
        names |= {f"ReleaseArrayElements[{index}]": f"Release{kind}ArrayElements"}
    checks = "\n".join(
        f"_Static_assert(offsetof(struct jni_functions, {own}) =="
        f' offsetof(struct JNINativeInterface_, {jni}), "{own}");'
        for own, jni in names.items()
    )
    (tmp_path / "table.c").write_text(
        f"#include <jni.h>\n#include <stddef.h>\n#include <stdint.h>\n{table}\n{checks}\n"
    )
    include = home / "include"
    if not (include / "jni.h").is_file():
        pytest.skip("the JDK has no jni.h")
    packages.run("cc", "-fsyntax-only", "-I", include, "-I", include / "linux", "table.c", cwd=tmp_path)


def test_what_no_app_can_use_is_refused(here: SourceBundle, bundles: list[Bundle], tmp_path: Path) -> None:
    assert AAR.refusal(here) == f"{here.manifest.device.name} is no device with Android."
    android = source_bundle(bundles[0].path)
    params = android.manifest.params.model_copy(update={"mode": "file"})
    other = SourceBundle(android.root, android.manifest.model_copy(update={"params": params}))
    assert "with `pack --params embed` Android maps them" in AAR.refusal(other)
    unaligned = packages.on(here, os="android")
    assert AAR.refusal(unaligned).startswith("its library is aligned for pages of 4096 bytes")
    with pytest.raises(ConfigError, match="Two bundles are for arm64-v8a"):
        export([bundles[0], bundles[0]], "aar", tmp_path)
    for name in ("small", "org.example.class", "Org.Example", "org..x"):
        with pytest.raises(ConfigError, match="is no name of a Java package"):
            export(bundles, "aar", tmp_path, package_name=name)
