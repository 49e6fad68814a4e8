"""Names of chips and boards lead to devices, and never to one whose instructions the chip lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.aliases import ALIASES, load_aliases
from edgepack.config.device import DEVICES, alias_note, device_names, load_device
from edgepack.errors import ConfigError
from edgepack.release.project_file import load_project
from edgepack.resources import TOOLCHAINS
from workbench.models import build, save


def test_every_alias_leads_to_a_device() -> None:
    known = device_names()
    for name, alias in load_aliases().aliases.items():
        assert alias.device in known, name
        made, base = load_device(name), load_device(alias.device)
        assert made.name == name
        different = {"name", "description", "budget", "memories"}
        assert made.model_dump(exclude=different) == base.model_dump(exclude=different)
        assert made.memories == alias.memories


def test_no_alias_shadows_a_device_or_a_name_that_has_none() -> None:
    known = load_aliases()
    assert not set(known.aliases) & set(device_names())
    assert not set(known.without) & {*device_names(), *known.aliases}


@pytest.mark.parametrize(
    ("chip", "device"),
    [
        ("stm32f407", "cortex-m4"),
        # Their Cortex-M7 has no double precision, which the device cortex-m7 uses.
        ("stm32f746", "cortex-m4"),
        ("stm32h743", "cortex-m7"),
        ("stm32h747", "cortex-m7"),
        ("stm32u585", "cortex-m33"),
        ("stm32n6", "cortex-m55"),
        ("ra8m1", "cortex-m85"),
        ("nrf52840", "cortex-m4"),
        ("nrf5340", "cortex-m33"),
        ("rp2350", "cortex-m33"),
        ("imxrt1062", "cortex-m7"),
        ("teensy4", "cortex-m7"),
        ("bcm2711", "raspberrypi4"),
        ("bcm2712", "raspberrypi5"),
        ("rk3588", "linux-aarch64-v8.2"),
        ("rk3399", "linux-aarch64"),
        # Its Carmel cores have no dot products.
        ("jetson-xavier", "linux-aarch64"),
        ("esp32c3", "esp32-c3"),
        ("jetson-orin-nano", "jetson-orin"),
        ("apple-m1", "macos-arm64"),
        ("snapdragon-8-gen-2", "android-arm64"),
        ("graviton2", "linux-aarch64-v8.2"),
        ("graviton3", "linux-aarch64-v8.6"),
        # Vectors of version 0.7, which V 1.0 is not.
        ("th1520", "linux-riscv64"),
        ("cortex-m4f", "cortex-m4"),
        ("rp2040", "cortex-m0plus"),
        ("nrf51822", "cortex-m0plus"),
        # A Cortex-M3 and a Cortex-M4 without an FPU run these instructions too.
        ("stm32f103", "cortex-m0plus"),
        ("nrf52810", "cortex-m0plus"),
    ],
)
def test_a_chip_gets_instructions_that_it_has(chip: str, device: str) -> None:
    assert load_aliases().aliases[chip].device == device


@pytest.mark.parametrize(
    ("chip", "why"),
    [
        ("esp32", "Xtensa"),
        ("esp32s3", "Xtensa"),
        ("esp32-s3-devkitc-1", "Xtensa"),
        ("ESP32_S3", "esp32-p4, which has an FPU as an ESP32-S3 has"),
        ("xiao-esp32s3", "Xtensa"),
        ("esp32s3box", "Xtensa"),
        ("m5stack-cores3", "Xtensa"),
        ("arduino-uno", "AVR"),
    ],
)
def test_a_chip_without_a_device_is_refused_with_the_reason(chip: str, why: str) -> None:
    with pytest.raises(ConfigError, match="there can be no device") as caught:
        load_device(chip)
    assert why in caught.value.message


def test_an_alias_has_the_chips_own_budget() -> None:
    budget = load_device("stm32f407").budget
    assert (budget.flash, budget.ram) == (1 << 20, 128 << 10)
    for name in ("stm32f411", "blackpill"):
        device = load_device(name)
        assert (device.llvm.cpu, device.budget.flash, device.budget.ram) == (
            "cortex-m4",
            512 << 10,
            128 << 10,
        )
    assert load_device("imxrt1062").budget.flash == 0  # outside of the chip: not limited


def test_an_alias_is_said_in_one_line() -> None:
    note = alias_note("stm32f407")
    assert note.startswith("stm32f407 is cortex-m4 here: ")
    assert "168 MHz" in note and "1 MiB of flash" in note and "128 KiB of RAM" in note
    assert "\n" not in note
    assert alias_note("cortex-m4") == alias_note("host") == ""


def test_an_unknown_chip_is_answered_with_its_neighbours() -> None:
    with pytest.raises(ConfigError) as caught:
        load_device("stm32f404")
    assert "'stm32f405'" in caught.value.hint and "'stm32f407'" in caught.value.hint
    with pytest.raises(ConfigError, match="there is no device") as caught:
        load_device("STM32F407VGT6")
    assert "'stm32f407'" in caught.value.hint


def test_a_device_file_extends_an_alias(tmp_path: Path) -> None:
    (tmp_path / "sensor.yaml").write_text("extends: stm32f407\nbudget: {ram: 64 KiB}\n", encoding="utf-8")
    device = load_device(tmp_path / "sensor.yaml")
    assert (device.name, device.description, device.llvm.cpu) == ("sensor", "", "cortex-m4")
    assert (device.budget.flash, device.budget.ram) == (1 << 20, 64 << 10)


def test_an_own_device_of_an_aliass_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stm32f407.yaml").write_text("extends: cortex-m4\nbudget: {ram: 1 KiB}\n", encoding="utf-8")
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", str(tmp_path))
    assert load_device("stm32f407").budget.ram == 1024
    assert alias_note("stm32f407") == ""


def test_a_project_names_aliases(tmp_path: Path) -> None:
    save(build("mlp"), tmp_path, "net.onnx")
    project = tmp_path / "edgepack.yaml"
    project.write_text(
        "name: p\nversion: 1.0.0\nmodels: {net: {path: net.onnx}}\n"
        "devices:\n  stm32f407:\n  nrf52840: {threads: 1, budget: {ram: 96 KiB}}\n",
        encoding="utf-8",
    )
    found = load_project(project).devices
    assert (found["stm32f407"].name, found["stm32f407"].llvm.cpu) == ("stm32f407", "cortex-m4")
    assert (found["nrf52840"].budget.flash, found["nrf52840"].budget.ram) == (1 << 20, 96 << 10)


def test_a_bundle_of_an_alias_finds_its_device_again() -> None:
    known = DEVICES.known("stm32f407")
    assert known is not None and known.runner.name == "qemu-system"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("aliases:\n  x: {device: cortex-m5, about: a chip}\n", ":2: aliases.x.device: there is no device"),
        ("aliases:\n  x: {device: cortex-m4}\n", ":2: aliases.x.about: is missing"),
        (
            "aliases:\n  host:\n    device: cortex-m4\n    about: a\n",
            ":2: aliases.host: is the name of a device",
        ),
        ("aliases: {}\nwithout: {host: none}\n", ":2: without.host: is the name of a device"),
        ("aliases:\n  x: {device: cortex-m4, about: a, cpu: b}\n", ":2: aliases.x.cpu: unknown key"),
        ("aliases:\n  x: {device: cortex-m4, about: a, budget: {ram: 1 KB}}\n", ":2: aliases.x.budget.ram"),
    ],
)
def test_what_is_wrong_in_the_file_has_its_line(text: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "aliases.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_aliases(path)
    assert caught.value.message.startswith(f"{path}{where}")


def test_the_file_is_among_the_data_that_a_wheel_holds() -> None:
    assert ALIASES.is_file() and ALIASES.parent.parent == TOOLCHAINS
