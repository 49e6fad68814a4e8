"""Writes docs/reference/options.md from the commands, the option types and the project file's schema:
``python tools/write_options.py``.

What an option does is said once: by the docstring of its field (``PackOptions``, ``QuantizeOptions``,
``CompareOptions``, ``RunOptions``), of the Python function's argument, or else by the command's ``--help``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

import edgepack
from edgepack import options as option_types
from edgepack.cli.grouped import MODEL_GROUPS
from edgepack.cli.main import COMMANDS, cli
from edgepack.commands.update import UpdateKeywords
from edgepack.release import project
from edgepack.release.run import ReleaseOptions
from tools.docstrings import as_line, sections

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "options.md"

#: By command: what Python calls instead, and the types whose fields its further keywords are.
PYTHON: Mapping[str, tuple[Callable[..., Any], Sequence[type]]] = {
    "pack": (edgepack.pack, (option_types.PackOptions, option_types.QuantizeOptions)),
    "check": (edgepack.check, (option_types.PackOptions,)),
    "quantize": (edgepack.quantize, (option_types.QuantizeOptions,)),
    "compare": (edgepack.compare, (option_types.CompareOptions, option_types.RunOptions)),
    "verify": (edgepack.Bundle.verify, (option_types.RunOptions,)),
    "bench": (edgepack.Bundle.bench, (option_types.RunOptions,)),
    "new": (edgepack.new_project, ()),
    "release": (edgepack.make_release, (ReleaseOptions,)),
    "export": (edgepack.export, (option_types.PackOptions,)),
    "update": (edgepack.update, (UpdateKeywords, option_types.RunOptions, option_types.PackOptions)),
    "report": (edgepack.Bundle.report, ()),
    "sign": (edgepack.sign, ()),
    "inspect": (edgepack.Bundle.inspect, ()),
}
#: By command and option: how Python says it, where that is no keyword of the same name.
OTHERWISE = {
    ("pack", "no_cache"): "cache=False",
    ("verify", "model"): "edgepack.verify_layers",
}
#: Keys of the project file that are called otherwise than the option, or stand elsewhere.
_KEYS = {
    "formats": "formats (overrides only)",
    "package_version": "version (top level)",
    "license": "license (top level)",
    "authors": "authors (top level)",
    "homepage": "homepage (top level)",
    "sign_key": "signing",
}
_EVERYWHERE = ("as_json", "quiet", "verbose")
_DEFAULT = re.compile(r"^(?P<what>.*?)[;.,]? ?\b[Dd]efault:? (?P<value>[^.]+(?:\.\w[^.]*)*)\.?$", re.DOTALL)

_INTRODUCTION = """\
Every option of every command, with what Python calls it and its key in the project file (`edgepack.yaml`,
[the project file](#the-project-file)). Written by `tools/write_options.py` from the code that takes them.

The same three ways:

<!-- tabs -->
**Command line**

<!-- not run: of a model with these inputs; tests/test_references.py reads it -->
```sh
{shell}
```

**Python**

```python
{python}
```

**Project file**

```yaml
{yaml}
```
<!-- /tabs -->

On the command line, what has a name and a value (`--shape`, `--dim`, ...) is given once for each name.
"""
#: One choice, three ways; the tests hold them to be the same.
SHELL = (
    "edgepack pack detector.onnx --device raspberrypi4 --shape image=1,3,224,224 --dim tokens=128 \\\n"
    "    --const rate=16000 --max boxes=100 --weights float16 --strict-math"
)
PYTHON_CALL = """\
edgepack.pack(
    "detector.onnx",
    device="raspberrypi4",
    shapes={"image": (1, 3, 224, 224)},
    dims={"tokens": 128},
    const={"rate": 16000},
    maxima={"boxes": 100},
    weights="float16",
    strict_math=True,
)"""
YAML = """\
name: detectors
version: 1.0.0
models:
  detector:
    path: detector.onnx
    shapes: {image: [1, 3, 224, 224]}
    dims: {tokens: 128}
    const: {rate: 16000}
    maxima: {boxes: 100}
    weights: float16
    strict_math: true
devices:
  raspberrypi4:"""


@dataclass(frozen=True)
class Row:
    """An option as the page has it."""

    anchor: str
    spelled: str
    python: str
    key: str
    default: str
    what: str


def page() -> str:
    """The whole page."""
    shown = {"shell": SHELL, "python": PYTHON_CALL, "yaml": YAML}
    parts = ["# Options\n", _INTRODUCTION.format(**shown)]
    seen: dict[tuple[str, ...], str] = {}
    for name, command in commands():
        parts += _command(name, command, seen)
    parts += _everywhere()
    parts += _project_file()
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands, in the order of ``--help``, those of groups by both names (``cache list``)."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for inner, one in command.commands.items():
                yield f"{name} {inner}", one
        else:
            yield name, command


def _command(name: str, command: click.Command, seen: dict[tuple[str, ...], str]) -> Iterator[str]:
    options = [one for one in command.params if isinstance(one, click.Option)]
    context = click.Context(command)
    arguments = " ".join(one.make_metavar(context) for one in command.params if one not in options)
    yield f"## {name}\n"
    does = as_line((command.help or "").partition("\n\n")[0].replace("\b", ""))
    python = f" Python: `{_called(name)}`." if name in PYTHON else ""
    yield f"`edgepack {name} {arguments}`".replace(" `", "`") + f": {does}{python}\n"
    new: list[click.Option] = []
    old: dict[str, list[str]] = {}
    for option in options:
        same = (*option.opts, str(option.metavar), str(option.help))
        if option.name in _EVERYWHERE:
            continue
        if same in seen:
            old.setdefault(seen[same], []).append(f"`{_long(option)}`")
            continue
        seen[same] = name
        new.append(option)
    for title, group in _grouped(name, new):
        if title:
            yield f"### {title}\n"
        yield _table(name, [_row(name, option) for option in group])
    if old:
        each = [f"for [{one}](#{one.replace(' ', '-')}): {', '.join(named)}" for one, named in old.items()]
        yield f"As {'; as '.join(each)}.\n"


def _grouped(name: str, options: Sequence[click.Option]) -> Iterator[tuple[str, Sequence[click.Option]]]:
    if name != "pack":
        yield from [("", options)] if options else []
        return
    by_name = {option.name: option for option in options}
    for title, names in MODEL_GROUPS.items():
        if found := [by_name.pop(one) for one in names if one in by_name]:
            yield title, found
    assert not by_name, f"no group of edgepack.cli.grouped has {list(by_name)}"


def _table(name: str, rows: Sequence[Row]) -> str:
    keys = any(row.key for row in rows)
    python = name in PYTHON
    header = ["Option", *(["Python"] if python else []), *(["YAML"] if keys else []), "Default", "What"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        first = f'<a id="{row.anchor}"></a>{row.spelled}' if name == "pack" else row.spelled
        cells = [first, *([row.python] if python else []), *([row.key] if keys else [])]
        cells += [row.default, row.what]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _row(name: str, option: click.Option) -> Row:
    keyword, typed, text = _in_python(name, option)
    help_text, help_default = _split_help(option)
    what, default = _split(text) if text else _split(help_text)
    default = default or help_default or _value(option)
    spelled = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        spelled = f"{spelled[:-1]} {_values(option)}`"
    typed_keyword = _typed_keyword(keyword, typed)
    return Row(_long(option).strip("-"), spelled, typed_keyword, _key(name, option), default, what)


def _in_python(name: str, option: click.Option) -> tuple[str, str, str]:
    """Keyword, type and text in Python; empty where Python has none."""
    keyword = str(option.name)
    if (name, keyword) in OTHERWISE:
        return OTHERWISE[name, keyword], "", ""
    function, types = PYTHON.get(name, (None, ()))
    if function is None:
        return "", "", ""
    parameters = inspect.signature(function).parameters
    text = sections(function).get("Args", {}).get(keyword, "")
    typed = str(parameters[keyword].annotation) if keyword in parameters else ""
    for one in types:
        typed = typed or str(inspect.get_annotations(one).get(keyword, ""))
        text = text or sections(one).get("Attributes", {}).get(keyword, "")
    return (keyword, typed, text) if typed else ("", "", "")


def _typed_keyword(keyword: str, typed: str) -> str:
    short = re.sub(r"ForwardRef\('(.*?)'.*\)$", r"\1", typed)
    short = re.sub(r" \| None$", "", short).replace("PathLike", "path").replace("path | Device", "path")
    short = short.replace("Mapping", "dict").replace("Sequence", "list").replace("Path", "path")
    if short == "bool" or re.sub(r"\b(dict|list|str|int|float|path)\b|[\[\], |]", "", short):
        short = ""  # (a flag, or names that the option's values stand for)
    return f"`{keyword}: {short}`" if short else f"`{keyword}`" if keyword else ""


def _key(name: str, option: click.Option) -> str:
    keyword = str(option.name)
    if name != "pack":
        return ""
    if keyword in project.Choices.model_fields:
        return f"`{keyword}` *"
    if keyword in project.ModelEntry.model_fields:
        return f"`{keyword}`"
    if keyword in _KEYS:
        key, _, where = _KEYS[keyword].partition(" (")
        return f"`{key}`" + (f" ({where}" if where else "")
    return ""


def _values(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    if option.metavar:
        return option.metavar
    kind = "PATH" if isinstance(option.type, click.Path) else str(option.type.name).upper()
    return {"INTEGER RANGE": "N", "INTEGER": "N", "FLOAT RANGE": "X", "FLOAT": "X"}.get(kind, kind)


def _split_help(option: click.Option) -> tuple[str, str]:
    found = re.match(r"(.*?)\s*\[default: (.*)\]$", str(option.help), re.DOTALL)
    return (found[1], found[2]) if found else (str(option.help), "")


def _split(text: str) -> tuple[str, str]:
    """What stands before a sentence's last words "default ...", and these."""
    found = _DEFAULT.match(text)
    what, default = (found["what"], found["value"]) if found else (text, "")
    what = _linked(what.strip().rstrip(".") + ".")
    return what[0].upper() + what[1:], re.sub(r'^"(.*)"$', r"`\1`", default.strip())


def _linked(text: str) -> str:
    return re.sub(r"docs/((?:[\w-]+/)*)([\w-]+)\.md", r"[\2](../\1\2.md)", as_line(text))


def _value(option: click.Option) -> str:
    value = option.default
    if option.is_flag:
        return "on" if value is True else ""
    if isinstance(value, str | int | float | Path) and not isinstance(value, bool) and value != "":
        return f"`{value}`"
    return "" if not option.required else "(required)"


def _long(option: click.Option) -> str:
    return max(option.opts, key=len)


def _called(name: str) -> str:
    function, _ = PYTHON[name]
    owner, _, last = function.__qualname__.rpartition(".")
    return f"bundle.{last}" if owner == "Bundle" else f"edgepack.{last}"


def _everywhere() -> Iterator[str]:
    yield "## Every command\n"
    options = {str(one.name): one for _, command in commands() for one in command.params}
    lines = ["| Option | What |", "|---|---|"]
    for name in _EVERYWHERE:
        option = options[name]
        assert isinstance(option, click.Option)
        lines.append(f"| {', '.join(f'`{one}`' for one in option.opts)} | {option.help} |")
    yield "\n".join([*lines, "| `-h`, `--help` | Show the options and exit. |\n"])


def _project_file() -> Iterator[str]:
    yield "## The project file\n"
    yield (
        "`edgepack.yaml`, which `edgepack new` writes and `edgepack release` builds. A model takes what "
        "stands in the column YAML above; keys with * stand in `matrix: overrides:` too.\n"
    )
    lines = ["| Key | Type | Default | What |", "|---|---|---|---|"]
    packs = {str(one.name) for one in dict(commands())["pack"].params} & set(project.ModelEntry.model_fields)
    for path, schema, required in project_keys():
        parent, _, key = path.rpartition(".")
        if parent in {"models.NAME", "matrix.overrides"} and key in packs:
            continue
        default = "(required)" if required else _shown_default(schema)
        lines.append(f"| `{path}` | {_type(schema)} | {default} | {_linked(schema.get('description', ''))} |")
    yield "\n".join(lines) + "\n"


def project_keys() -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every key of the project file: the path that leads to it, its JSON Schema, whether it must be there.
    What is below `devices` is that of device files."""
    yield from _keys_of(project.Project.model_json_schema(), "")


def _keys_of(
    schema: Mapping[str, Any], path: str, definitions: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    definitions = definitions or schema["$defs"]
    for name, one in schema["properties"].items():
        named = re.findall(r"#/\$defs/(\w+)", str(one))
        if not named or path + name == "matrix.overrides.budgets":
            yield f"{path}{name}", one, name in schema.get("required", ())
            continue
        named_ones = "additionalProperties" in one or "patternProperties" in one
        below = f"{path}{name}.{'NAME.' if named_ones else ''}"
        yield from _keys_of(definitions[named[0]], below, definitions)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema or "allOf" in schema:
        return "as `budgets`"
    kinds = [one.get("type") for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if kinds[:2] == ["integer", "string"]:
        return "bytes: `65536`, `64 KiB`"
    names = {"integer": "whole number", "string": "text", "array": "list", "object": "mapping"}
    return names.get(kinds[0], kinds[0])


def _shown_default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return f"`{json.dumps(value)}`" if value and not isinstance(value, dict) else ""


def write() -> None:
    """The page, in its place."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write()
