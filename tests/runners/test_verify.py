"""What a verification says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.bundle.manifest import Manifest
from edgepack.bundle.recorded_records import CornerRecord, Recorded, RecordedTensor
from edgepack.options import RunOptions
from edgepack.runners import Selected
from edgepack.runners import verify as verify_module
from edgepack.runners.verify import OutputCheck, Verification

#: Of an output "y" whose reference is off itself.
RECORDED = Recorded(
    reference="numpy",
    noise_of="a run in float64",
    outputs=(
        RecordedTensor(
            name="y", dtype="float32", shape=(10,), file="test/y.bin", max_abs=1.5, noise=0.25, noisy=True
        ),
    ),
)


def _checked(largest: float, *, atol: float, rtol: float = 1e-3) -> Verification:
    output = OutputCheck("logits", 0.0, largest, atol, rtol, 10, 0)
    return Verification("ok", "native", "this machine", 1, "numpy", (output,))


@pytest.mark.parametrize("largest", [1e-22, 0.0, 0.99e-6])
def test_a_check_that_zeros_would_pass_is_said(largest: float) -> None:
    result = _checked(largest, atol=1e-6)
    assert result.ok
    (text,) = result.warnings
    assert "output logits shows nothing" in text
    assert result.to_json()["warnings"] == [text]


@pytest.mark.parametrize(("largest", "atol"), [(1.0, 1e-6), (1e-22, 1e-25), (1.0, 0.0), (float("nan"), 1e-6)])
def test_others_are_not(largest: float, atol: float) -> None:
    assert _checked(largest, atol=atol).to_json()["warnings"] == []


def test_an_output_without_elements_has_nothing_to_show() -> None:
    assert not OutputCheck("none", 0.0, 0.0, 1e-7, 1e-3, 0, 0).vacuous
    assert OutputCheck("one", 0.0, 0.0, 1e-7, 1e-3, 1, 0).vacuous


def test_whole_numbers_that_are_all_zero_are_checked() -> None:
    assert not _checked(0.0, atol=0.0, rtol=0.0).warnings


@pytest.mark.parametrize(
    ("runner", "asked", "wrong", "runs", "ok"),
    [
        ("native", None, [], [(), ("--threads", "1")], True),
        ("native", None, ["1"], [(), ("--threads", "1")], False),
        ("native", 2, ["1"], [("--threads", "2")], True),
        ("qemu", None, ["1"], [()], True),
    ],
)
def test_one_thread_alone_is_tried_too(
    runner: str,
    asked: int | None,
    wrong: list[str],
    runs: list[tuple[str, ...]],
    ok: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, ...]] = []

    def run(root: Path, manifest: Manifest, arguments: Sequence[str | Path], *_: object) -> Any:
        threads = tuple(map(str, arguments[2:]))
        seen.append(threads)
        mismatches = 3 if threads[1:] == tuple(wrong) and wrong else 0
        output = {"name": "y", "max_abs_err": 0.5 * mismatches, "max_abs_ref": 1.0, "atol": 1e-6}
        output |= {"rtol": 1e-3, "elements": 10, "mismatches": mismatches}
        status = "mismatch" if mismatches else "ok"
        return Selected(runner, None, "here", None), {  # type: ignore[arg-type]
            "status": status,
            "threads": int(threads[1]) if threads else 2,
            "outputs": [output],
        }

    monkeypatch.setattr(verify_module, "run_program", run)
    manifest = SimpleNamespace(variants=[], outputs=[None], recorded=RECORDED)
    result = verify_module.verify(Path(), manifest, RunOptions(threads=asked))  # type: ignore[arg-type]
    assert (seen, result.ok) == (runs, ok)
    assert result.threads == 2
    assert result.alone == (len(runs) == 2)
    assert result.outputs[0].ok == ok
    assert result.outputs[0].noise == 0.25
    (text,) = result.notes
    assert "off by up to 0.25 of 1.5 in output y (a run in float64)" in text


@pytest.mark.parametrize("wrong", ["", "special"])
def test_corner_data_are_verified_too(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """A bundle is right where it is on all that it has recorded; one of before has no such data."""
    ran: list[str] = []

    def run(root: Path, manifest: Manifest, arguments: Sequence[str | Path], *_: object) -> Any:
        ran.append(Path(arguments[1]).as_posix())
        mismatches = int(bool(wrong) and ran[-1].endswith(wrong))
        output = {"name": "y", "max_abs_err": 0.0, "max_abs_ref": 1.0, "atol": 1e-6, "rtol": 1e-3}
        output |= {"elements": 10, "mismatches": mismatches}
        result = {"status": "mismatch" if mismatches else "ok", "threads": 1, "outputs": [output]}
        return Selected("native", None, "here", None), result  # type: ignore[arg-type]

    monkeypatch.setattr(verify_module, "run_program", run)
    corners = tuple(CornerRecord(name=name) for name in ("special", "ends"))
    recorded = RECORDED.model_copy(update={"corners": corners, "corners_left_out": {"large": "a reason"}})
    manifest = SimpleNamespace(variants=[], outputs=[None], recorded=recorded)
    result = verify_module.verify(Path(), manifest, RunOptions())  # type: ignore[arg-type]
    assert ran == ["test", "test/special", "test/ends"]
    assert [corner.ok for corner in result.corners] == [not wrong, True]
    assert (result.ok, result.status) == (not wrong, "mismatch" if wrong else "ok")
    assert result.to_json()["corners"][0]["outputs"][0]["mismatches"] == bool(wrong)
    assert dict(result.corners_left_out) == {"large": "a reason"}


@pytest.mark.parametrize("name", ["..", "a/b", "-x", ""])
def test_a_run_of_corner_data_is_named_by_letters(name: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        CornerRecord(name=name)
