"""The component for ESP-IDF: compiled as ESP-IDF compiles, linked with the library that its CMakeLists.txt
names, and run on a board of qemu."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.microcontroller.esp_idf import ESP_IDF
from tests.support import fake, packages

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
    assert made.name == "small-1.2.0-esp-idf.tar.gz"
    place = folder / "components" / "small"
    place.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", made, "-C", place], check=True)
    return place


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
    packages.recorded(espressif, tmp_path)
    include = ["-isystem", firmware, "-I", tmp_path, "-I", component / "include"]
    packages.run(
        *(gcc, "--specs=picolibc.specs", *ESP_IDF_FLAGS, *include, '-DEXAMPLE="example.h"'),
        *("-c", packages.CONSUMERS / "check_firmware.c", "-o", "check.o"),
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
    place = packages.extract(made, tmp_path / "odd")
    said = yaml.safe_load((place / "idf_component.yml").read_text("utf-8"))
    given = packages.METADATA
    assert (said["description"], said["license"], said["url"]) == (
        given.summary,
        given.license,
        given.homepage,
    )
    assert said["maintainers"] == given.authors


def test_several_risc_v_cores_are_one_component_and_others_are_refused(
    espressif: Bundle, tmp_path: Path
) -> None:
    (single,) = export(espressif, "esp-idf", tmp_path / "single")
    packages.assert_same_bytes("esp-idf", [espressif], single, tmp_path / "copies")
    c3 = source_bundle(espressif.path)
    p4 = packages.on(c3, features=("+m", "+a", "+f", "+c"))
    (made,) = packages.write(ESP_IDF, [c3, p4], tmp_path / "two")
    place = packages.extract(made, tmp_path / "both")
    assert {path.parent.name for path in place.rglob("libsmall.a")} == {"rv32imc", "rv32imafc"}
    said = esp_idf_build(place, "esp32p4", tmp_path / "p4")
    assert Path(said["library"]).parent.name == "rv32imafc"
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
