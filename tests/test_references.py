"""Pages that are written from the code: they are current, and nothing is missing in them."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import fields
from pathlib import Path

import click

from edgepack import options
from edgepack.release.project_file import load_project
from tools import write_options


def test_the_reference_of_the_options_is_current() -> None:
    """`python tools/write_options.py` writes it anew."""
    assert write_options.PAGE.read_text(encoding="utf-8") == write_options.page()


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_reference_has_each_option_of_each_command() -> None:
    """By its names, in the command's section; what all commands take stands once."""
    page = _sections(write_options.PAGE.read_text(encoding="utf-8"))
    everywhere = set(re.findall(r"`(--?\w+)`", page["Every command"]))
    found = 0
    for name, command in write_options.commands():
        named = set(re.findall(r"`(--?[\w-]+)", page[name])) | everywhere
        given = {one for param in command.params if isinstance(param, click.Option) for one in param.opts}
        # (Of an option that another command has too, the long name alone is repeated.)
        assert {one for one in given if one.startswith("--")} <= named, name
        found += len(given)
    assert found > 150


def test_the_reference_has_each_field_of_the_option_types_and_each_key() -> None:
    text = write_options.PAGE.read_text(encoding="utf-8")
    page = _sections(text)
    for kind, where in (
        (options.PackOptions, ("pack",)),
        (options.QuantizeOptions, ("quantize", "pack")),
        (options.CompareOptions, ("compare", "pack")),
        (options.RunOptions, ("verify", "compare")),
    ):
        shown = "".join(page[name] for name in where)
        for field in fields(kind):
            assert re.search(rf"`{field.name}[:=`]", shown), (kind, field.name)
    keys = [path for path, _, _ in write_options.project_keys()]
    assert len(keys) > 40 and "models.NAME.shapes" in keys and "budgets.flash" in keys
    for path in keys:
        last = path.rpartition(".")[2]
        assert f"| `{path}` |" in page["The project file"] or f"| `{last}` " in page["pack"], path


def test_what_the_reference_says_three_ways_is_the_same(tmp_path: Path) -> None:
    """Its example as a command line, in Python and in a project file."""
    words = shlex.split(write_options.SHELL.replace("\\\n", " "))[2:]
    pack = dict(write_options.commands())["pack"]
    typed = pack.make_context("pack", words).params
    call = ast.parse(write_options.PYTHON_CALL, mode="eval").body
    assert isinstance(call, ast.Call)
    python = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    (tmp_path / "detector.onnx").write_bytes(b"")
    (tmp_path / "edgepack.yaml").write_text(write_options.YAML, encoding="utf-8")
    project = load_project(tmp_path / "edgepack.yaml").project
    entry = project.models["detector"]
    assert python["device"] == typed["device"] == next(iter(project.devices))
    for name in python.keys() - {"device"}:
        written = getattr(entry, name)
        one = {key: (value,) for key, value in python[name].items()} if name == "const" else python[name]
        assert one == typed[name], name
        assert python[name] == written, name
