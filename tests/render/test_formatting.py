"""Numbers as people read them."""

from __future__ import annotations

import pytest

from edgepack.render.formatting import human_ms


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (0.000412, "0.412 us"), (0.0461, "46.1 us"), (0.1, "0.1 ms"), (4.0561, "4.06 ms")],
)
def test_short_times_are_microseconds(milliseconds: float, text: str) -> None:
    assert human_ms(milliseconds) == text
