"""``pack --help`` in groups."""

from __future__ import annotations

import re

import click
import pytest

from edgepack.cli.check import command as check
from edgepack.cli.grouped import MODEL_GROUPS, GroupedCommand
from edgepack.cli.main import main
from edgepack.cli.pack import command as pack
from edgepack.cli.quantize import command as quantize


def test_every_option_of_commands_that_take_a_model_is_in_one_group() -> None:
    grouped = [name for names in MODEL_GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    for command in (pack, check, quantize):
        options = {param.name for param in command.params if param.param_type_name == "option"}
        assert options <= set(grouped)
    assert {param.name for param in (*pack.params, *quantize.params)} == {*grouped, "model"}


def test_the_ten_options_that_are_used_most_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "--help"]) == 0
    out = capsys.readouterr().out
    titles = re.findall(r"^(\w[\w ]+):$", out, re.MULTILINE)
    groups = ["Most used", "Model", "Device", "Speed", "Size", "Quantising", "Output", "Limits", "Other"]
    assert titles == groups
    first = out.split("Most used:")[1].split("\nModel:")[0]
    assert len(re.findall(r"^  (?:-\w, )?--", first, re.MULTILINE)) == len(MODEL_GROUPS["Most used"]) == 10
    assert first.lstrip().startswith("-d, --device")
    assert out.split("Other:")[1].split()[:2] == ["-h,", "--help"]


def test_a_command_that_was_first_called_alone_answers_to_the_same_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = GroupedCommand("alone", callback=lambda: None)
    with pytest.raises(click.exceptions.Exit):
        alone.make_context("alone", ["-h"])
    assert "-h, --help" in capsys.readouterr().out


def test_check_has_the_groups_of_which_it_has_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == 0
    titles = re.findall(r"^(\w[\w ]+):$", capsys.readouterr().out, re.MULTILINE)
    assert titles == ["Most used", "Model", "Speed", "Size", "Output", "Limits", "Other"]
