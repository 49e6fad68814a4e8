"""What ``edgepack tune`` shows while it searches."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from edgepack.cli.output import Settings
from edgepack.cli.tune_rounds import SHOWN, round_line, rounds_table, shown_rounds
from edgepack.commands.tune_results import TuneLayer, TuneRound

LAYERS = tuple(TuneLayer(f"key{n}", f"conv2d+relu\x1b[2J {n}", 0.05, 1.0 + n / 10, 2 * n) for n in range(20))
ROUND = TuneRound(3, 90, 4, 2, 15, 1, 1.0371, 0.004, 83.0, LAYERS)
COUNTED = TuneRound(1, 5, 0, 0, 1, 0, 1.0, 0.0, None, ())


def drawn(stage: str, one: TuneRound | None) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(rounds_table(stage, one))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_round_is_a_line() -> None:
    assert round_line(ROUND) == (
        "round 3: 4 of 90 candidates are faster; 2 of the last round's are so again; 1 failed so far; "
        "a run 1.037 times as fast so far; error 0.4 %; 80 s left"
    )
    assert round_line(COUNTED) == "round 1: 0 of 5 candidates are faster; a run 1.000 times as fast so far"


def test_the_table_has_the_layers_that_take_longest() -> None:
    text = drawn("round 4: 60 candidates", ROUND)
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0].split() == ["share", "faster", "tried", "operators"]
    assert lines[1].split()[:3] == ["5.0", "%", "0"] and lines[2].split()[2:4] == ["1.10x", "2"]
    assert f"and {20 - SHOWN} more layers" in lines and lines[-1] == "round 4: 60 candidates"
    assert "\x1b" not in text and "\\x1b[2J" in text, "a name of others does nothing to the terminal"
    assert drawn("tune: the program to begin with", None).strip() == "tune: the program to begin with"


def test_json_has_an_object_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_rounds(Settings(), as_json=True) as (show, told):
        show("round 1", "90 candidates")
        told(ROUND)
        told(COUNTED)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["event"], first["speedup"], first["layers"][1]["gain"]) == ("round", 1.0371, 1.1)
    assert second["seconds_left"] is None


def test_elsewhere_there_are_lines_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_rounds(Settings(), as_json=False) as (show, told):
        show("round 3", "90 candidates")
        told(ROUND)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("] round 3: 90 candidates") and second.strip() == round_line(ROUND)
    for as_json in (False, True):
        with shown_rounds(Settings(quiet=True), as_json=as_json) as (show, told):
            show("round 3", "90 candidates")
            told(ROUND)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown_rounds(Settings(), as_json=False) as (show, told):
        told(ROUND)
        show("round 4", "60 candidates")
    text = terminal.getvalue()
    assert "operators" in text and "round 4: 60 candidates" in text and "\x1b[2J" not in text
