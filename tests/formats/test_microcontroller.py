"""Packages for microcontrollers: the program of each README is compiled as its ecosystem would, linked with
the library where that looks for it, and run on a board of qemu."""

from __future__ import annotations

import configparser
import json
import shutil
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import yaml

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.base import SourceBundle
from edgepack.formats.microcontroller.arduino import ARDUINO
from edgepack.formats.microcontroller.cmsis_pack import CMSIS_PACK
from edgepack.formats.microcontroller.esp_idf import ESP_IDF
from edgepack.formats.microcontroller.platformio import PLATFORMIO
from edgepack.registry import EXPORT_FORMATS
from tests.support import fake, packages

FORMATS = ("arduino", "platformio", "zephyr", "cmsis-pack")
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
        assert name == "cmsis-pack" or f"-{name}." in made.name, (
            "such names cannot be mistaken for each other"
        )
        places[name] = packages.extract(made, folder / name)
    return places


@pytest.mark.parametrize("name", FORMATS)
def test_the_readme_has_scale_and_zero_point(name: str, unpacked: dict[str, Path]) -> None:
    text = (unpacked[name] / "README.md").read_text(encoding="utf-8")
    assert "An integer x of `sign` means (x + 3) * 0.0625:\nscale 0.0625, zero point -3." in text
    assert text.count("means (x") == 1


def compiler(language: str) -> list[str]:
    """gcc for Cortex-M where it is installed, else zig."""
    gcc = shutil.which("arm-none-eabi-g++" if language == "c++" else "arm-none-eabi-gcc")
    return [gcc, *GCC] if gcc else [*ZIG[:3], language if language == "c++" else "cc", *ZIG[4:]]


def build(bundle: Bundle, example: Path, include: Path, library: Path, language: str) -> Path:
    """An image with the example, checked by consumers/check_firmware.c."""
    folder = example.parent
    packages.recorded(bundle, folder)
    firmware = bundle.path / "firmware"
    flags = ["-Os", "-ffunction-sections", "-fdata-sections", "-I", str(firmware)]
    packages.run(
        *compiler("c++" if language == "c++" else "c"),
        *(*flags, "-Wall", "-Wextra", "-Werror", f'-DEXAMPLE="{example}"', "-I", folder, "-I", include),
        *(("-x", "c++", "-fno-exceptions", "-fno-rtti") if language == "c++" else ()),
        *("-c", packages.CONSUMERS / "check_firmware.c", "-o", "check.o"),
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


def test_a_component_for_espressif_takes_no_other_core(bundle: Bundle) -> None:
    refused = ESP_IDF.refusal(source_bundle(bundle.path))
    assert refused.startswith("its core is cortex-m4, and the package knows rv32imafc, rv32imac, rv32imc, ")


def test_no_name_and_no_metadata_ends_a_string_or_a_comment(bundle: Bundle, tmp_path: Path) -> None:
    """The printed programs are compiled against a header that has the functions; files are parsed."""
    odd = packages.hostile(bundle)
    given = packages.METADATA
    (made,) = packages.write(PLATFORMIO, [odd], tmp_path / "platformio")
    said = json.loads((packages.extract(made, tmp_path / "p") / "library.json").read_text("utf-8"))
    assert (said["description"], said["license"]) == (given.summary, given.license)
    assert said["authors"][0] == {"name": 'Zoë "Q" O\'Neil ]] */ \\', "email": "zoe@example.org"}
    (made,) = packages.write(CMSIS_PACK, [odd], tmp_path / "cmsis")
    package = packages.extract(made, tmp_path / "c")
    root = ElementTree.parse(package / "edgepack.small.pdsc").getroot()
    assert root.findtext("description") == given.summary
    assert root.findtext("url") == given.homepage
    (made,) = packages.write(ARDUINO, [odd], tmp_path / "arduino")
    lines = (packages.extract(made, tmp_path / "a") / "library.properties").read_text("utf-8").splitlines()
    assert f"sentence={given.summary}" in lines
    assert len(lines) == 12
    (example,) = packages.blocks(package / "README.md", "c")
    declared = "ep_status run_any(void *memory, ...);\n#define small_run_direct run_any\n"
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
    package = packages.extract(made, tmp_path / "both")
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


#: What a package says of a core without an FPU, and of it beside one that has one: its file, and both texts.
WITHOUT_FPU = {
    "platformio": ("link.py", '"cortex-m0plus": "src/cortex-m0plus"', '"cortex-m4": "src/cortex-m4/'),
    "zephyr": (
        "zephyr/Kconfig",
        "depends on CPU_CORTEX_M0PLUS\n",
        "depends on CPU_CORTEX_M4 && FPU && FP_HARDABI || CPU_CORTEX_M0PLUS\n",
    ),
    "cmsis-pack": ("*.pdsc", 'Dcore="Cortex-M0+" Dfpu="NO_FPU"', 'Dcore="Cortex-M4" Dfpu="SP_FPU"'),
    "arduino": (
        "README.md",
        "For cortex-m0plus. The",
        "For cortex-m4, cortex-m0plus, cortex-m4 with FPU, floats",
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_core_without_an_fpu_has_a_library_of_its_own(name: str, bundle: Bundle, tmp_path: Path) -> None:
    source, one = source_bundle(bundle.path), EXPORT_FORMATS.find(name)
    soft = packages.on(source, cpu="cortex-m0plus", triple="thumbv6m-unknown-none-eabi")
    file, alone, beside = WITHOUT_FPU[name]
    for sources, text in (([soft], alone), ([source, soft], beside)):
        (made,) = packages.write(one, sources, tmp_path / f"{len(sources)}")
        package = packages.extract(made, tmp_path / f"unpacked {len(sources)}")
        assert "cortex-m0plus" in {path.parent.name for path in package.rglob("libsmall.a")}
        (found,) = package.rglob(file)
        assert text in found.read_text("utf-8")
        readme = (package / "README.md").read_text("utf-8")
        assert ("with FPU" in readme, "CONFIG_FPU" in readme) == (
            len(sources) > 1,
            len(sources) > 1 and name == "zephyr",
        )


def test_arduino_takes_risc_v_chips_of_espressifs(bundle: Bundle, tmp_path: Path) -> None:
    """Arduino's core for the ESP32 calls its chips ``esp32c3`` (``build.mcu``), with no folder of an FPU."""
    source = source_bundle(bundle.path)
    riscv = {"arch": "riscv32", "cpu": "generic-rv32", "triple": "riscv32-unknown-none-elf"}
    c3 = packages.on(source, **riscv, features=("+m", "+c"))
    c6 = packages.on(source, **riscv, features=("+m", "+a", "+c"))
    assert ARDUINO.refusal(c3) == ARDUINO.refusal(c6) == ""
    (made,) = packages.write(ARDUINO, [c3, c6], tmp_path / "made")
    package = packages.extract(made, tmp_path / "both")
    folders = {path.parent.relative_to(package / "src").as_posix() for path in package.rglob("libsmall.a")}
    assert folders == {"esp32c3", "esp32c5", "esp32c6", "esp32h2"}
    readme = (package / "README.md").read_text("utf-8")
    assert "FPU" not in readme and "rv32imc" in readme
