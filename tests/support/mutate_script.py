"""Damages TorchScript archives: code, pickles, storages, the zip around them. All follows from a seed."""

from __future__ import annotations

import pickletools
import random
import re
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.support.script_archives import archive

__all__ = ["damaged_archive"]

_TOKENS = re.compile(r'"[^"\n]*"|\w+|\n *|[^\w\s]')
_NUMBERS = "0 1 -1 2 7 64 65536 2147483648 1099511627776 9223372036854775807 1.5 1e400 inf 2j"
_WORDS = """
torch ops aten prim x self input y None True Tensor int float str Optional List Dict Tuple Any M c0 c1
CONSTANTS add mul zeros cat select reshape as_strided from_file save append len size dtype annotate
unchecked_cast range uninitialized getattr isinstance fork __new__ __init__ forward __torch__ stack sum
index_select repeat expand floordiv pow _set_item Delete format ones arange linear bmm conv2d embedding pad
gather scatter if else while for in def class return pass with as lambda import
"""
_SIGNS = (*"()[]{}:,.=+-*/%@!#\"'\\;~^&|<>\t\r\f\0", "\xe9", "\u200b", "'" * 3, "**", "->", ":=", "# type:")
_STATEMENTS = (
    "torch. from_file('p')", "y = torch.zeros([100000, 100000])", "while True:\n      pass", "x = (x, x)",
    "y = torch.add(x, x)", "for i in range(100000000):\n      x = torch.add(x, 1)", "self.training = x",
    "y = unchecked_cast(__torch__.M, x)", "ops.prim.RaiseException('x')", "y = uninitialized(Tensor)",
    "x = torch.reshape(x, [-1, 0])", "x = torch.cat([x, x, x], 0)", "y = annotate(List[Tensor], [x])",
)  # fmt: skip
_INTEGERS = (0, 1, -1, 2, 255, 256, 65536, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_GLOBALS = (
    "os system", "torch device", "torch FloatStorage", "torch QInt8Storage", "collections OrderedDict",
    "__torch__ M",
    "torch.jit._pickle restore_type_tag", "torch.jit._pickle build_intlist", "__torch__.inner Box",
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_qtensor", "torch._utils _rebuild_sparse_tensor",
    "torch.distributed.rpc rref", "__torch__.torch.classes.quantized Conv2dPackedParamsBase",
    "__main__ TensorID",
)  # fmt: skip


def damaged_archive(good: Mapping[str, bytes], other: Mapping[str, bytes], seed: int, path: Path) -> Path:
    """Writes an archive after one to three accidents.

    Args:
        other: entries of another archive, which may get into this one.
    """
    draw = random.Random(seed)
    entries = dict(good)
    kind = draw.random()
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if kind < 0.5:
            name = draw.choice([name for name in entries if name.endswith(".py")] or list(entries))
            entries[name] = _code(entries[name], draw)
        elif kind < 0.8:
            name = draw.choice(("data.pkl", "data.pkl", "data.pkl", "constants.pkl"))
            entries[name] = _pickle(entries.get(name, b""), draw)
        else:
            _entry(entries, other, draw)
    archive(path, entries)
    if kind > 0.92:
        data = path.read_bytes()
        for _ in range(draw.choice((1, 1, 2, 5))):
            data = _bytes(data, draw)
        path.write_bytes(data)
    return path


def _code(data: bytes, draw: random.Random) -> bytes:
    """Of tokens, lines, or bytes."""
    text = data.decode("utf-8", "replace")
    what = draw.random()
    if what < 0.25:
        lines = text.split("\n")
        at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(to, lines[at])
            case 2:
                lines[at], lines[to] = lines[to], lines[at]
            case _:
                lines[at:at] = lines[min(at, to) : max(at, to)]
        return "\n".join(lines).encode()
    if what < 0.4:
        places = [found.end() for found in re.finditer(r"\n    (?=return|\w+ =)", text)]
        if places:
            at = draw.choice(places)
            return f"{text[:at]}{draw.choice(_STATEMENTS)}\n    {text[at:]}".encode()
    if what < 0.45:
        return _bytes(data, draw)
    found = list(_TOKENS.finditer(text))
    if not found:
        return data
    one, source = draw.choice(found), draw.choice(found)
    if what < 0.6:
        new = source.group()
    elif what < 0.7:
        new = draw.choice(_SIGNS)
    else:
        number = one.group()[0].isdigit() or draw.random() < 0.2
        new = draw.choice((_NUMBERS if number else _WORDS).split())
    end = one.start() if draw.random() < 0.15 else one.end()
    return f"{text[: one.start()]}{new}{text[end:]}".encode("utf-8", "replace")


def _pickle(data: bytes, draw: random.Random) -> bytes:
    """Of opcodes: one gone, doubled, moved, or with another argument; or of bytes."""
    try:
        starts = [at for _, _, at in pickletools.genops(data)]
    except ValueError:
        return _bytes(data, draw)
    if draw.random() < 0.15:
        return _bytes(data, draw)
    pieces = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    at, to = draw.randrange(1, len(pieces)), draw.randrange(1, len(pieces))
    match draw.randrange(6):
        case 0:
            del pieces[at]
        case 1:
            pieces.insert(to, pieces[at])
        case 2:
            pieces[at], pieces[to] = pieces[to], pieces[at]
        case 3:
            pieces[at] = draw.choice(
                (b"N", b"\x88", b")", b"}", b"]", b"(", b"t", b"R", b"b", b"u", b"e", b"0", b"Q")
            )
        case _:
            pieces[at] = _argument(pieces[at], draw)
    return b"".join(pieces)


def _argument(piece: bytes, draw: random.Random) -> bytes:
    match piece[:1]:
        case b"K" | b"M" | b"J" | b"\x8a":
            return b"\x8a\x08" + struct.pack("<q", draw.choice(_INTEGERS))
        case b"c":
            return b"c" + draw.choice(_GLOBALS).replace(" ", "\n").encode() + b"\n"
        case b"X":
            text = draw.choice(
                (b"", b"w", b"x" * 5000, b"List[int]", b"Dict[str, Tensor]", b"0", b"cuda:7", b"\xff")
            )
            return b"X" + struct.pack("<I", len(text)) + text
        case b"j" | b"r" | b"h" | b"q":
            return b"j" + struct.pack("<I", draw.choice((0, 1, 2, 5, 2**32 - 1)))
    return piece


def _entry(entries: dict[str, bytes], other: Mapping[str, bytes], draw: random.Random) -> None:
    """An entry gone, renamed, taken from another archive, shorter or longer."""
    name = draw.choice(list(entries))
    match draw.randrange(6):
        case 0:
            del entries[name]
        case 1:
            target = draw.choice(
                ("data/7", "constants/0", "code/__torch__/x.py", "../x", "extra/y", "data.pkl", "a/b")
            )
            entries[target] = entries.pop(name)
        case 2:
            taken = draw.choice(list(other))
            entries[taken] = other[taken]
        case 3:
            entries[name] = entries[name][: draw.randrange(len(entries[name]) + 1)]
        case 4:
            entries[name] = entries[name] * draw.choice((2, 3, 1000))
        case _:
            entries[name] = _bytes(entries[name], draw)
    if not entries:
        entries["data.pkl"] = b""


def _bytes(data: bytes, draw: random.Random) -> bytes:
    at, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 8, 40))
    match draw.randrange(5):
        case 0:  # a bit
            return data[:at] + bytes(b ^ (1 << draw.randrange(8)) for b in data[at : at + 1]) + data[at + 1 :]
        case 1:
            return data[:at] + draw.randbytes(length) + data[at + length :]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + data[at + length :]
        case _:
            return data[:at] + data[max(0, at - length) :]
