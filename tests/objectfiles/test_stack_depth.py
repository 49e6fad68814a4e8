"""How literals between a function's instructions are told from code (the whole is tested with firmware)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.objectfiles.elf.machine_function import MachineFunction
from edgepack.objectfiles.elf.stack_thumb import _literals


def binary(**marks: int) -> Any:
    symbols = [SimpleNamespace(name=f"${name[0]}.{name[1:]}", value=at) for name, at in marks.items()]
    return SimpleNamespace(symtab_symbols=[*symbols, SimpleNamespace(name="other", value=110)])


@pytest.mark.parametrize(
    ("marks", "literals"),
    [
        ({}, []),
        ({"t1": 100}, []),
        ({"t1": 101, "d1": 140}, [(140, 200)]),
        ({"t1": 100, "d1": 140, "t2": 148, "d2": 196}, [(140, 148), (196, 200)]),
        # Of the functions before and behind it.
        ({"d1": 96, "t1": 200, "d2": 240}, []),
    ],
)
def test_mapping_symbols_say_what_is_data(marks: dict[str, int], literals: list[tuple[int, int]]) -> None:
    assert _literals(binary(**marks), MachineFunction(100, 200)) == literals
