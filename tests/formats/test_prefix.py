"""Install prefixes, Conan recipes and vcpkg ports: CMake finds the library in them, and programs run."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import export_bundles, source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.base import ExportFormat, SourceBundle
from edgepack.formats.cmake_package import CMAKE
from edgepack.formats.conan import CONAN
from edgepack.formats.vcpkg import VCPKG
from edgepack.registry import EXPORT_FORMATS
from tests.support import fake
from tests.support.manifest import seal
from tests.support.packages import METADATA, blocks, hostile, on, run, tool, write

VERSION = METADATA.version


def unpacked(one: ExportFormat, source: SourceBundle, folder: Path) -> Path:
    """The folder in the archive of a format, made with hostile metadata."""
    (archive,) = write(one, [source], folder / "dist")
    shutil.unpack_archive(archive, folder / "x")
    (inside,) = (folder / "x").iterdir()
    assert inside.name == archive.name.removesuffix(".tar.gz")
    return inside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With spaces, but no comma: CMake gives paths to the linker with commas between them."""
    path = tmp_path / "a folder é"
    path.mkdir()
    return path


@pytest.fixture
def source(small_bundle: Bundle) -> SourceBundle:
    return source_bundle(small_bundle.path)


def test_cmake_finds_the_prefix_wherever_it_lies(source: SourceBundle, folder: Path) -> None:
    """The README's program, project and commands as printed; the prefix in a folder with spaces."""
    prefix = unpacked(CMAKE, source, folder)
    readme = prefix / "share/doc/small/README.md"
    (folder / "app.c").write_text(blocks(readme, "c")[0])
    (folder / "CMakeLists.txt").write_text(blocks(readme, "cmake")[0])
    (script,) = blocks(readme, "sh")
    assert run("sh", "-e", "-c", script, cwd=folder, PREFIX=str(prefix)).endswith("Success.\n")
    assert (prefix / "share/doc/small/LICENSES/NOTICE.txt").is_file()
    wrong = (folder / "CMakeLists.txt").read_text().replace("1.2.0 CONFIG", "2.0 CONFIG")
    (folder / "CMakeLists.txt").write_text(wrong)
    refused = " ".join(run("cmake", "-S", ".", "-B", "build", cwd=folder, code=1).split())
    assert "compatible with requested" in refused and "version: 1.2.0" in refused


def test_pkg_config_finds_the_prefix(source: SourceBundle, folder: Path) -> None:
    prefix = unpacked(CMAKE, source, folder)
    (folder / "app.c").write_text(blocks(prefix / "share/doc/small/README.md", "c")[0])
    environment = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")}
    command = 'eval "cc app.c $(pkg-config --cflags --libs small) -o app"'
    run("bash", "-e", "-c", command, cwd=folder, **environment)
    shown = run("pkg-config", "--variable=params", "small", cwd=folder, **environment).strip()
    params = Path(shown.replace("\\ ", " "))
    assert run(folder / "app", params, cwd=folder, **environment) == "Success.\n"
    assert run("pkg-config", "--modversion", "small", cwd=folder, **environment) == f"{VERSION}\n"
    text = (prefix / "lib/pkgconfig/small.pc").read_text("utf-8")
    (description,) = re.findall(r"^Description: (.*)$", text, re.MULTILINE)
    assert description == METADATA.summary.replace("\\", "/").replace("$", "$$").replace("#", "\\#")


def test_a_conan_recipe_says_what_was_given(source: SourceBundle, tmp_path: Path) -> None:
    folder = unpacked(CONAN, source, tmp_path)
    recipe = ast.parse((folder / "conanfile.py").read_text("utf-8"))
    (cls,) = (node for node in recipe.body if isinstance(node, ast.ClassDef))
    values = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in cls.body
        if isinstance(node, ast.Assign)
    }
    assert (values["name"], values["version"]) == ("small", VERSION)
    assert values["description"] == METADATA.summary
    assert values["license"] == METADATA.license and values["homepage"] == METADATA.homepage
    assert values["author"] == ", ".join(METADATA.authors)
    ast.parse((folder / "test_package/conanfile.py").read_text("utf-8"))


@pytest.mark.parametrize(
    ("device", "system", "arch"),
    [
        ({"arch": "aarch64"}, "Linux", "armv8"),
        ({"arch": "arm", "triple": "armv7a-unknown-linux-gnueabihf"}, "Linux", "armv7hf"),
        ({"arch": "arm", "triple": "armv6-unknown-linux-gnueabihf"}, "Linux", "armv6"),
        (
            {"arch": "arm", "triple": "armv7a-unknown-linux-androideabi24", "os": "android"},
            "Android",
            "armv7",
        ),
        ({"os": "macos", "triple": "x86_64-apple-macosx11.0"}, "Macos", "x86_64"),
    ],
)
def test_a_conan_recipe_is_for_one_platform(
    device: dict[str, str], system: str, arch: str, source: SourceBundle, tmp_path: Path
) -> None:
    text = (unpacked(CONAN, on(source, **device), tmp_path) / "conanfile.py").read_text()
    assert f'here != ("{system}", "{arch}")' in text


STUBS = """
set(CURRENT_PACKAGES_DIR "{packages}")
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 given "" "" "FILE_LIST")
    file(INSTALL ${{given_FILE_LIST}} DESTINATION "${{CURRENT_PACKAGES_DIR}}/share/small")
endfunction()
include("{portfile}")
"""


#: vcpkg's documentation ("vcpkg.json reference") of the fields that a port of one library has, as a schema.
VCPKG_SCHEMA = {
    "type": "object",
    "required": ["name", "version-semver"],
    "additionalProperties": False,
    "properties": {
        "name": {
            "type": "string",
            "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
            "not": {"pattern": "^(prn|aux|nul|con|lpt[0-9]|com[0-9]|core|default)$"},
        },
        "version-semver": {
            "type": "string",
            "pattern": r"^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$",
        },
        "description": {"type": "string", "minLength": 1},
        "license": {"type": ["string", "null"]},
        "supports": {"type": "string", "pattern": "^[a-z0-9]+ & [a-z0-9]+$"},
        "homepage": {"type": "string", "format": "uri", "pattern": "^https?://"},
        "maintainers": {"type": "array", "items": {"type": "string"}},
    },
}


def test_a_vcpkg_port_installs_what_cmake_finds(source: SourceBundle, folder: Path) -> None:
    """CMake itself runs the portfile, with vcpkg's own two functions in the test; vcpkg was not run."""
    port = unpacked(VCPKG, source, folder) / "ports/small"
    packages = folder / "installed"
    (folder / "run.cmake").write_text(STUBS.format(packages=packages, portfile=port / "portfile.cmake"))
    run("cmake", "-P", "run.cmake", cwd=folder)
    project = "cmake_minimum_required(VERSION 3.16)\nproject(app LANGUAGES C)\n"
    project += "find_package(small CONFIG REQUIRED)\nadd_executable(app app.c)\n"
    project += "target_link_libraries(app PRIVATE small::small)\nmessage(STATUS PARAMS=${small_PARAMS})\n"
    (folder / "CMakeLists.txt").write_text(project)
    (folder / "app.c").write_text(blocks(port.parents[1] / "README.md", "c")[0])
    shown = run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={packages}", cwd=folder)
    (params,) = re.findall(r"PARAMS=(.*)$", shown, re.MULTILINE)
    run("cmake", "--build", "build", cwd=folder)
    assert run(folder / "build/app", params, cwd=folder) == "Success.\n"
    manifest = json.loads((port / "vcpkg.json").read_text("utf-8"))
    assert manifest["description"] == METADATA.summary and manifest["version-semver"] == VERSION
    assert re.fullmatch(r"linux & (x64|arm64)", manifest["supports"])
    assert set(manifest) == set(VCPKG_SCHEMA["properties"])
    import jsonschema  # it takes two seconds, which each process that collects tests would spend

    jsonschema.validate(manifest, VCPKG_SCHEMA)


def test_a_files_name_is_no_code_of_a_portfile(small_bundle: Bundle, tmp_path: Path) -> None:
    """A licence's file may have any name: vcpkg runs what stands there."""
    copy, evil = tmp_path / "bundle", 'LICENSES/x" ) file(TOUCH ev) #${ENV}$ENV{HOME}y.txt'
    shutil.copytree(small_bundle.path, copy)
    (copy / "LICENSES" / "NOTICE.txt").rename(copy / evil)
    seal(copy)
    port = unpacked(VCPKG, source_bundle(copy), tmp_path / "made") / "ports/small"
    (tmp_path / "run.cmake").write_text(
        STUBS.format(packages=tmp_path / "installed", portfile=port / "portfile.cmake")
    )
    shown = run("cmake", "-P", "run.cmake", cwd=tmp_path)
    assert not list(tmp_path.rglob("ev")), shown
    assert "${ENV}$ENV{HOME}" in (port / "portfile.cmake").read_text().replace("\\", "")


@pytest.mark.parametrize("one", [CMAKE, CONAN, VCPKG], ids=["cmake", "conan", "vcpkg"])
def test_names_of_tensors_stand_in_the_readme_alone(
    one: ExportFormat, small_bundle: Bundle, tmp_path: Path
) -> None:
    folder = unpacked(one, hostile(small_bundle), tmp_path)
    (readme,) = folder.rglob("README.md")
    assert len(blocks(readme, "c")) == 1
    for pattern in ("*.cmake", "*.py", "CMakeLists.txt", "app.c"):
        assert not any("passwd" in path.read_text("utf-8") for path in folder.rglob(pattern))


@pytest.mark.parametrize("name", ["cmake", "conan", "vcpkg"])
def test_names_and_platforms_that_an_ecosystem_does_not_know_are_refused(
    name: str, small_bundle: Bundle, source: SourceBundle, tmp_path: Path
) -> None:
    for wrong in ("../x", "a b", 'a"b', "ü"):
        with pytest.raises(ConfigError, match="is no name of"):
            export(small_bundle, name, tmp_path / "dist", package_name=wrong)
    if name == "vcpkg":
        for wrong in ("core", "default", "con", "com1", "a--b"):
            with pytest.raises(ConfigError, match="is no name of a port"):
                export(small_bundle, name, tmp_path / "dist", package_name=wrong)
    one = {"cmake": CMAKE, "conan": CONAN, "vcpkg": VCPKG}[name]
    assert one.refusal(on(source, os="wasi"))
    assert bool(one.refusal(on(source, os="none"))) == (name != "cmake")


@pytest.mark.slow
def test_conan_creates_the_package_and_runs_its_test(source: SourceBundle, tmp_path: Path) -> None:
    """Needs Conan 2 (``pip install conan``)."""
    conan, folder = tool("conan"), unpacked(CONAN, source, tmp_path)
    environment = {"CONAN_HOME": str(tmp_path / "home")}
    run(conan, "profile", "detect", cwd=tmp_path, **environment)
    (script,) = blocks(folder / "README.md", "sh")
    shown = run("sh", "-c", script.replace("conan ", f"{conan} "), cwd=folder, **environment)
    assert shown.rstrip().endswith("Success.")
    refused = subprocess.run(
        [conan, "create", ".", "-s", "arch=armv8"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0 and "not for Linux on armv8" in refused.stderr


@pytest.mark.slow
def test_cmake_finds_the_prefix_of_firmware(small_model: Path, folder: Path) -> None:
    """The README's project as printed, with what a board adds, in qemu's board."""
    tool("qemu-system-arm")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        bundle = pack(small_model, "cortex-m4", folder.parent / "small")
    prefix = unpacked(CMAKE, source_bundle(bundle.path), folder)
    readme = prefix / "share/doc/small/README.md"
    (folder / "app.c").write_text(blocks(readme, "c")[0])
    firmware = bundle.path / "firmware"
    board = "".join(f' "{firmware}/{name}.c"' for name in ("vectors", "start", "semihosting", "library"))
    linking = f"-nostartfiles -Wl,--gc-sections -Wl,-e,Reset_Handler -T {firmware}/mps2-an386.ld"
    (folder / "CMakeLists.txt").write_text(
        blocks(readme, "cmake")[0]
        + f"target_sources(app PRIVATE{board})\n"
        + f'set_target_properties(app PROPERTIES LINK_FLAGS "{linking}")\n'
    )
    (script,) = blocks(readme, "sh")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # the Python that has zig
    given = {"PREFIX": str(prefix), "TOOLCHAIN": str(firmware / "zig.cmake"), "PATH": path}
    run("sh", "-e", "-c", script, cwd=folder, **given)
    qemu = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"]
    run(*qemu, "-semihosting-config", "enable=on,target=native", "-kernel", "build/app", cwd=folder)
    assert not list(prefix.rglob("*-processor.cmake"))


def test_a_refusal_names_the_formats_that_take_the_bundle(source: SourceBundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot become a package of the format arduino") as caught:
        export_bundles([source.root], ["arduino"], tmp_path, METADATA)
    takes = [name for name in EXPORT_FORMATS.names() if not EXPORT_FORMATS.find(name).refusal(source)]
    assert caught.value.hint.endswith(f"These take it: {', '.join(takes)}.")
    assert {"cmake", "tar.gz", "zip"} <= set(takes) and "arduino" not in takes
