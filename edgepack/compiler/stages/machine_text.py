"""LLVM's texts of an object file, kernel by kernel: its IR after all passes, and its assembly.

Both are of the module that the object file was written from, so they say what is linked. What is said for
debuggers and unwinders only (positions, variables, ``.cfi``) is left out; it emits no instruction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = ["split_assembly", "split_ir"]

#: Lines of assembly that emit nothing into the code: where a line of source begins, how to unwind.
_NOTES = re.compile(r"\s*\.(?:loc|cfi_\w+|file|seh_\w+)\b|\.?Ltmp\d+:$|\.?Lfunc_(?:begin|end)\d+:$")

#: What starts a part of a file of LLVM IR.
_GLOBAL = re.compile(r'(@"[^"]*"|@[\w.$-]+|![\w.]+|%"[^"]*"|%[\w.$-]+|\$[\w.$-]+) = |attributes (#\d+) = ')
_FUNCTION = re.compile(r'(?:define|declare)\b.*?(@"[^"]*"|@[\w.$-]+)\(')
#: What a part of it may name of the others.
_NAMED = re.compile(r'@"[^"]*"|@[\w.$-]+|#\d+|!\d+|%"[^"]*"|%[\w.$-]+|\$[\w.$-]+')

#: What LLVM IR says for debuggers.
_DEBUG_RECORD = re.compile(r"\s*#dbg_\w+\(|.*@llvm\.dbg\.")
_DEBUG_POSITION = re.compile(r",? !dbg !\d+")
#: Which accesses cannot alias, by names that TVM makes of addresses: no two runs have the same.
_ALIASES = re.compile(r", !tbaa !\d+")


def split_assembly(text: str, symbols: Collection[str]) -> dict[str, str]:
    """The part of a file of assembly that belongs to each function, with the constants that it reads. It can
    be assembled on its own.

    Args:
        text: as LLVM writes it, of any object format: a function with all that stands before it ends with an
            empty line.
        symbols: of the functions.

    Raises:
        KeyError: a function is not there.
    """
    found = {}
    for part in text.split("\n\n"):
        lines = part.strip("\n").split("\n")
        labels = {line.removesuffix(":").removeprefix("_") for line in lines if line.endswith(":")}
        labels |= {line.removesuffix(":") for line in lines if line.endswith(":")}
        for symbol in labels & set(symbols):
            kept = [line.rstrip() for line in lines if not _NOTES.match(line)]
            found[symbol] = "\n".join(line for line in kept if not _size(line)) + "\n"
    return {symbol: found[symbol] for symbol in symbols}


def _size(line: str) -> bool:
    """Whether a line says where a function ends, by a label that is not kept."""
    return bool(re.match(r"\s*\.size\s.*Lfunc_end", line))


def split_ir(text: str, symbols: Collection[str]) -> dict[str, str]:
    """The part of a module of LLVM IR that each function needs, a module of its own.

    Args:
        text: as LLVM writes it.
        symbols: of the functions.

    Raises:
        KeyError: a function is not there.
    """
    head, parts = _parts(text)
    return {symbol: _closure(f"@{symbol}", head, parts) for symbol in symbols}


def _parts(text: str) -> tuple[str, dict[str, str]]:
    """What stands at the top of a module, and its parts, by their names with the first letter that tells of
    which kind they are; in their order."""
    head, parts = [], {}
    lines = iter(text.splitlines())
    for line in lines:
        named = _FUNCTION.match(line) or _GLOBAL.match(line)
        if named is not None:
            name = next(group for group in named.groups() if group)
            parts[name] = "\n".join(_whole(line, lines))
        elif line.startswith(("target ", "source_filename")):
            head.append(line)
    return "\n".join(head), parts


def _whole(first: str, lines: Iterator[str]) -> Iterator[str]:
    """A part of a module with all its lines, without what is for debuggers."""
    yield _plain(first)
    if first.startswith("define") and not first.endswith("}"):
        for line in lines:
            if not _DEBUG_RECORD.match(line):
                yield _plain(line)
            if line == "}":
                return


def _plain(line: str) -> str:
    return _ALIASES.sub("", _DEBUG_POSITION.sub("", line))


def _closure(name: str, head: str, parts: Mapping[str, str]) -> str:
    """A part with all that it names; at the end attributes and metadata."""
    needed: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in parts and one not in needed:
            needed.add(one)
            waiting += _NAMED.findall(parts[one])
    ordered = [(one[0], part) for one, part in parts.items() if one in needed]
    short = [part for kind, part in ordered if kind in "!#"]  # metadata and attributes
    return "\n\n".join([head, *(part for kind, part in ordered if kind not in "!#"), *_lines(short)]) + "\n"


def _lines(parts: Sequence[str]) -> list[str]:
    """Parts of a line each, as one of several."""
    return ["\n".join(parts)] if parts else []
