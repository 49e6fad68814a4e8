"""The pages of devices tell the truth: examples load, tables are those of the models and the files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import devices
from markdown import read_section

from edgepack.config.device import DEVICES, device_names, load_device
from edgepack.config.models import format_size
from edgepack.config.schema import SCHEMAS, Field, fields
from edgepack.errors import ConfigError
from edgepack.toolchains import resolve

DOCS = Path(__file__).parents[2] / "docs"
#: The pages: of device files, with the examples; of devices; of what was checked.
TEXT = "\n".join(
    (DOCS / page).read_text(encoding="utf-8")
    for page in ("reference/device-files.md", "devices.md", "internals/device-checks.md", "use/linux.md")
)
SIZES = {"cpu.l1d", "cpu.l2", "cpu.l3", "page_size", "gpu.local_memory"}


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A folder with the files that the page shows."""
    found = re.findall(r"<!-- file: (\S+) -->\n\s*```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(found) >= 3
    for name, body in found:
        lines = [line.removeprefix("   ") for line in body.splitlines()]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def _rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading."""
    section = TEXT.split(f"\n{heading}\n", 1)[1]
    rows: list[list[str]] = []
    for line in section.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            break
    return rows[2:]


def test_the_example_device_loads(examples: Path) -> None:
    device = load_device(examples / "my-board.yaml")
    assert (device.name, device.llvm.cpu, device.threads) == ("my-board", "cortex-a53", 2)
    assert device.runner.program == "qemu-aarch64"


def test_the_example_toolchain_is_found_from_any_folder(
    examples: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    toolchain = resolve(load_device(examples / "vendor-board.yaml"))
    assert (toolchain.name, toolchain.family) == ("vendor-gcc", "gcc")
    assert toolchain.sysroot() == "/opt/vendor/sysroot"
    with pytest.raises(Exception, match="aarch64-vendor-linux-gnu-gcc") as caught:
        toolchain.version()
    assert "unpack the vendor's SDK" in str(caught.value)


def test_a_relative_sysroot_is_meant_from_its_file(examples: Path) -> None:
    text = (
        (examples / "vendor-gcc.yaml").read_text(encoding="utf-8").replace("/opt/vendor/sysroot", "sdk/root")
    )
    (examples / "vendor-gcc.yaml").write_text(text, encoding="utf-8")
    toolchain = resolve(load_device(examples / "vendor-board.yaml"))
    assert toolchain.sysroot() == str(examples / "sdk" / "root")


def test_the_example_mistake_is_answered_as_shown(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(examples)
    text = Path("my-board.yaml").read_text(encoding="utf-8").replace("threads:", "thread:")
    Path("my-board.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_device("my-board.yaml")
    assert f"edgepack: error: {caught.value.message}\n" in TEXT
    assert caught.value.hint.startswith(TEXT.split("hint: ", 1)[1].split(" name,", 1)[0])


@pytest.mark.parametrize("sort", SCHEMAS)
def test_the_table_of_fields_is_complete_and_current(sort: str) -> None:
    expected = [
        [f"`{field.name}`", _default(field), f"{field.description}{_values(field)}"]
        for field in fields(SCHEMAS[sort])
    ]
    assert _rows(f"### Of a {sort}") == expected


def test_the_tables_of_devices_and_chips_are_complete_and_current() -> None:
    """`python benchmarks/devices.py --tables` writes them anew."""
    checked = [list(row) for row in _rows("## How each device was checked")]
    expected = devices.devices_table(checked), devices.chips_table()
    assert read_section(devices.DEVICES, devices.DOCUMENT) == expected[0]
    assert read_section(devices.CHIPS, devices.DOCUMENT) == expected[1]
    rows = {row[0].strip("`"): row[1:] for row in _rows("## The devices")}
    assert sorted(rows) == sorted(path.stem for path in DEVICES.directory.glob("*.yaml"))
    assert rows["raspberrypi4"][1:] == ["cortex-a72, 128 bits", "run by qemu-aarch64"]
    assert rows["ios-arm64"][2] == "built"


def test_every_device_has_a_result_with_each_of_its_compilers() -> None:
    """Written by benchmarks/devices.py, which packs, audits and runs them."""
    found = {(row[0].strip("`"), row[1].strip("*")) for row in _rows("## How each device was checked")}
    assert found == {(name, family) for name in device_names() for family in load_device(name).compilers}


def _default(field: Field) -> str:
    if field.name == "name":
        return "the file's name"
    if field.required:
        return "required"
    if isinstance(field.default, bool):
        return str(field.default).lower()
    if isinstance(field.default, tuple):
        return f"[{', '.join(field.default)}]"
    if field.name in SIZES:
        return format_size(field.default)
    return '""' if field.default == "" else str(field.default)


def _values(field: Field) -> str:
    return f" One of {', '.join(f'`{value}`' for value in field.values)}." if field.values else ""
