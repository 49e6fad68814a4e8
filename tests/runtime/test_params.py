"""The params file, as Python writes and reads it; tests/runtime/statuses.c is about C."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.errors import CheckFailedError, InternalError
from edgepack.plan.types import Arena, Constant, Plan
from edgepack.render.params_file import params_file_bytes, read_params, write_params
from workbench.mini import blob, make_sources, mini_plan


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "blob").write_bytes(blob(1))
    write_params(mini_plan(), tmp_path / "blob", tmp_path / "mini.params")
    return tmp_path / "mini.params"


def test_header_reads_back(written: Path) -> None:
    plan = mini_plan()
    read = read_params(written)
    assert read.constants == plan.constants
    assert read.params_id == hashlib.sha256(blob(1)).digest()
    assert read.data_offset % 4096 == 0
    assert written.stat().st_size == params_file_bytes(plan) == read.data_offset + read.data_bytes
    assert written.read_bytes()[read.data_offset :] == blob(1)


def test_firmwares_params_have_neither_a_table_nor_a_page_before_their_data(tmp_path: Path) -> None:
    plan = mini_plan()
    (tmp_path / "blob").write_bytes(blob(1))
    write_params(plan, tmp_path / "blob", tmp_path / "params", listed=False)
    read = read_params(tmp_path / "params")
    assert (read.data_offset, read.constants) == (128, ())
    assert (
        (tmp_path / "params").stat().st_size == params_file_bytes(plan, listed=False) == 128 + read.data_bytes
    )


def test_same_plan_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(blob(1))
    write_params(mini_plan(), tmp_path / "blob", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == written.read_bytes()


def test_model_without_params(tmp_path: Path) -> None:
    plan = Plan("none", (), (), (), 0, Arena(), (), ())
    (tmp_path / "blob").write_bytes(b"")
    write_params(plan, tmp_path / "blob", tmp_path / "params")
    assert read_params(tmp_path / "params").constants == ()


def test_large_tables_move_the_data(tmp_path: Path) -> None:
    constant = Constant("ünicode name", "float16", (1, 2, 3), 12, "00" * 32, 0)
    plan = replace(mini_plan(), constants=(constant,) * 100)
    (tmp_path / "blob").write_bytes(blob(1))
    write_params(plan, tmp_path / "blob", tmp_path / "params")
    assert read_params(tmp_path / "params").data_offset == 3 * 4096
    assert read_params(tmp_path / "params").constants == plan.constants


def test_blob_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(blob(1)[:-1])
    with pytest.raises(InternalError, match="127 bytes, but its plan says 128"):
        write_params(mini_plan(), tmp_path / "blob", tmp_path / "params")
    assert not (tmp_path / "params").exists()


@pytest.mark.parametrize("offset", [1, 128])
def test_misplaced_constant_is_refused(tmp_path: Path, offset: int) -> None:
    plan = mini_plan()
    plan = replace(plan, constants=(replace(plan.constants[1], offset=offset),))
    (tmp_path / "blob").write_bytes(blob(1))
    with pytest.raises(InternalError, match="misplaced"):
        write_params(plan, tmp_path / "blob", tmp_path / "params")


def test_every_flipped_header_byte_is_found(written: Path) -> None:
    data = written.read_bytes()
    header_bytes = int.from_bytes(data[12:16], "little")
    for i in range(header_bytes):
        changed = bytearray(data)
        changed[i] ^= 0x40
        written.write_bytes(changed)
        with pytest.raises(CheckFailedError):
            read_params(written)


@pytest.mark.parametrize("length", [0, 7, 8, 127, 128, 200, 4096])
def test_truncated_file_is_refused(written: Path, length: int) -> None:
    written.write_bytes(written.read_bytes()[:length])
    with pytest.raises(CheckFailedError):
        read_params(written)


@pytest.mark.parametrize("places", [False, True])
def test_params_that_say_where_kernels_write_are_hashed_when_they_are_opened(
    places: bool, tmp_path: Path
) -> None:
    """Whoever can change a params file could have kernels write anywhere: its data say where. Other params
    are mapped, whatever their size."""
    bundle = make_sources(tmp_path / "mini", places_in_params=places)
    bundle.build(flags=("-O0",), shared=False)
    changed = bytearray(bundle.params.read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed.params").write_bytes(changed)
    command = [str(bundle.program), "verify", str(bundle.root / "test")]
    answers = []
    for params in (bundle.params, tmp_path / "changed.params"):
        done = subprocess.run([*command, "--params", params], capture_output=True, text=True, check=False)
        answers.append(json.loads(done.stdout).get("code", "opened"))
    assert answers == ["opened", "EP_E_PARAMS_HASH" if places else "opened"]
