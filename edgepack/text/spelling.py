"""How an error names an option: as the front door that the user came through takes it.

Whoever raises an error writes what is typed in a terminal: ``--dim N=4``, and in backticks a command, such as
``edgepack verify BUNDLE``. The command line shows it so; what leaves the Python API says
``dims={"N": 4}`` and ``bundle.verify()``. A command that Python does not have (``edgepack doctor``) stays
what it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["OPTIONS", "at_the_command_line", "spelled"]

_terminals = 0


@contextmanager
def at_the_command_line() -> Iterator[None]:
    """While the body of the ``with`` runs, options are named as the command line takes them."""
    global _terminals  # noqa: PLW0603 (of the process: releases have threads)
    _terminals += 1
    try:
        yield
    finally:
        _terminals -= 1


def spelled(text: str) -> str:
    """A message or hint with the options' names that the user's front door has."""
    if _terminals or ("--" not in text and "edgepack " not in text):
        return text
    return _PATTERN.sub(_replaced, text)


class _Option(NamedTuple):
    """An option of the command line.

    Attributes:
        keyword: its name in Python.
        value: what stands behind it, a pattern; "" where nothing does.
        python: that as Python's source; several values of an option are given together.
    """

    keyword: str
    value: str
    python: Callable[[Sequence[str]], str]


_WORD = r"""(?:'[^']*'|[^\s`'"(]*[^\s`'".,;:()])"""
#: What is no word of a sentence: a number, a path, a place, or a name in capitals.
_VALUE = rf"(?:(?=[^\s`]*[^\s`a-z.,;:()]){_WORD})"
_PAIR = r"(?:'[^']*=[^']*'|[^\s`'=]+=(?:\.\.\.|[^\s`']*[^\s`'.,;:()]|\(\)))"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _number(text: str) -> str:
    return text if re.fullmatch(r"-?[0-9][0-9.e+-]*|\.\.\.|[A-Z]+", text) else _quoted(text)


def _shape(text: str) -> str:
    parts = [_number(part) for part in text.split(",")] if text not in ("()", "...") else []
    return text if not parts else f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _numbers(text: str) -> str:
    parts = [_number(part) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"


def _pairs(of: Callable[[str], str]) -> Callable[[Sequence[str]], str]:
    def python(values: Sequence[str]) -> str:
        found = (value.rpartition("=") for value in values)
        return f"{{{', '.join(f'{_quoted(name)}: {of(rest)}' for name, _, rest in found)}}}"

    return python


def _list(values: Sequence[str]) -> str:
    names = [name for value in values for name in value.split(",")]
    return f"[{', '.join(map(_quoted, names))}]"


def _flag(keyword: str, value: str = "True") -> _Option:
    return _Option(keyword, "", lambda _: value)


def _text(keyword: str, pattern: str = _VALUE) -> _Option:
    return _Option(keyword, pattern, lambda values: _quoted(values[-1]))


def _size(keyword: str) -> _Option:
    return _Option(keyword, r"(?:[0-9][0-9.]*[0-9]|[0-9]|[A-Z]+\b)", lambda values: values[-1])


_BARS = ("min-accuracy", "max-drop")

_QUANTISING_FLAGS = ("dynamic", "symmetric", "reduce-range", "activation-tables")

#: By the command line's names.
OPTIONS = {
    "--shape": _Option("shapes", _PAIR, _pairs(_shape)),
    "--dim": _Option("dims", _PAIR, _pairs(_number)),
    "--max": _Option("maxima", _PAIR, _pairs(_number)),
    "--const": _Option("const", _PAIR, _pairs(_numbers)),
    "--input": _Option("inputs", _PAIR, _pairs(_quoted)),
    "--expected": _Option("expected", _PAIR, _pairs(_quoted)),
    "--inputs": _Option("cut_inputs", _VALUE, _list),
    "--outputs": _Option("cut_outputs", _VALUE, _list),
    "--format": _Option("formats", _VALUE, _list),
    "--author": _Option("authors", _VALUE, _list),
    "--tuned": _Option("tuned", _VALUE, _list),
    "--ram-budget": _text("ram_budget"),
    "--only": _Option("only", _WORD, _list),
    "--exclude": _Option("exclude", _WORD, _list),
    "--optimize": _text("optimize", r"(?:latency|size|balanced)\b"),
    "--params": _text("params", r"(?:file|embed|caller)\b"),
    "--weights": _text("weights", r"float(?:16|32)\b"),
    "--precision": _text("precision", r"(?:fp|tf)(?:16|32)\b"),
    "--executor": _text("executor", r"(?:dask|processes)\b"),
    "--runner": _text("runner", _WORD),
    **{
        f"--{name}": _text(name.replace("-", "_"))
        for name in (
            *("name", "output", "device", "toolchain", "sdk", "custom", "summary", "license", "homepage"),
            *("package-name", "package-version", "sign-key", "params-key", "key", "variant", "signature"),
            *("against", "scheduler", "comment", "model"),
        )
    },
    **{
        f"--{name}": _size(name.replace("-", "_"))
        for name in (
            *("seed", "set-batch", "max-constant-bytes", "max-nodes", "timeout", "threads", "runs", "warmup"),
            *("max-trips", "jobs", "params-version", "opt-level", "keep-stages"),
        )
    },
    **{
        f"--{name}": _flag(name.replace("-", "_"))
        for name in ("force", "strict-math", "strict-speed", "sandbox", "profile")
    },
    "--quantize": _text("quantize", r"(?:int8|dynamic)\b"),
    "--calibrate": _text("calibrate", _WORD),
    "--accuracy": _text("accuracy", _WORD),
    "--like": _text("like"),
    "--layers": _text("model", _WORD),
    "--percentile": _size("percentile"),
    "--samples": _size("samples"),
    **{f"--{name}": _size(name.replace("-", "_")) for name in ("min-sqnr", "max-error", "min-top1", *_BARS)},
    **{f"--{name}": _flag(name.replace("-", "_")) for name in _QUANTISING_FLAGS},
    "--no-activation-tables": _flag("activation_tables", "False"),
    "--no-bias-correction": _flag("bias_correction", "False"),
    "--no-cache": _flag("cache", "False"),
    "--bench": _text("bench"),
    "--ci": _text("ci", _WORD),
    "--edgepack": _text("edgepack"),
    "--run": _flag("run"),
    "--allow-same-version": _flag("allow_same_version"),
    "--unsigned": _flag("unsigned"),
    "--verification": _text("verification"),
}

#: Commands that Python has, by what is called; of a bundle, where the first argument is one.
_CALLS = {
    "pack": "edgepack.pack",
    "check": "edgepack.check",
    "quantize": "edgepack.quantize",
    "compare": "edgepack.compare",
    "export": "edgepack.export",
    "sign": "edgepack.sign",
    "update": "edgepack.update",
    "new": "edgepack.new_project",
    "release": "edgepack.make_release",
    "verify": "bundle.verify",
    "bench": "bundle.bench",
    "report": "bundle.report",
}
_ONE = "|".join(
    rf"--{name[2:]}(?![\w-])(?:[ =]{option.value})?" if option.value else rf"--{name[2:]}(?![\w-])"
    for name, option in OPTIONS.items()
)
_PATTERN = re.compile(
    r"`(?P<code>[^`\n]+)`|(?P<indent>^ +)(?P<line>edgepack .+)$"
    rf"|(?<![\w-])(?P<options>(?:{_ONE})(?: (?:{_ONE}))*)",
    re.MULTILINE,
)


def _replaced(match: re.Match[str]) -> str:
    if (code := match["code"]) is not None:
        return f"`{_call(code) or code}`"
    if (line := match["line"]) is not None:
        return match["indent"] + (_call(line) or line)
    parts = re.findall(_ONE, match["options"])
    found = [re.split("[ =]", part, maxsplit=1) for part in parts]
    if all(len(one) == 1 and OPTIONS[one[0]].value for one in found):
        return "`" + ", ".join(f"{OPTIONS[name].keyword}=" for (name,) in found) + "`"
    return _keywords([(one[0], _unquoted(one[1]) if len(one) > 1 else "") for one in found])


def _unquoted(value: str) -> str:
    try:
        return "".join(shlex.split(value))
    except ValueError:
        return value


def _keywords(given: Sequence[tuple[str, str]]) -> str:
    """Options as keyword arguments: several of a name are one."""
    together: dict[str, list[str]] = {}
    for name, value in given:
        together.setdefault(name, []).append(value)
    parts = []
    for name, values in together.items():
        option = OPTIONS[name]
        parts.append(f"{option.keyword}={option.python(values) if any(values) or not option.value else ''}")
    return ", ".join(parts)


def _call(command: str) -> str:
    """A command as a call; "" where Python has no such call."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    named = words[:1] == ["edgepack"]
    verb, rest = (words[1:2] or [""])[0] if named else words[0], words[2:] if named else words[1:]
    options = verb in OPTIONS
    if options:
        rest = words
    elif verb not in _CALLS or not (named or any(word in OPTIONS for word in rest)):
        return ""
    arguments, given = [], []
    while rest:
        word = rest.pop(0)
        if word in OPTIONS:
            given.append((word, rest.pop(0) if rest and OPTIONS[word].value else ""))
        elif not word.startswith("-"):  # --json prints, which Python does not
            arguments.append(word if word.isupper() or word == "..." else _quoted(word))
    keywords = _keywords(given)
    if options:
        return keywords
    called = _CALLS[verb]
    if called.startswith("bundle.") and arguments:
        first = arguments.pop(0)
        called = called if first.isupper() else f"edgepack.Bundle({first}){called.removeprefix('bundle')}"
    return f"{called}({', '.join([*arguments, *([keywords] if keywords else [])])})"
