"""What a verification says of itself."""

from __future__ import annotations

import pytest

from edgepack.runners.verify import OutputCheck, Verification


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


def test_whole_numbers_that_are_all_zero_are_checked() -> None:
    assert not _checked(0.0, atol=0.0, rtol=0.0).warnings
