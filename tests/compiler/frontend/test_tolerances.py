"""What an output may be off by, of facts alone: no model and no format is asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgepack.compiler.frontend.recorded import judged, write_recorded
from edgepack.compiler.frontend.tolerances import (
    FLIP_FACTOR,
    TOLERANCES,
    OutputFacts,
    limits_of,
    tolerance_of,
)


@pytest.mark.parametrize(
    ("facts", "rounded", "allowed"),
    [
        (OutputFacts(True, frozenset({"float32"})), None, TOLERANCES["float32"]),
        (OutputFacts(True, frozenset({"float32", "float16"})), None, TOLERANCES["float16"]),
        (OutputFacts(True, frozenset({"float32"}), rounds_to_steps=True), None, TOLERANCES["quantised"]),
        (OutputFacts(True, frozenset({"float32"})), "tf32", TOLERANCES["tf32"]),
        (OutputFacts(False, frozenset({"float32"})), "float16", 0),
        (OutputFacts(False, frozenset(), rounds_to_steps=True), None, 1),
        (OutputFacts(False, frozenset(), stored_as_bytes=True), None, 1),
    ],
)
def test_the_coarsest_arithmetic_decides(facts: OutputFacts, rounded: str | None, allowed: object) -> None:
    assert tolerance_of(facts, rounded) == allowed


def test_limits_are_relative_to_the_largest_finite_value() -> None:
    array = np.array([1.0, -50.0, np.inf], np.float32)
    assert limits_of(array, TOLERANCES["float32"], None) == {"atol": 5e-3, "rtol": 1e-3, "max_abs": 50.0}
    assert limits_of(np.array([3, 4]), 1, None) == {"atol": 1.0, "rtol": 0.0, "max_abs": 4.0}


def test_recorded_data_name_their_files_and_what_computed_them(tmp_path: Path) -> None:
    x, y = np.arange(6, dtype=">f4").reshape(2, 3), np.array([1], np.int64)
    write_recorded(tmp_path / "recorded", {"x": x}, {"y": y}, {"y": {"atol": 1.0}}, "somebody")
    said = json.loads((tmp_path / "recorded" / "recorded.json").read_text())
    assert said["reference"] == "somebody"
    assert said["inputs"] == [{"name": "x", "dtype": ">f4", "shape": [2, 3], "file": "input_0.bin"}]
    assert said["outputs"] == [
        {"name": "y", "dtype": "int64", "shape": [1], "file": "output_0.bin", "atol": 1.0}
    ]
    assert (tmp_path / "recorded" / "input_0.bin").read_bytes() == x.astype("<f4").tobytes()


def test_an_output_that_proves_little_is_named() -> None:
    assert judged("y", np.array([1.0, np.nan])) == [
        "Output 'y' of the recorded run is not finite everywhere: it proves little."
    ]
    assert "are equal" in judged("y", np.zeros(4))[0]
    assert judged("y", np.array([1, 2])) == []


def test_steps_that_flip_decide_where_they_are_measured() -> None:
    reference = np.array([1.0, -2.0, np.nan], np.float32)
    runs = [reference + np.float32(0.02), reference - np.float32([0, 0.03, 5])]
    found = limits_of(reference, TOLERANCES["quantised"], None, flipped=runs)
    assert found["atol"] == pytest.approx(FLIP_FACTOR * 0.03)
    nothing = limits_of(reference, TOLERANCES["quantised"], None, flipped=[reference])
    assert nothing["atol"] == pytest.approx(TOLERANCES["float32"].relative * 2)
    assert limits_of(reference, TOLERANCES["quantised"], None)["atol"] == pytest.approx(2 * 2 / 127, rel=0.05)


@pytest.mark.parametrize(("off", "steps"), [(0, 1), (1, 1), (2, 4), (7, 14)])
def test_integers_may_be_as_many_steps_off_as_are_seen(off: int, steps: int) -> None:
    reference = np.uint8([10, 20])
    assert limits_of(reference, 1, None, flipped=[reference + np.uint8(off)])["atol"] == steps
