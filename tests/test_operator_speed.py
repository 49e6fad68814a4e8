"""Every operator has a row in the benchmark of single operators, and none falls far behind ONNX Runtime.

``pytest -m slow tests/test_operator_speed.py -n 0`` on a quiet machine measures them all, in an hour;
``-k softmax`` some. ``python benchmarks/operators.py`` prints a table, for three widths of vectors.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgepack.config.device import load_device
from workbench.models.realistic import NOT_MEASURED, ROWS

OPERATORS = Path(__file__).resolve().parents[1] / "docs" / "operators.md"


def test_every_operator_has_a_row_or_a_reason_to_have_none() -> None:
    _, _, behind = OPERATORS.read_text(encoding="utf-8").partition("\n## What passes\n")
    passing, _, _ = behind.partition("\n## ")
    listed = set(re.findall(r"^\| `([\w.]+)` \|", passing, re.MULTILINE))
    measured = {operator for row in ROWS.values() for operator in row.operators()}
    assert len(listed) > 100
    assert not listed - measured - set(NOT_MEASURED)
    assert not measured & set(NOT_MEASURED)


def test_a_row_is_excused_on_a_device_that_is_measured() -> None:
    from benchmarks.operators import DEVICES, Measured

    excused = [row for row in ROWS.values() if row.why_slow]
    assert excused and all(set(row.why_slow) < set(DEVICES) for row in excused)
    times = {(device, 1): 1.0 for device in ("onnxruntime", *DEVICES)}
    slow = {**times, **{(device, 1): 100.0 for device in excused[0].why_slow}}
    assert Measured(excused[0], slow).least_ratio == Measured(excused[0], times).least_ratio
    other = next(device for device in DEVICES if device not in excused[0].why_slow)
    assert Measured(excused[0], {**times, (other, 1): 100.0}).least_ratio < 0.5


def test_a_row_says_on_which_devices_it_is_behind_for_narrower_vectors_only() -> None:
    from benchmarks.operators import DEVICES, Measured, vector_part

    row = next(row for row in ROWS.values() if not row.why_slow)
    narrow = DEVICES[0]
    part = vector_part(narrow)
    assert part == 128 / load_device("host").cpu_target().vector_bits

    def said(ratio: float) -> list[str]:
        return Measured(row, {("onnxruntime", 1): ratio, (narrow, 1): 1.0}).narrower(DEVICES)

    assert said(0.9 * part) == said(1.0) == []
    assert said(part) == ([f"x86_64: {part:.2g} of the vectors' width"] if part < 1 else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ROWS))
def test_no_operator_is_less_than_half_as_fast_as_onnx_runtime(name: str, tmp_path: Path) -> None:
    from benchmarks.operators import LEAST_RATIO, measure, pack_rows

    ((row, path, bundles),) = pack_rows([ROWS[name]], ["host"], tmp_path)
    for attempt in range(3):  # another process may have had the machine
        measured = measure(row, path, bundles, [1, 2], rounds=10 * (attempt + 1))
        assert not measured.notes
        if measured.least_ratio >= LEAST_RATIO:
            return
    assert measured.least_ratio >= LEAST_RATIO, f"{measured.ms} {measured.rules}"
