"""Writes docs/reference/python.md from the docstrings of the Python API: ``python tools/write_api.py``."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import edgepack
from edgepack import api
from tools.docstrings import HEADING, as_line, items

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "python.md"

#: Types whose fields docs/reference/options.md has, beside the command line: the heading there.
OPTIONS = {"PackOptions": "pack", "QuantizeOptions": "quantize", "CompareOptions": "compare"}

#: What the page has, by section; all names of ``edgepack.__all__`` but the version are in one.
SECTIONS = {
    "Packing": ("pack", "PackOptions"),
    "Bundles": ("Bundle", "Verification", "Measurement", "Instructions"),
    "Quantising": ("quantize", "QuantizeOptions", "Quantized"),
    "Comparing": ("compare", "CompareOptions", "Comparison", "verify_layers", "LayersVerification"),
    "Packages": ("export",),
    "Signatures": ("sign",),
    "Releases": ("new_project", "make_release", "Release"),
    "Tuning": ("tune", "Tuned", "TuneRound", "TuneLayer"),
    "Updates": ("update", "Update"),
    "Running here": ("load", "Session"),
    "Checking": ("check", "ModelCheck"),
    "With TVM's own libraries": ("cross_compiler",),
    "Errors": (
        *("EdgepackError", "ConfigError", "ModelError", "ToolchainError", "CheckFailedError"),
        "InternalError",
    ),
}
#: What users see of ``edgepack.torch``, by heading: module and name. It is read from the sources, for
#: importing them needs PyTorch.
TORCH = {
    "edgepack.torch.explain": ("torch/explain", "explain"),
    "edgepack.torch.Explanation": ("torch/explain", "Explanation"),
    "edgepack.torch.ExplainedSubgraph": ("torch/explain", "ExplainedSubgraph"),
    "Options of torch.compile": ("torch/options", "CompileOptions"),
}
#: The same, beside ``cross_compiler``.
TVM = {
    "edgepack.torch.export_library": ("torch/tvm_library", "export_library"),
    "edgepack.torch.TvmLibrary": ("commands/tvm_library", "TvmLibrary"),
}
_TORCH_INTRODUCTION = """\
`torch.compile(model, backend="edgepack", options={...})` needs no import of edgepack's; what becomes of
a model under it is said by `edgepack.torch`, whose import imports PyTorch
([PyTorch](../pytorch.md#torchcompile)).
"""
_INTRODUCTION = """\
Everything is an attribute of the module: `import edgepack`. What goes wrong is an `EdgepackError`, whose hint
names options as these functions take them. Written by `tools/write_api.py` from the docstrings.
"""


def page() -> str:
    """The whole page."""
    parts = ["# Python API\n", _INTRODUCTION, f"{_code(_example())}\n"]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _entry(name, getattr(edgepack, name))
        if "cross_compiler" in names:
            parts += _read_entries(TVM)
    parts += ["## With torch.compile\n", _TORCH_INTRODUCTION, *_read_entries(TORCH)]
    return "\n".join(parts)


def _example() -> str:
    return str(inspect.getdoc(api)).partition("\n\n")[2]


def _read_entries(entries: dict[str, tuple[str, str]]) -> Iterator[str]:
    for heading, (module, name) in entries.items():
        source = (Path(edgepack.__file__).parent / f"{module}.py").read_text(encoding="utf-8")
        (node,) = (one for one in ast.parse(source).body if getattr(one, "name", "") == name)
        yield f"### {heading}\n"
        if isinstance(node, ast.FunctionDef):
            yield _signature(node, heading)
        elif isinstance(node, ast.ClassDef):
            yield _fields(node)
        yield _text(ast.get_docstring(node))  # type: ignore[arg-type]


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not inspect.isclass(thing):
        yield _signature(_parsed(thing), f"edgepack.{name}")
        yield _text(inspect.getdoc(thing))
        return
    if issubclass(thing, edgepack.EdgepackError):
        yield f"Exit code {thing.exit_code} of the program. {_text(inspect.getdoc(thing))}"
        return
    if name in OPTIONS:
        first = (inspect.getdoc(thing) or "").partition("\n\n")[0]
        yield f"{as_line(first)} Its fields: [options.md](options.md#{OPTIONS[name]}).\n"
        return
    tree = _parsed(thing)
    if fields := _fields(tree):
        yield fields
    elif "__init__" in vars(thing):
        yield _signature(_parsed(vars(thing)["__init__"]), f"edgepack.{name}")
    yield _text(inspect.getdoc(thing))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield from _member(name, vars(thing)[node.name])


def _member(owner: str, member: Any) -> Iterator[str]:
    if isinstance(member, property):
        yield f"#### {owner}.{member.fget.__name__}\n"  # type: ignore[union-attr]
        yield _text(inspect.getdoc(member))
        return
    yield f"#### {owner}.{member.__name__}\n"
    yield _signature(_parsed(member), f"{owner.lower()}.{member.__name__}")
    yield _text(inspect.getdoc(member))


def _fields(tree: ast.ClassDef) -> str:
    """Those of a dataclass with their types and defaults; "" of another class."""
    fields = [ast.unparse(node) for node in tree.body if isinstance(node, ast.AnnAssign)]
    return _code("\n".join(fields)) + "\n" if fields else ""


def _parsed(thing: Any) -> Any:
    """The syntax tree of a function or class, of what is decorated the inner one."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
    return ast.parse(source).body[0]


def _signature(node: ast.FunctionDef, called: str) -> str:
    """How it is called, a parameter on each line where one does not suffice."""
    arguments = node.args
    if arguments.args and arguments.args[0].arg == "self":
        arguments.args.pop(0)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    parts = _parameters(arguments)
    text = f"{called}({', '.join(parts)}){returns}"
    if len(text) > 110:
        text = f"{called}(\n{''.join(f'    {part},{chr(10)}' for part in parts)}){returns}"
    return f"{_code(text)}\n"


def _parameters(arguments: ast.arguments) -> list[str]:
    """The text of each parameter: that of all, cut at commas that no bracket holds."""
    depth, parts = 0, [""]
    for character in ast.unparse(arguments):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip().replace("=", " = ", 1) for part in parts if part]


def _code(text: str) -> str:
    return f"```python\n{text.strip()}\n```".replace("'", '"')


def _text(docstring: str | None) -> str:
    """A docstring as Markdown: prose, then a list for each of its sections."""
    prose, *sections = HEADING.split(docstring or "")
    parts = [_prose(prose)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        listed, _, rest = textwrap.dedent(body).strip("\n").partition("\n\n")
        named = [f"- `{name}`: {what}" for name, what in items(listed)] if title != "Returns" else []
        label = {"Args": "Arguments"}.get(title, title)
        parts.append(f"{label}:\n\n" + "\n".join(named) if named else f"{label}: {as_line(listed)}")
        if rest.strip():
            parts.append(_prose(textwrap.dedent(rest)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _prose(text: str) -> str:
    """Paragraphs on a line each; what is indented behind `::` is code."""
    groups: list[tuple[bool, list[str]]] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        code = all(line.startswith("    ") for line in paragraph.splitlines())
        if code and groups and groups[-1][0]:
            groups[-1][1].append(paragraph)
        else:
            groups.append((code, [paragraph]))
    return "\n\n".join(
        _code(textwrap.dedent("\n\n".join(group))) if code else as_line(group[0]) for code, group in groups
    )


def write() -> None:
    """The page, in its place."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write()
