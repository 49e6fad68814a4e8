"""What Python callers get from edgepack is an EdgepackError, whatever went wrong inside."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path
from typing import Any

import onnx
import pytest

import edgepack
from edgepack.api import Bundle
from edgepack.client import opened_model
from edgepack.errors import CheckFailedError, ConfigError, InternalError, ModelError
from edgepack.runners import verify
from tests.support import fake


def _fail(*_args: object, **_kwargs: object) -> None:
    raise ValueError("zip() argument 2 is longer than argument 1")


@pytest.fixture(autouse=True)
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.system.log.cache_dir", lambda: tmp_path / "cache")


def _check(error: InternalError, tmp_path: Path) -> None:
    assert error.message == "An internal error: ValueError: zip() argument 2 is longer than argument 1."
    assert isinstance(error.__cause__, ValueError)
    (log,) = (tmp_path / "cache" / "logs").iterdir()
    assert str(log) in error.hint
    assert "in _fail" in log.read_text()


@pytest.mark.parametrize(
    "place",
    [
        "edgepack.commands.pack.load_device",
        "edgepack.commands.pack.check_destination",
        "edgepack.commands.pack.Worker",
        "edgepack.commands.pack.Compiler.compile_model",
        "edgepack.bundle.assemble.render_model",
        "edgepack.bundle.assemble.runtime_text_bytes",
        "edgepack.bundle.writer.Workplace.publish",
    ],
)
def test_a_defect_anywhere_in_pack_is_an_internal_error_with_its_log(
    place: str, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgepack.pipeline.worker_process.worker_command", fake.command("ok"))
    monkeypatch.setattr(place, _fail)
    with pytest.raises(InternalError) as caught:
        edgepack.pack(small_model, "host", tmp_path / "out", cache=False)
    _check(caught.value, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_defect_in_firmware_is_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.bundle.firmware.boards.BOARDS", None)
    with pytest.raises(InternalError, match="TypeError"):
        edgepack.pack(__file__, "cortex-m4", tmp_path / "out")


@pytest.mark.parametrize(
    ("place", "job"),
    [
        ("edgepack.client.bundle.check_sums", lambda bundle: bundle.check_sums()),
        ("edgepack.runners.verify.verify", lambda bundle: bundle.verify()),
        ("edgepack.runners.bench.bench", lambda bundle: bundle.bench()),
        ("edgepack.client.bundle.load_manifest", lambda bundle: Bundle(bundle.path)),
        ("edgepack.client.opened_model._open_library", edgepack.load),
        ("edgepack.client.opened_model._open_library", lambda bundle: edgepack.Session(bundle.path)),
        ("edgepack.toolchains.resolve", lambda _: edgepack.cross_compiler("host")),
    ],
)
def test_a_defect_behind_other_functions_too(
    place: str, job: Any, small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, _fail)
    with pytest.raises(InternalError) as caught:
        job(small_bundle)
    _check(caught.value, tmp_path)


def test_a_disk_that_is_full_is_no_defect(small_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/out/net.params")

    monkeypatch.setattr(verify, "verify", full)
    with pytest.raises(ConfigError, match=r"^/out/net.params: No space left on device\.") as caught:
        small_bundle.verify()
    assert "Make room" in caught.value.hint


def test_errors_on_purpose_and_mistaken_calls_stay_what_they_are(small_bundle: Bundle) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        edgepack.pack("nowhere.onnx")
    with pytest.raises(TypeError, match="runs_ms"):
        small_bundle.verify(runs_ms=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="bench has no option 'runs_ms'"):
        small_bundle.bench(runs_ms=3)  # type: ignore[call-arg]
    with pytest.raises(CheckFailedError, match="does not export"):
        opened_model._descriptor(ctypes.CDLL(None), "no_such_symbol")


def test_what_the_callers_own_code_raises_reaches_the_caller(small_model: Path, tmp_path: Path) -> None:
    class CancelledError(Exception):
        pass

    def progress(stage: str, detail: str) -> None:
        raise CancelledError(stage)

    with pytest.raises(CancelledError, match="find the toolchain"):
        edgepack.pack(small_model, "host", tmp_path / "out", progress=progress)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": {}}, "pack has no option 'shape'."),
        ({"shapes": [1, 3]}, "shapes of pack is a mapping of inputs' names to shapes of whole numbers, not "),
        ({"shapes": {"x": (1, 2.5)}}, "not the dict {'x': (1, 2.5)}."),
        ({"shapes": {"x": "1,3"}}, "not the dict {'x': '1,3'}."),
        ({"dims": {"batch": None}}, "dims of pack is a mapping of dimensions' names to whole numbers"),
        ({"inputs": {"x": [0.5]}}, "inputs of pack is a mapping of inputs' names to paths of .npy files"),
        (
            {"device": 4},
            "the path of its YAML file, or a Device, not the int 4.",
        ),
        ({"seed": "one"}, "seed of pack is a whole number, 0 or more, not the str 'one'."),
        ({"force": "no"}, "force of pack is True or False, not the str 'no'."),
        ({"timeout": -1}, "timeout of pack is a number of seconds, 0 for no limit, not the int -1."),
        ({"name": b"net"}, "name of pack is a text, not the bytes b'net'."),
    ],
)
def test_an_option_of_a_wrong_type_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edgepack.pack("net.onnx", **options)
    assert message in caught.value.message


def test_a_model_in_memory_of_an_unknown_kind_is_told_to_be_written_to_a_file() -> None:
    with pytest.raises(ConfigError, match="not a value of type GraphProto") as caught:
        edgepack.pack(onnx.GraphProto(name="somebody" * 20))
    assert "onnx.ModelProto" in caught.value.message
    assert "torch.onnx.export" in caught.value.hint
