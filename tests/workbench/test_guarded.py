"""What a kernel reads or writes outside of a tensor ends the process."""

from __future__ import annotations

import ctypes
import os
import signal

import pytest

from tests.support.processes import in_fork
from workbench.executor import Memory

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that crashes must not be this one")


@pytest.mark.parametrize(("nbytes", "alignment"), [(12, 4), (1, 1), (64, 64), (10_000, 2), (3 * 4096, 64)])
@pytest.mark.parametrize("at_start", [False, True])
def test_what_is_beside_a_tensor_cannot_be_read(nbytes: int, alignment: int, at_start: bool) -> None:
    memory = Memory(nbytes, 7, alignment=alignment, at_start=at_start)
    assert memory.pointer(0) % alignment == 0
    outside, inside = (-1, 0) if at_start else (nbytes, nbytes - 1)
    assert ctypes.c_uint8.from_address(memory.pointer(inside)).value == 7
    read = in_fork(lambda _: print(ctypes.c_uint8.from_address(memory.pointer(outside)).value))
    assert read.startswith(str(-signal.SIGSEGV))
    memory.check("a tensor")


def test_what_is_written_behind_one_that_ends_before_its_page_is_seen() -> None:
    memory = Memory(10, 7, alignment=64)
    ctypes.memset(memory.pointer(10), 0, 1)
    with pytest.raises(AssertionError, match="wrote outside of a tensor"):
        memory.check("a tensor")
