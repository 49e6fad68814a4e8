"""The commands that README.md and docs/ show: each is run here, or a comment says why it is not, and what is
not run is read by the parser of the command line all the same.

    <!-- not run: needs a board -->      before a block: it is not run
    <!-- exits 3 -->                     before a block: its last command ends with this exit code
    <!-- fragment -->                    before YAML or Python that is no whole file
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from edgepack.config.device import DEVICES
from edgepack.config.toolchain import TOOLCHAINS
from edgepack.release.project_file import load_project
from tools.write_options import commands

ROOT = Path(__file__).parents[1]
#: Pages for users. What is written of the code, and what those who work on edgepack read, has no commands.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "internals" not in page.parts),
]
#: A page whose blocks are signatures, which tests/test_docs.py holds to be those of the sources.
SIGNATURES = ROOT / "docs" / "reference" / "python.md"
_SHELLS = {"sh", "bash", "console", "shell"}
#: What a line of a block begins with that is for a shell.
_PROGRAMS = re.compile(
    r"(?:\$ )?(?:edgepack|pip|python3?|cd|cc|cmake|make|dask|npm|docker|minisign|ssh|scp|cargo|\.\./|bin/)[ ]"
)
_MARK = re.compile(r"<!-- (not run: .+?|exits \d+|fragment) -->\s*(?:<!--(?:(?!-->).)*-->\s*)*\Z")


@dataclass(frozen=True)
class Block:
    """Code of a page: its language ("sh" for a shell's), the mark before it, and its first line's number."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[str]:
        """Command lines: those behind ``$``, or all where none stands behind one."""
        text = re.sub(r"\\\n\s*", "", self.text)
        lines = text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def blocks(page: Path) -> Iterator[Block]:
    """Fenced and indented blocks; what is indented in a list, or is no code of a shell, has no language."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(
        r"^(?P<indent> *)```(?P<language>\w*)\n(?P<fenced>.*?)^(?P=indent)```|"
        r"(?<=\n\n)(?P<indented>(?: {4}[^\n]*\n|\n(?= {4}))+)",
        re.MULTILINE | re.DOTALL,
    )
    for found in pattern.finditer(text):
        code = textwrap.dedent(found["fenced"] if found["fenced"] is not None else found["indented"])
        language = found["language"] or ""
        if language in _SHELLS or (not language and _PROGRAMS.match(code.strip())):
            language = "sh"
        before = text[: found.start()].rstrip()
        mark = _MARK.search(before)
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, language, code.strip("\n"), mark[1] if mark else "")


ALL = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in ALL if block.language == "sh"]
RUN = sorted({block.page for block in SHELL if not block.mark.startswith("not run")})


def _calls(line: str) -> Iterator[list[str]]:
    """The words of each call of edgepack in a line of a shell, without what is piped to where."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words = list(lexer)
    call: list[str] | None = None
    for word in [*words, ";"]:
        if set(word) <= set("|&;<>()"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif word == "edgepack":
            call = []


def _parse(words: list[str]) -> None:
    known = dict(commands())
    name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
    assert name in known, f"edgepack has no command {name!r}"
    rest = [word for word in words[len(name.split()) :] if word not in {"...", "-h", "--help"}]
    if len(rest) == len(words) - len(name.split()):
        known[name].make_context(name, rest)


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.place)
def test_the_command_line_takes_what_is_shown(block: Block) -> None:
    for line in block.commands():
        for words in _calls(line):
            if words and words != ["--version"]:
                try:
                    _parse(words)
                except click.ClickException as error:
                    pytest.fail(f"{block.place}: {line}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_command_line_takes_what_a_sentence_names(page: Path) -> None:
    """There a command stands without what must be given; its name and options are those that there are."""
    for line in _named(page.read_text(encoding="utf-8")):
        for words in _calls(line):
            if words and not set("{}…") & set("".join(words)):
                try:
                    _parse(words)
                except (click.MissingParameter, click.BadOptionUsage):
                    pass
                except click.ClickException as error:
                    pytest.fail(f"{page.name}: {line}: {error.format_message()}")


def _named(text: str) -> list[str]:
    """The commands in a page's prose."""
    prose = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", code) for code in re.findall(r"`(edgepack [^`]+)`", prose)]


def test_a_wrong_command_in_a_sentence_is_found() -> None:
    (line,) = _named("As `edgepack export\nnet --formal wheel` does.")
    with pytest.raises(click.NoSuchOption):
        _parse(next(_calls(line)))


def test_blocks_are_found() -> None:
    assert len(SHELL) > 25
    assert len(RUN) > 3
    assert all(block.mark.removeprefix("not run:").strip() for block in SHELL if block.mark)


def _model() -> onnx.ModelProto:
    """A network of one convolution and a classifier, with sizes that pages give: small, and soon packed."""
    draw = np.random.default_rng(0)
    weights = {
        "conv.weight": draw.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "fc.weight": draw.normal(size=(4, 10)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["input", "conv.weight"], ["features"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["active"], name="relu"),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"], name="pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
        helper.make_node("MatMul", ["flat", "fc.weight"], ["logits"], name="fc"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _prepare(folder: Path, lines: list[str]) -> None:
    """What a reader of the page has: models, and data for them."""
    written = {name for line in lines for name in re.findall(r"(?:-o|--output) (\S+\.onnx)", line)}
    for name in {name for line in lines for name in re.findall(r"[\w./-]+\.onnx\b", line)} - written:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(_model(), folder / name)
    draw = np.random.default_rng(1)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "images").mkdir()
    for path in (folder / "test.npz", *(folder / "images" / f"{one}.npz" for one in range(2))):
        np.savez(path, input=draw.normal(size=(1, 3, 16, 16)).astype(np.float32))


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """In one folder, in the page's order, by a shell that ends at the first failure."""
    shown = [block for block in SHELL if block.page == page and not block.mark.startswith("not run")]
    _prepare(tmp_path, [line for block in shown for line in block.commands()])
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for block in shown:
        wanted = int(block.mark.removeprefix("exits ")) if block.mark.startswith("exits") else 0
        # What pip would install is what the tests run with.
        lines = [line for line in block.commands() if not line.startswith("pip install")]
        script = "\n".join(["set -e", *lines])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == wanted, f"{block.place}\n{script}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "block",
    [one for one in ALL if one.language == "python" and one.mark != "fragment" and one.page != SIGNATURES],
    ids=lambda block: block.place,
)
def test_python_that_is_shown_compiles(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize(
    "block",
    [one for one in ALL if one.language == "yaml" and one.mark != "fragment"],
    ids=lambda block: block.place,
)
def test_yaml_that_is_shown_is_read(block: Block, tmp_path: Path) -> None:
    """A project file, or that of a device or a toolchain."""
    content = yaml.safe_load(block.text)
    file = tmp_path / "shown.yaml"
    file.write_text(block.text, encoding="utf-8")
    if "models" in content:
        for entry in content["models"].values():
            for path in (entry["path"], *entry.get("inputs", {}).values()):
                (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / path).write_bytes(b"")
        assert load_project(file).project.models.keys() == content["models"].keys()
    else:
        kind = TOOLCHAINS if "executables" in content else DEVICES
        loaded = kind.load(str(file))  # type: ignore[attr-defined]
        assert loaded.files[0] == file and len(loaded.files) > 1


@pytest.mark.parametrize(
    "line",
    [
        "edgepack pack net.onnx --no-such-option",
        "edgepack pack net.onnx --optimize speed",
        "cd dist && edgepack verify --runs 3 net-host | head",
        "edgepack bench net-host --runs few",
        "edgepack quantise net.onnx",
    ],
)
def test_a_line_that_the_command_line_refuses_is_found(line: str) -> None:
    calls = list(_calls(line))
    assert len(calls) == 1
    with pytest.raises((click.ClickException, AssertionError)):
        _parse(calls[0])
