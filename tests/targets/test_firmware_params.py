"""Firmware whose params lie beside its image in flash: run on qemu's board, replaced, refused when broken."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgepack
from edgepack.commands.export import source_bundle
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.formats.microcontroller.arduino import ARDUINO
from edgepack.render.params_file import HEADER, read_params
from edgepack.runners import qemu_system
from edgepack.runners.recorded import device_of
from edgepack.toolchains import resolve
from tests.compiler.frontend.onnx.quantise.support import kept, made
from tests.support.firmware import COMPILERS, say
from workbench.models import save
from workbench.models.builder import Graph

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS = 12, 7


def network(seed: int) -> onnx.ModelProto:
    """Two layers whose weights are drawn, of floats."""
    g = Graph("net")
    x = g.op("Relu", g.gemm(g.input("x", [1, ROWS]), ROWS, ROWS))
    g.op("Relu", g.gemm(x, ROWS, COLUMNS), name="y")
    g.output("y")
    model, rng = g.model(), np.random.default_rng(seed)
    for tensor in model.graph.initializer:
        drawn = rng.standard_normal(tuple(tensor.dims)).astype("f4")
        tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))
    return model


def computed(model: Path) -> np.ndarray:
    """What it gives for the input of ``two_places.c``."""
    x = (np.arange(ROWS, dtype="f4") / 4 - 1).reshape(1, ROWS)
    return np.asarray(create_session(onnx.load(str(model))).run(None, {"x": x})[0]).reshape(-1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys, quantised models ``old.onnx`` and ``new.onnx``, which has the scales of the old
    one, its bundle ``net``, and ``new.params``, signed with version 3."""
    folder = tmp_path_factory.mktemp("params, in flash")  # qemu ends a file's name at a comma
    for name in ("own", "other"):
        keys = ["-G", "-W", "-p", f"{name}.pub", "-s", f"{name}.sec"]
        subprocess.run(["minisign", *keys], cwd=folder, check=True, capture_output=True)
    save(made(network(0), folder)[0], folder, "old.onnx")
    save(kept(network(1), folder / "old.onnx", folder)[0], folder, "new.onnx")
    edgepack.pack(
        folder / "old.onnx",
        "cortex-m4",
        folder / "net",
        name="net",
        params="caller",
        params_key=folder / "own.pub",
    )
    edgepack.update(
        folder / "net",
        folder / "new.onnx",
        folder / "new.params",
        key=folder / "own.sec",
        params_version=3,
    )
    return folder


@pytest.fixture(scope="module")
def bundle(place: Path) -> edgepack.Bundle:
    return edgepack.Bundle(place / "net")


def test_params_beside_the_image_are_used_where_they_lie(bundle: edgepack.Bundle) -> None:
    assert bundle.verify().ok and bundle.bench(runs=1).instructions is not None
    data = (bundle.path / "params" / "net.params").read_bytes()
    begin = read_params(bundle.path / "params" / "net.params").data_offset
    for file in ("bin/net.elf", "lib/libnet.a"):
        assert data[begin : begin + 64] not in (bundle.path / file).read_bytes(), file
    code, said = say(bundle, "verify")  # without the file: flash that nobody has written
    assert (code, said["code"]) == (2, "EP_E_PARAMS_MAGIC")


def test_the_budget_counts_one_place(bundle: edgepack.Bundle) -> None:
    found = bundle.manifest.footprint
    assert found is not None
    (params,) = [part for part in found.parts if part.name == "params"]
    assert params.flash == (bundle.path / "params" / "net.params").stat().st_size
    assert "beside the image" in params.note


def test_packages_with_a_library_alone_refuse_it_and_one_of_c_holds_the_file(
    place: Path, bundle: edgepack.Bundle, tmp_path: Path
) -> None:
    source = source_bundle(bundle.path)
    assert "no params" in ARDUINO.refusal(source) and "--params embed" in ARDUINO.refusal(source)
    (archive,) = edgepack.export(bundle.path, "c-single-file", tmp_path / "out")
    shutil.unpack_archive(archive, tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.name.endswith("-c"))
    assert (folder / "net.params").read_bytes() == (bundle.path / "params" / "net.params").read_bytes()
    example, compiler = (folder / "README.md").read_text(), resolve(load_device("cortex-m4"))
    (folder / "app.c").write_text(example.split("```c\n")[1].split("```")[0])
    flags = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    for name in ("app", "net"):
        compiler.compile_c(folder / f"{name}.c", tmp_path / f"{name}.o", include=[folder], flags=flags)


# Two places, as docs/ship/updates.md has them


def documented() -> str:
    """The C of the page, for this model."""
    page = (ROOT / "docs" / "ship" / "updates.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```c\n(/\* Two places for params.*?)```", page, re.DOTALL)
    return block


def board(bundle: edgepack.Bundle, folder: Path, received: Mapping[str, bytes], toolchain: str) -> list[str]:
    """Lines that a program with two places prints, to which these files come one after the other."""
    compiler = resolve(load_device("cortex-m4"), toolchain)
    (folder / "update.inc").write_text(documented())
    sources = [bundle.path / "firmware" / f"{n}.c" for n in ("vectors", "start", "semihosting", "library")]
    sources += [Path(__file__).parents[1] / "support" / "two_places.c"]
    include = [bundle.path, bundle.path / "include", bundle.path / "src", bundle.path / "firmware", folder]
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    objects = []
    for source in sources:
        objects.append(folder / f"{source.name}.o")
        compiler.compile_c(source, objects[-1], include=include, flags=warnings)
    script = bundle.path / "firmware" / "mps2-an386.ld"
    flags = ("-T", str(script), "-Wl,-e,Reset_Handler", "-Wl,--gc-sections")
    objects += [bundle.path / "lib" / "libnet.a"]
    compiler.link_program(objects, folder / "app.elf", flags=flags)
    call = qemu_system.call(
        device_of(bundle.manifest.device),
        [
            folder / "app.elf",
            qemu_system.PARAMS_AT,
            hex(bundle.manifest.params.address),
            bundle.path / bundle.manifest.params.file,
        ],
        cwd=folder,
    )
    argv = list(map(str, call.argv))
    # What came over the network: its length, then its bytes, at the start of the memory for test data.
    at = 0x21000000
    for index, content in enumerate([*received.values(), b""]):
        (folder / f"received{index}").write_bytes(struct.pack("<Q", len(content)) + bytes(56) + content)
        argv += ["-device", f"loader,file=received{index},addr={at:#x},force-raw=on"]
        at += 1 << 16
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()


@pytest.mark.parametrize("toolchain", COMPILERS)
def test_a_broken_update_leaves_the_device_with_its_params(
    toolchain: str, place: Path, bundle: edgepack.Bundle, tmp_path: Path
) -> None:
    """It goes on with the old ones, through power cuts too, until whole ones of the right key are there."""
    new, own = (place / "new.params").read_bytes(), (place / "net/params/net.params").read_bytes()
    flip = len(new) - 5
    fields = list(HEADER.unpack(own[: HEADER.size]))
    fields[3], fields[5] = fields[3] + 64, fields[5] + 64  # of a larger network
    received = {
        "cut": new[:-64],
        "half written": new[:192] + b"\xff" * (len(new) - 192),
        "another byte": new[:flip] + bytes([new[flip] ^ 1]) + new[flip + 1 :],
        "of another key": new[:130] + bytes([new[130] ^ 1]) + new[131:],
        "not signed, another id": own[:48] + bytes(32) + own[80:],
        "of another size": HEADER.pack(*fields) + own[HEADER.size :] + bytes(64),
        "erased": b"\xff" * 256,
        "too large": bytes(1 << 15),
        "good": new,
        "cut again": new[:-1],
    }
    lines = board(bundle, tmp_path, received, toolchain)
    old, fresh = (computed(place / f"{name}.onnx") for name in ("old", "new"))
    assert np.abs(old - fresh).max() > 1
    said = {name: line.split() for name, line in zip(["start", *received], lines, strict=True)}
    assert {name: words[0] for name, words in said.items()} == {
        "start": "EP_OK",
        "cut": "EP_E_PARAMS_HASH",
        "half written": "EP_E_PARAMS_HASH",
        "another byte": "EP_E_PARAMS_HASH",
        "of another key": "EP_E_PARAMS_SIGNATURE",
        "not signed, another id": "EP_E_PARAMS_SIGNATURE",
        "of another size": "EP_E_PARAMS_MODEL",
        "erased": "EP_E_PARAMS_MAGIC",
        "too large": "EP_E_SIZE",
        "good": "EP_OK",
        "cut again": "EP_E_PARAMS_HASH",
    }
    for name, words in said.items():
        results = np.array([int(word, 16) for word in words[1:]], np.uint32).view(np.float32)
        expected = fresh if name in ("good", "cut again") else old
        np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-4, err_msg=name)


# What is refused


def test_params_of_files_are_refused_with_a_way_out(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no files") as caught:
        edgepack.pack(place / "old.onnx", "cortex-m4", tmp_path / "out", params="file")
    assert 'params="caller"' in caught.value.hint


def test_the_key_of_another_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trusts another key"):
        edgepack.update(place / "net", place / "new.onnx", tmp_path / "x", key=place / "other.sec")


@pytest.mark.slow
def test_the_library_in_use_says_whether_it_takes_new_params(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only a program of the new pack: here it gets a signature over another layout."""
    monkeypatch.setattr(
        "edgepack.commands.update.signed_message", lambda layout, *rest: b"edgepack params\0" + bytes(64)
    )
    with pytest.raises(CheckFailedError, match="EP_E_PARAMS_SIGNATURE"):
        edgepack.update(place / "net", place / "new.onnx", tmp_path / "x", key=place / "own.sec")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cortex-m0plus", "cortex-m55", "esp32-c3"])
def test_each_board_has_the_params_at_an_address_of_their_own(
    device: str, place: Path, tmp_path: Path
) -> None:
    made = edgepack.pack(place / "old.onnx", device, tmp_path / "out", params="caller")
    assert made.verify().ok
    done = edgepack.update(made.path, place / "new.onnx", tmp_path / "new.params")
    assert done.verification.ok and read_params(done.path).params_id.hex() == done.params_id


@pytest.mark.slow
def test_a_device_with_several_memories_has_them_in_one(place: Path, tmp_path: Path) -> None:
    """In the nearest that keeps them and has room; the arena lies where it did."""
    (tmp_path / "board.yaml").write_text(
        "extends: cortex-m7\nbudget: {flash: 128 KiB, ram: 256 KiB}\nmemories:\n"
        "  - {name: dtcm, size: 96 KiB, arena: .dtcm_bss, params: .dtcm_data, loaded_from: flash}\n"
        "  - {name: ram, arena: .bss.edgepack.session}\n"
        "  - {name: qspi, size: 8 MiB, params: .qspi_rodata}\n"
        "  - {name: flash, params: .rodata.edgepack}\n"
    )
    made = edgepack.pack(
        place / "old.onnx",
        tmp_path / "board.yaml",
        tmp_path / "out",
        params="caller",
        params_key=place / "own.pub",
    )
    found = made.manifest.footprint
    assert found is not None and made.verify().ok
    used = {one.name: one.used for one in found.memories}
    assert used["qspi"] == (made.path / "params" / "old.params").stat().st_size
    assert made.manifest.params.sections == () and used["dtcm"] > 0
