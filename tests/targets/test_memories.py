"""Microcontrollers with several memories: what lies where in an image for qemu's board, and its results."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import lief
import pytest

import edgepack
from edgepack.api import check, export
from edgepack.bundle.firmware.placement import place
from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.objectfiles.ar import members
from edgepack.plan.types import Arena, Plan
from tests.support.firmware import GCC, image_cnn, say
from workbench.models import save
from workbench.models.quantise import quantise

#: The tightly coupled memory, SRAM and QSPI flash that the board mps3-an547 has; the network has 17 KiB of
#: params, an arena of 10 KiB and 9 KiB of kernels.
DEVICE = """
extends: cortex-m55
budget: {flash: 22 KiB, ram: 32 KiB}
memories:
  - {name: dtcm, size: DTCM, arena: .dtcm_bss, params: .dtcm_data, loaded_from: qspi}
  - {name: sram, size: SRAM, arena: .sram_bss}
  - {name: flash, params: .rodata.edgepack}
  - {name: qspi, size: QSPI, params: .qspi_rodata}
"""
#: Where the board has them.
DTCM, SRAM, QSPI, FLASH = 0x20000000, 0x11000000, 0x28000000, 0x60000000

Pack = Callable[..., edgepack.Bundle]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(quantise(image_cnn(), "s8s8"), tmp_path_factory.mktemp("model"), "image_int8.onnx")


def device(folder: Path, dtcm: str = "14 KiB", sram: str = "64 KiB", qspi: str = "64 KiB") -> Device:
    text = DEVICE
    for name, size in (("DTCM", dtcm), ("SRAM", sram), ("QSPI", qspi)):
        text = text.replace(name, size)
    (folder / "sensor.yaml").write_text(text, encoding="utf-8")
    return load_device(folder / "sensor.yaml")


@pytest.fixture(scope="module")
def packed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    made: dict[tuple[str, ...], edgepack.Bundle] = {}

    def pack(*sizes: str) -> edgepack.Bundle:
        if sizes not in made:
            folder = tmp_path_factory.mktemp("memories")
            toolchain = GCC if shutil.which("arm-none-eabi-gcc") else "zig"
            made[sizes] = edgepack.pack(model, device(folder, *sizes), folder / "out", toolchain=toolchain)
        return made[sizes]

    return pack


def _symbols(bundle: edgepack.Bundle) -> dict[str, int]:
    image = lief.ELF.parse((bundle.path / "bin" / "image_int8.elf").read_bytes())
    assert image is not None
    return {str(one.name): int(one.value) for one in image.symtab_symbols}


def test_what_is_read_most_lies_nearest_and_the_results_are_right(packed: Pack) -> None:
    bundle = packed()
    assert bundle.verify().ok
    found, manifest = _symbols(bundle), bundle.manifest
    assert found["memory"] == DTCM
    assert DTCM < found["ep_embedded_image_int8_dtcm"] < DTCM + (14 << 10)
    assert FLASH <= found["ep_embedded_image_int8_flash"] < FLASH + (22 << 10)
    assert found["ep_embedded_image_int8"] == QSPI
    arena = [(one.memory, one.section, one.nbytes) for one in manifest.memory.sections]
    assert arena == [("dtcm", ".dtcm_bss", manifest.memory.arena)]
    assert [one.memory for one in manifest.params.sections] == ["qspi", "flash", "dtcm"]
    assert sum(one.nbytes for one in manifest.params.sections) == manifest.params.nbytes
    data = (bundle.path / "params" / "image_int8.params").read_bytes()[-manifest.params.nbytes :]
    assert hashlib.sha256(data).hexdigest() == manifest.params.id


def test_the_table_and_the_budget_are_of_each_memory(packed: Pack) -> None:
    footprint = packed().manifest.footprint
    assert footprint is not None
    parts = {part.name: part for part in footprint.parts}
    used = {one.name: one.used for one in footprint.memories}
    assert all(one.used <= one.budget for one in footprint.memories)
    assert used["sram"] == 0 and used["dtcm"] > 12 << 10
    params = parts["params"].memories
    assert used["dtcm"] == params["dtcm"] + parts["arena"].memories["dtcm"]
    assert params["qspi"] > params["dtcm"] > 1024, "start code copies the latter from there"
    assert parts["arena"].ram == 0


def test_an_arena_that_fits_nowhere_is_parted(packed: Pack) -> None:
    bundle = packed("9 KiB", "6 KiB")
    assert bundle.verify().ok
    found, parts = _symbols(bundle), bundle.manifest.memory.sections
    assert (found["memory"], found["ep_arena_sram"]) == (DTCM, SRAM)
    assert [one.memory for one in parts] == ["dtcm", "sram"]
    assert all(0 < one.nbytes <= 9 << 10 for one in parts)
    assert sum(one.nbytes for one in parts) == bundle.manifest.memory.arena > 9 << 10
    header = (bundle.path / "include" / "image_int8.h").read_text()
    assert f"#define IMAGE_INT8_ARENA_BYTES {parts[0].nbytes}\n" in header
    assert bundle.bench(runs=1).instructions is not None, "a session"


def _changed(bundle: edgepack.Bundle, folder: Path, old: bytes, new: bytes) -> edgepack.Bundle:
    shutil.copytree(bundle.path, folder / "changed")
    image = folder / "changed" / "bin" / "image_int8.elf"
    data = image.read_bytes()
    assert len(old) == len(new) and data.count(old) == 1
    image.write_bytes(data.replace(old, new))
    return edgepack.Bundle(folder / "changed")


def test_a_memory_with_the_params_of_another_pack_is_refused(packed: Pack, tmp_path: Path) -> None:
    """The id before each piece but the first is compared when the model is opened, and by the function that
    needs no session."""
    bundle = packed()
    params = bundle.manifest.params
    identity = bytes.fromhex(params.id)
    (flash,) = (one for one in params.sections if one.memory == "flash")
    data = (bundle.path / "params" / "image_int8.params").read_bytes()[-params.nbytes :]
    begin = data[flash.offset : flash.offset + 64]
    other = bytes(reversed(identity))
    changed = _changed(bundle, tmp_path, identity + bytes(32) + begin, other + bytes(32) + begin)
    code, said = say(changed, "verify")
    assert (code, said["code"]) == (2, "EP_E_PARAMS_MODEL")
    text = (bundle.path / "src" / "model.c").read_text()
    direct = text.partition("edgepack_run_image_int8(void *memory")[2]
    compared = re.findall(r"!ep_equal\((ep_embedded_image_int8\w*)[^|]*, id, sizeof id\)", direct)
    assert compared == [f"ep_embedded_image_int8{name}" for name in ("", "_flash", "_dtcm")]


def test_a_changed_byte_is_found_in_each_memory(packed: Pack, tmp_path: Path) -> None:
    bundle = packed()
    params = bundle.manifest.params
    assert say(bundle, "check-params")[0] == 0
    data = (bundle.path / "params" / "image_int8.params").read_bytes()[-params.nbytes :]
    for one in params.sections:
        old = data[one.offset : one.offset + 64]
        (tmp_path / one.memory).mkdir()
        changed = _changed(bundle, tmp_path / one.memory, old, bytes([old[0] ^ 1]) + old[1:])
        code, said = say(changed, "check-params")
        assert (code, said["code"]) == (1, "EP_E_PARAMS_HASH"), one.memory


def test_one_file_of_c_has_the_same_sections(packed: Pack, tmp_path: Path) -> None:
    bundle = packed()
    (archive,) = export([bundle.path], ["c-single-file"], tmp_path)
    shutil.unpack_archive(archive, tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*/image_int8.c"))
    for one in bundle.manifest.params.sections:
        words = (
            text.partition(f'section("{one.section}")')[2].partition("{\n")[2].partition("}")[0].split(",")
        )
        assert 0 <= 8 * len(words) - one.nbytes <= 64 + 128, one
    assert "EP_PARAMS_FILE" not in text


def test_params_without_room_are_told_with_a_table(model: Path, tmp_path: Path) -> None:
    small = device(tmp_path, "14 KiB", "64 KiB", "1 KiB")
    words = r"of params have no room, and .* in dtcm, .* in flash, .* in qspi are left"
    with pytest.raises(CheckFailedError, match=words) as caught:
        edgepack.pack(model, small, tmp_path / "out")
    assert caught.value.exit_code == 1
    rows = [line.split()[0] for line in caught.value.detail.splitlines()]
    assert rows == ["memory", "dtcm", "sram", "flash", "qspi"]
    assert not (tmp_path / "out").exists()
    found = check(model, small)
    assert found.fits is False and "of params have no room" in found.message


def test_an_arena_without_room_is_told(tmp_path: Path) -> None:
    plan = Plan("net", (), (), (), 0, Arena(nbytes=10 << 10), (), ())
    words = r"arena needs 10\.0 KiB in whole buffers, and 5952 B in dtcm, 2048 B in sram are left"
    with pytest.raises(CheckFailedError, match=words):
        place(plan, device(tmp_path, "6 KiB", "2 KiB"), 0)
    banks, places = place(plan, device(tmp_path, "6 KiB", "10 KiB"), 0)
    assert [(one.memory, one.nbytes) for one in banks] == [("sram", 10 << 10)] and not places


def test_params_that_a_key_signs_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes none that a key signs"):
        edgepack.pack(model, device(tmp_path), tmp_path / "out", params_key=tmp_path / "key.pub")


def test_a_teensy_has_its_params_in_flash(model: Path, packed: Pack, tmp_path: Path) -> None:
    """Teensyduino's linker script would put .rodata into RAM."""
    toolchain = GCC if shutil.which("arm-none-eabi-gcc") else "zig"
    bundle = edgepack.pack(model, "teensy41", tmp_path / "out", toolchain=toolchain)
    objects = [lief.ELF.parse(content) for _, content in members(bundle.path / "lib" / "libimage_int8.a")]
    sizes = {str(one.name): int(one.size) for found in objects if found for one in found.sections}
    assert sizes[".progmem.edgepack"] >= bundle.manifest.params.nbytes
    assert ".rodata.edgepack" not in sizes
    assert bundle.verify().ok
    with pytest.raises(ConfigError, match="arenas in different sections"):
        export([bundle.path, packed().path], ["arduino"], tmp_path / "dist")
    (package,) = export([bundle.path], ["arduino"], tmp_path / "dist")
    shutil.unpack_archive(package, tmp_path / "library")
    (sketch,) = (path.read_text() for path in (tmp_path / "library").rglob("*.ino"))
    assert "__attribute__((section(IMAGE_INT8_ARENA_SECTION), aligned(64)))" in sketch


def test_the_example_of_the_docs_loads(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "use" / "microcontrollers.md").read_text(encoding="utf-8")
    _, body = text.split("<!-- file: my-board.yaml -->\n```yaml\n", 1)
    file = tmp_path / "my-board.yaml"
    file.write_text(body.split("```", 1)[0], encoding="utf-8")
    assert [one.name for one in load_device(file).memories] == ["dtcm", "ram", "flash", "qspi"]
