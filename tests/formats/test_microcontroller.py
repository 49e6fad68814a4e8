"""Packages for microcontrollers: the program of each README is compiled as its ecosystem would, linked with
the library where that looks for it, and run on a board of qemu."""

from __future__ import annotations

import configparser
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from edgepack.api import Bundle, export, pack
from edgepack.errors import ConfigError
from edgepack.exporting import source_bundle
from edgepack.formats.base import SourceBundle
from edgepack.formats.microcontroller.arduino import ARDUINO
from edgepack.formats.microcontroller.cmsis_pack import CMSIS_PACK
from edgepack.formats.microcontroller.esp_idf import ESP_IDF
from edgepack.formats.microcontroller.platformio import PLATFORMIO
from edgepack.registry import EXPORT_FORMATS
from tests.support import fake, packages
from tests.support.worker import COLUMNS, ROWS, reference

CONSUMERS = Path(__file__).with_name("consumers")
FORMATS = ("arduino", "platformio", "zephyr", "cmsis-pack")
RISCV = ["-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs"]
#: What ESP-IDF's build (tools/cmake/build.cmake, its defaults) compiles a component of an ESP32-C3 with.
ESP_IDF_FLAGS = [
    *(
        "-march=rv32imc",
        "-mabi=ilp32",
        "-std=gnu17",
        "-Og",
        "-fno-jump-tables",
        "-fno-tree-switch-conversion",
    ),
    *("-fstrict-volatile-bitfields", "-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra", "-Werror"),
    *("-Wno-unused-parameter", "-Wno-sign-compare", "-Wno-enum-conversion", "-gdwarf-4", "-ggdb"),
    *("-D_GNU_SOURCE", '-DIDF_VER="v5.4"', "-DESP_PLATFORM", "-D_POSIX_READER_WRITER_LOCKS"),
]
CORE = "cortex-m4/fpv4-sp-d16-hard"
GCC = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
ZIG = [
    sys.executable,
    "-m",
    "ziglang",
    "cc",
    "-target",
    "thumb-freestanding-eabihf",
    "-mcpu=cortex_m4+vfp4d16sp",
]


@pytest.fixture(scope="module")
def bundle(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        return pack(small_model, "cortex-m4", tmp_path_factory.mktemp("m4") / "small")


@pytest.fixture(scope="module")
def unpacked(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each format's package, as its tool unpacks it."""
    folder = tmp_path_factory.mktemp("a place")
    places = {}
    for name in FORMATS:
        options = {"package_name": "acme.small"} if name == "cmsis-pack" else {}
        (made,) = export(bundle, name, folder / f"{name} file", package_version="1.2.0", **options)  # type: ignore[arg-type]
        places[name] = extract(made, folder / name)
    return places


@pytest.fixture(scope="module")
def espressif(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """For the ESP32-C3; its kernels are C, compiled by gcc."""
    packages.tool("riscv64-unknown-elf-gcc")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        folder = tmp_path_factory.mktemp("c3") / "small"
        return pack(small_model, "esp32-c3", folder, toolchain="gcc-riscv-elf")


@pytest.fixture(scope="module")
def component(espressif: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The component as its README says, in a project's folder ``components``."""
    folder = tmp_path_factory.mktemp("a project")
    (made,) = export(espressif, "esp-idf", folder / "made", package_version="1.2.0")
    assert made.name == "small_1.2.0.tgz"
    place = folder / "components" / "small"
    place.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", made, "-C", place], check=True)
    return place


def extract(archive: Path, folder: Path) -> Path:
    """The folder with the package's files."""
    if archive.suffix in {".gz", ".tgz"}:
        folder.mkdir()
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    else:
        shutil.unpack_archive(archive, folder, "zip")
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 else folder


def compiler(language: str) -> list[str]:
    """gcc for Cortex-M where it is installed, else zig."""
    gcc = shutil.which("arm-none-eabi-g++" if language == "c++" else "arm-none-eabi-gcc")
    return [gcc, *GCC] if gcc else [*ZIG[:3], language if language == "c++" else "cc", *ZIG[4:]]


def recorded(bundle: Bundle, folder: Path) -> None:
    """Writes recorded.h, for consumers/check_firmware.c."""
    x = np.fromfile(bundle.path / "test" / "input_0.bin", "f4").reshape(ROWS, COLUMNS)
    output, sign = reference(x)
    arrays = (("float", "recorded", x), ("float", "expected", output), ("signed char", "expected_sign", sign))
    (folder / "recorded.h").write_text(
        "".join(
            f"static const {kind} {name}[] = {{{', '.join(f'{v:.9g}' for v in data.ravel())}}};\n"
            for kind, name, data in arrays
        )
    )


def build(bundle: Bundle, example: Path, include: Path, library: Path, language: str) -> Path:
    """An image with the example, checked by consumers/check_firmware.c."""
    folder = example.parent
    recorded(bundle, folder)
    firmware = bundle.path / "firmware"
    flags = ["-Os", "-ffunction-sections", "-fdata-sections", "-I", str(firmware)]
    packages.run(
        *compiler("c++" if language == "c++" else "c"),
        *(*flags, "-Wall", "-Wextra", "-Werror", f'-DEXAMPLE="{example}"', "-I", folder, "-I", include),
        *(("-x", "c++", "-fno-exceptions", "-fno-rtti") if language == "c++" else ()),
        *("-c", CONSUMERS / "check_firmware.c", "-o", "check.o"),
        cwd=folder,
    )
    support = [firmware / name for name in ("vectors.c", "start.c", "semihosting.c", "library.c")]
    linking = ["-static", "-nostartfiles", "-Wl,--gc-sections", "-Wl,-e,Reset_Handler"]
    script = ["-L", firmware, "-T", firmware / "mps2-an386.ld"]
    # What the scripts of boards define beside; this one is for programs without unwinding.
    newlib = ["-lm", "-Wl,--defsym=__exidx_start=0", "-Wl,--defsym=__exidx_end=0"]
    libraries = ["-L", library, "-lsmall", *(newlib if "gcc" in compiler("c")[0] else [])]
    packages.run(
        *(*compiler("c"), *flags, "-I", include, "check.o", *support, *linking, *script, *libraries),
        *("-o", "check.elf"),
        cwd=folder,
    )
    return folder / "check.elf"


def emulate(image: Path) -> str:
    qemu = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"]
    return packages.run(
        *qemu, "-semihosting-config", "enable=on,target=native", "-kernel", image, cwd=image.parent
    )


@pytest.mark.parametrize("name", FORMATS)
def test_the_program_of_the_readme_gives_the_results(
    name: str, bundle: Bundle, unpacked: dict[str, Path], tmp_path: Path
) -> None:
    package = unpacked[name]
    language = "c++" if name == "arduino" else "c"
    (text,) = packages.blocks(package / "README.md", "cpp" if language == "c++" else "c")
    example = tmp_path / "example.h"
    example.write_text(text)
    include = package / ("src" if name in {"arduino", "platformio"} else "include")
    library = package / ("src" if name in {"arduino", "platformio"} else "lib") / CORE
    assert emulate(build(bundle, example, include, library, language)).endswith("right\n")


def test_arduino_finds_what_its_specification_asks_for(unpacked: dict[str, Path]) -> None:
    package = unpacked["arduino"]
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string("[library]\n" + (package / "library.properties").read_text("utf-8"))
    said = dict(parser["library"])
    assert (said["name"], said["version"], said["includes"]) == ("small", "1.2.0", "small.h")
    assert (said["precompiled"], said["ldflags"]) == ("full", "-lsmall -lm")
    for field in ("author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"):
        assert field in said
    (sketch,) = (package / "examples").glob("*/*.ino")
    assert sketch.stem == sketch.parent.name


class Board:
    """What PlatformIO gives to the script of a library."""

    def __init__(self, core: str) -> None:
        self.core, self.added, self.status = core, {}, 0  # type: ignore[var-annotated]

    def BoardConfig(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(get={"build.cpu": self.core}.get)

    def Append(self, **added: list[str]) -> None:  # noqa: N802
        self.added |= added

    def Exit(self, status: int) -> None:  # noqa: N802
        self.status = status


def test_the_script_for_platformio_links_the_library_of_the_core(
    unpacked: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = unpacked["platformio"]
    monkeypatch.chdir(package)
    script = compile((package / "link.py").read_text(), "link.py", "exec")
    board, other = Board("cortex-m4"), Board("cortex-m0")
    for one in (board, other):
        exec(script, {"Import": lambda _: None, "env": one})
    assert board.added["LIBS"] == ["small", "m"]
    (folder,) = board.added["LIBPATH"]
    assert (Path(folder) / "libsmall.a").is_file()
    assert other.status == 1
    assert capsys.readouterr().err == "small has no library for cortex-m0; it has them for cortex-m4.\n"


@pytest.mark.slow
def test_platformio_packs_it(unpacked: dict[str, Path], tmp_path: Path) -> None:
    """`pip install platformio`; it checks library.json, and needs no network for it."""
    program = packages.tool("pio", str(Path(sys.executable).parent))
    packages.run(program, "pkg", "pack", unpacked["platformio"], "-o", tmp_path, cwd=tmp_path)
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        assert {f"src/{CORE}/libsmall.a", "library.json", "link.py"} <= {*archive.getnames()}


#: The two functions of Zephyr's build that a module calls, and what a board's configuration says.
ZEPHYR_BUILD = """
cmake_minimum_required(VERSION 3.20)
project(app C)
function(zephyr_include_directories)
  include_directories(${ARGV})
  file(WRITE ${CMAKE_BINARY_DIR}/include "${ARGV}")
endfunction()
function(zephyr_library_import name path)
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${path})
  file(WRITE ${CMAKE_BINARY_DIR}/library "${path}")
endfunction()
set(CONFIG_EDGEPACK_SMALL y)
set(CONFIG_CPU_CORTEX_M4 y)
add_subdirectory("@MODULE@/zephyr" module)
"""


def test_zephyr_finds_module_configuration_and_library(unpacked: dict[str, Path], tmp_path: Path) -> None:
    package = unpacked["zephyr"]
    module = yaml.safe_load((package / "zephyr" / "module.yml").read_text())
    assert module == {"name": "small", "build": {"cmake": "zephyr", "kconfig": "zephyr/Kconfig"}}
    kconfig = (package / "zephyr" / "Kconfig").read_text()
    assert kconfig.startswith(
        'config EDGEPACK_SMALL\n\tbool "The model small"\n\tdepends on FPU && FP_HARDABI\n'
    )
    assert "\tdepends on CPU_CORTEX_M4\n" in kconfig
    (tmp_path / "CMakeLists.txt").write_text(ZEPHYR_BUILD.replace("@MODULE@", str(package)))
    packages.run("cmake", "-S", ".", "-B", "build", cwd=tmp_path)
    assert Path((tmp_path / "build" / "library").read_text()).is_file()
    assert (Path((tmp_path / "build" / "include").read_text()) / "small.h").is_file()


#: ESP-IDF's functions, in short.
ESP_IDF_BUILD = """
cmake_minimum_required(VERSION 3.16)
project(app C)
macro(idf_component_register)
  cmake_parse_arguments(given "" "" "INCLUDE_DIRS" ${ARGN})
  set(COMPONENT_LIB __idf_small)
  add_library(${COMPONENT_LIB} INTERFACE)
  file(WRITE ${CMAKE_BINARY_DIR}/include "${CMAKE_CURRENT_LIST_DIR}/${given_INCLUDE_DIRS}")
endmacro()
function(add_prebuilt_library name path)
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${path})
  file(WRITE ${CMAKE_BINARY_DIR}/library "${path}")
endfunction()
add_subdirectory("@COMPONENT@" component)
get_target_property(linked __idf_small INTERFACE_LINK_LIBRARIES)
file(WRITE ${CMAKE_BINARY_DIR}/linked "${linked}")
"""


def esp_idf_build(component: Path, target: str, folder: Path) -> dict[str, str]:
    """What the component's CMakeLists.txt says for a target: include, library, linked; or the error."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(ESP_IDF_BUILD.replace("@COMPONENT@", str(component)))
    command = ["cmake", "-S", ".", "-B", "build", f"-DIDF_TARGET={target}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr}
    return {name: (folder / "build" / name).read_text() for name in ("include", "library", "linked")}


def test_esp_idf_links_the_library_of_the_targets_core(component: Path, tmp_path: Path) -> None:
    said = esp_idf_build(
        component, "esp32c6", tmp_path / "c6"
    )  # whose core has more extensions, and the same ABI
    assert Path(said["library"]) == component / "lib" / "rv32imc" / "libsmall.a"
    assert said["linked"] == "edgepack_small;m"
    assert (Path(said["include"]) / "small.h").is_file()
    assert "small has no library for esp32p4" in " ".join(
        esp_idf_build(component, "esp32p4", tmp_path / "p4")["error"].split()
    )


def test_the_program_of_a_component_gives_the_results(
    component: Path, espressif: Bundle, tmp_path: Path
) -> None:
    """Compiled as ESP-IDF compiles, linked with what the component links, run on a board of qemu."""
    qemu = packages.tool("qemu-system-riscv32")
    gcc, firmware = "riscv64-unknown-elf-gcc", espressif.path / "firmware"
    (text,) = packages.blocks(component / "README.md", "c")
    assert text == (component / "examples" / "run" / "main" / "main.c").read_text()
    (tmp_path / "example.h").write_text(text)
    recorded(espressif, tmp_path)
    include = ["-isystem", firmware, "-I", tmp_path, "-I", component / "include"]
    packages.run(
        *(gcc, "--specs=picolibc.specs", *ESP_IDF_FLAGS, *include, '-DEXAMPLE="example.h"'),
        *("-c", CONSUMERS / "check_firmware.c", "-o", "check.o"),
        cwd=tmp_path,
    )
    support = [firmware / f"{name}.c" for name in ("vectors", "start", "semihosting")]
    linking = ["-static", "-nostartfiles", "-Wl,--gc-sections", "-L", firmware, "-T", firmware / "virt.ld"]
    packages.run(
        *(gcc, *RISCV, "-Os", *include, "check.o", *support, *linking),
        *(component / "lib" / "rv32imc" / "libsmall.a", "-lm", "-o", "check.elf"),
        cwd=tmp_path,
    )
    board = ["-M", "virt", "-bios", "none", "-cpu", "rv32,a=off,f=off,d=off"]
    options = ["-nographic", "-monitor", "none", "-serial", "none"]
    said = packages.run(
        *(qemu, *board, *options, "-semihosting-config", "enable=on,target=native"),
        *("-kernel", "check.elf"),
        cwd=tmp_path,
    )
    assert said.endswith("right\n")


def test_a_components_manifest_is_what_was_given(espressif: Bundle, component: Path, tmp_path: Path) -> None:
    """Hostile metadata too: each value is a string of YAML."""
    said = yaml.safe_load((component / "idf_component.yml").read_text("utf-8"))
    assert (said["version"], said["dependencies"]) == ("1.2.0", {"idf": {"version": ">=5.0"}})
    assert said["targets"] == ["esp32c2", "esp32c3", "esp32c5", "esp32c6", "esp32c61", "esp32h2"]
    (made,) = packages.write(ESP_IDF, [packages.hostile(espressif)], tmp_path / "made")
    place = extract(made, tmp_path / "odd")
    said = yaml.safe_load((place / "idf_component.yml").read_text("utf-8"))
    given = packages.METADATA
    assert (said["description"], said["license"], said["url"]) == (
        given.summary,
        given.license,
        given.homepage,
    )
    assert said["maintainers"] == given.authors


def test_several_risc_v_cores_are_one_component_and_others_are_refused(
    espressif: Bundle, bundle: Bundle, tmp_path: Path
) -> None:
    (single,) = export(espressif, "esp-idf", tmp_path / "single")
    packages.assert_same_bytes("esp-idf", [espressif], single, tmp_path / "copies")
    c3 = source_bundle(espressif.path)
    p4 = packages.on(c3, features=("+m", "+a", "+f", "+c"))
    (made,) = packages.write(ESP_IDF, [c3, p4], tmp_path / "two")
    place = extract(made, tmp_path / "both")
    assert {path.parent.name for path in place.rglob("libsmall.a")} == {"rv32imc", "rv32imafc"}
    said = esp_idf_build(place, "esp32p4", tmp_path / "p4")
    assert Path(said["library"]).parent.name == "rv32imafc"
    refused = ESP_IDF.refusal(source_bundle(bundle.path))
    assert refused.startswith("its core is cortex-m4, and the package knows rv32imafc, rv32imac, rv32imc, ")
    assert ARDUINO.refusal(c3).startswith("its core is rv32imc, and the package knows cortex-m4")
    for name in ("two__lines", "1st", "ends_", "a b"):
        with pytest.raises(ConfigError, match="is no name of a component"):
            export(espressif, "esp-idf", tmp_path / "named", package_name=name)


@pytest.mark.slow
def test_compote_packs_the_component(component: Path, tmp_path: Path) -> None:
    """`pip install idf-component-manager`: it checks the manifest, and packs the files that there are."""
    compote = packages.tool("compote")
    packages.run(
        *(
            compote,
            "component",
            "pack",
            "--name",
            "small",
            "--project-dir",
            component,
            "--dest-dir",
            tmp_path,
        ),
        cwd=tmp_path,
    )
    with tarfile.open(tmp_path / "small_1.2.0.tgz") as archive:
        packed = {name.removeprefix("./") for name in archive.getnames()}
    ours = {path.relative_to(component).as_posix() for path in component.rglob("*") if path.is_file()}
    assert ours <= packed


def test_a_pack_names_files_that_are_there_and_conditions_that_it_has(unpacked: dict[str, Path]) -> None:
    package = unpacked["cmsis-pack"]
    root = ElementTree.parse(package / "acme.small.pdsc").getroot()
    assert [child.tag for child in root] == [
        *("vendor", "name", "description", "url", "license", "releases", "conditions", "components")
    ]
    conditions = {one.get("id") for one in root.iter("condition")}
    for element in (*root.iter("file"), *root.iter("accept"), *root.iter("component")):
        assert element.get("condition") in {None, *conditions}
    for file in root.iter("file"):
        assert (package / str(file.get("name"))).exists()
    for license_file in root.iter("license"):
        assert (package / str(license_file.text)).is_file()
    (require,) = root.iter("require")
    assert require.attrib == {"Dcore": "Cortex-M4", "Dfpu": "SP_FPU"}


def test_no_name_and_no_metadata_ends_a_string_or_a_comment(bundle: Bundle, tmp_path: Path) -> None:
    """The printed programs are compiled against a header that has the functions; files are parsed."""
    odd = packages.hostile(bundle)
    given = packages.METADATA
    (made,) = packages.write(PLATFORMIO, [odd], tmp_path / "platformio")
    said = json.loads((extract(made, tmp_path / "p") / "library.json").read_text("utf-8"))
    assert (said["description"], said["license"]) == (given.summary, given.license)
    assert said["authors"][0] == {"name": 'Zoë "Q" O\'Neil ]] */ \\', "email": "zoe@example.org"}
    (made,) = packages.write(CMSIS_PACK, [odd], tmp_path / "cmsis")
    package = extract(made, tmp_path / "c")
    root = ElementTree.parse(package / "edgepack.small.pdsc").getroot()
    assert root.findtext("description") == given.summary
    assert root.findtext("url") == given.homepage
    (made,) = packages.write(ARDUINO, [odd], tmp_path / "arduino")
    lines = (extract(made, tmp_path / "a") / "library.properties").read_text("utf-8").splitlines()
    assert f"sentence={given.summary}" in lines
    assert len(lines) == 12
    (example,) = packages.blocks(package / "README.md", "c")
    declared = "ep_status run_any(ep_session *session, ...);\n#define small_run run_any\n"
    (tmp_path / "main.c").write_text(example.replace("small.h>\n", f"small.h>\n{declared}", 1))
    packages.run(
        "cc", "-std=c99", "-Wall", "-Werror", "-c", "main.c", "-I", package / "include", cwd=tmp_path
    )


@pytest.mark.parametrize("name", FORMATS)
def test_several_cores_are_one_package_and_others_are_refused(
    name: str, bundle: Bundle, tmp_path: Path
) -> None:
    (single,) = export(bundle, name, tmp_path / "single")
    packages.assert_same_bytes(name, [bundle], single, tmp_path / "copies")
    source = source_bundle(bundle.path)
    one = EXPORT_FORMATS.find(name)
    (made,) = packages.write(one, [source, packages.on(source, cpu="cortex-m33")], tmp_path / "two")
    package = extract(made, tmp_path / "both")
    assert {path.parents[1].name for path in package.rglob("libsmall.a")} == {"cortex-m4", "cortex-m33"}
    with pytest.raises(ConfigError, match="Two bundles are for cortex-m4"):
        packages.write(one, [source, source], tmp_path / "same")
    assert one.refusal(packages.on(source, os="linux")) == (
        "it is for linux, and these packages are for microcontrollers."
    )
    assert one.refusal(packages.on(source, cpu="cortex-m0")).startswith(
        "its core is cortex-m0, and the package"
    )
    bare = SourceBundle(source.root, source.manifest.model_copy(update={"artifacts": ()}))
    assert one.refusal(bare) == "it has no static library."
