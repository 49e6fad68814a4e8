"""The tables of ``edgepack/runtime.h``: its version, statuses and dtypes, read from the header."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from edgepack.resources import TEMPLATES

__all__ = ["Header", "Status", "header"]

HEADER = TEMPLATES / "runtime" / "edgepack" / "runtime.h"


class Status(NamedTuple):
    """A status code's name and its sentence."""

    name: str
    text: str


class Header(NamedTuple):
    """The tables of runtime.h."""

    abi_version: int
    magic: int
    statuses: dict[int, Status]
    dtypes: dict[int, str]


@cache
def header() -> Header:
    """The tables of the runtime.h that this edgepack ships."""
    text = HEADER.read_text(encoding="utf-8")
    version = re.search(r"#define EP_ABI_VERSION (\d+)u", text)
    magic = re.search(r"#define EP_DESCRIPTOR_MAGIC UINT64_C\((0x[0-9a-f]+)\)", text)
    assert version and magic, f"{HEADER} lacks its constants"
    statuses = {
        int(value): Status(name, sentence)
        for name, value, sentence in re.findall(r'X\((EP_\w+), (\d+), "([^"]*)"\)', text)
    }
    dtypes = {int(value): name for value, name in re.findall(r'X\(EP_\w+, (\d+), "(\w+)", \d+\)', text)}
    return Header(int(version[1]), int(magic[1], 16), statuses, dtypes)
