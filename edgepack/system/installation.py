"""Where the edgepack that runs was installed from, for what says how to install more of it.

The name edgepack on the public index is not this project's, so nothing that edgepack prints or writes has pip
look for it there: pip gets the checkout, the wheel or the repository that this edgepack is from.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

__all__ = ["Origin", "extra_command", "origin"]

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Origin:
    """Where an edgepack is from.

    Attributes:
        kind: ``checkout``: a folder with its sources, which run in place or were installed from there;
            ``wheel``: a file; ``url``: what pip fetches, such as ``git+https://host/edgepack@commit``.
        place: the path, or the address.
        editable: whether the sources of the checkout run in place.
    """

    kind: Literal["checkout", "wheel", "url"]
    place: str
    editable: bool = False


def origin() -> Origin | None:
    """Where this edgepack is from; None if that is not known (an index served it), or is there no longer."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "templates").is_dir():
        return Origin("checkout", str(checkout), editable=True)
    from importlib import metadata

    try:
        record = metadata.distribution("edgepack").read_text("direct_url.json")
        return _from_record(json.loads(record or "{}"))
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return None


def _from_record(record: dict[str, Any]) -> Origin | None:
    """What pip wrote when it installed (PEP 610)."""
    address = str(record.get("url", ""))
    if "vcs_info" in record:
        vcs = record["vcs_info"]
        return Origin("url", f"{vcs['vcs']}+{address}@{vcs['commit_id']}")
    parts = urlsplit(address)
    if parts.scheme == "file":
        path = Path(url2pathname(parts.path))
        if path.is_dir():
            return Origin("checkout", str(path))
        return Origin("wheel", str(path)) if path.is_file() else None
    return Origin("url", address) if address else None


def extra_command(extra: str) -> str:
    """The command that installs what an extra of edgepack (``torch``) needs.

    From where this edgepack is; where that is not known it names the extra's packages, which the public index
    has under these names.
    """
    place = origin()
    if place is None:
        wanted = _packages(extra)
    elif place.kind == "url":
        wanted = [f"edgepack[{extra}] @ {place.place}"]
    else:
        wanted = [*(["-e"] if place.editable else []), f"{place.place}[{extra}]"]
    edgepack_with_extra = " ".join(map(_quoted, wanted))
    return f"python -m pip install {edgepack_with_extra}"


def _packages(extra: str) -> list[str]:
    """Requirements of an extra."""
    from importlib import metadata

    try:
        listed = metadata.requires("edgepack") or []
    except metadata.PackageNotFoundError:
        listed = []
    parts = (one.partition(";") for one in listed)
    marks = (f"extra == '{extra}'", f'extra == "{extra}"')
    return [name.strip() for name, _, marker in parts if any(mark in marker for mark in marks)]


def _quoted(word: str) -> str:
    if os.name == "nt":
        return word if word == "-e" else f'"{word}"'
    return shlex.quote(word)
