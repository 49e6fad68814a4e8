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
from tools import write_messages, write_options
from tools.raised import EXIT_CODES, found, sources


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


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\\", ""))


def test_the_reference_of_messages_is_current() -> None:
    """`python tools/write_messages.py` writes it anew."""
    assert write_messages.PAGE.read_text(encoding="utf-8") == write_messages.page()


def _constant_parts(node: ast.expr) -> list[str]:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def test_each_hint_of_the_sources_is_in_the_reference_of_messages() -> None:
    """Each text that stands at `hint=`, or, of an f-string, what is always the same in it."""
    page = _plain(write_messages.PAGE.read_text(encoding="utf-8"))
    hints = set()
    for called, calls in sources().calls.items():
        if called in {"GpuTool", "Diagnosis"}:  # what doctor found, no errors
            continue
        for call, _ in calls:
            hints |= {
                one for word in call.keywords if word.arg == "hint" for one in _constant_parts(word.value)
            }
    assert len(hints) > 280
    assert [hint for hint in sorted(hints) if _plain(hint.replace("|", "\\|")) not in page] == []


def test_a_hint_is_followed_to_where_it_is_made() -> None:
    """To a constant, a table, a condition, what a function returns, and what one is handed."""
    hints = {(one.module.rpartition(".")[2], one.hint) for one in found()}
    assert ("cosign", "Give a key of P-256, such as `cosign generate-key-pair` makes.") in hints
    assert ("ssh", "Check the name, or give the device's address.") in hints
    assert ("adb", "Wait until it has started.") in hints
    assert any(text.startswith("Its machine is {machine}") for _, text in hints)
    assert any(text.startswith("`edgepack export --help` lists the formats.") for _, text in hints)
    assert ("open_dims", "Choose its size, for example: {options}") in hints
    assert any(text.startswith("Raise the limit with --timeout SECONDS") for _, text in hints), "a default"


def _pattern(template: str) -> str:
    """What a message looks like; "" of a template that says hardly anything itself, and would match all."""
    parts = re.split(r"\{[^{}]*\}", template.removesuffix("."))
    said = re.sub(r"\W", "", "".join(parts))
    return ".*?".join(map(re.escape, parts)) if len(said) > 8 else ""


def test_the_troubleshooting_page_quotes_messages_that_there_are() -> None:
    """The constant parts of what it shows behind `edgepack: error:` and `hint:` stand in the sources."""
    text = (write_messages.PAGE.parents[1] / "troubleshooting.md").read_text(encoding="utf-8")
    shown = re.findall(r"^ +(?:edgepack: error|hint): (.*)$", text, re.MULTILINE)
    assert len(shown) > 15
    templates = [error.hint for error in found()]
    for called in EXIT_CODES:
        for call, scope in sources().calls.get(called, ()):
            templates += sources().texts(call.args[0], scope) if call.args else []
    known = [pattern for one in templates if (pattern := _pattern(one))]
    assert not any(re.match(pattern, "Some text: another one, that is not there.") for pattern in known)
    for line in shown:
        assert any(re.match(pattern, line) for pattern in known), line
