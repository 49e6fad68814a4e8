"""Renders the templates of a bundle, with filters for people and for JavaScript."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from edgepack.render import templates
from edgepack.render.formatting import human_bytes, human_count, shape_text
from edgepack.render.javascript import js_array, js_key, js_member

__all__ = ["render"]


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template of ``templates/`` (``bundle/README.md.j2``), with ``values``."""
    return templates.render(template, values, _FILTERS)


def _cell(text: str) -> str:
    """A name as it may stand in a table's cell; ONNX allows any text."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "bytes": human_bytes,
    "count": human_count,
    "shape": shape_text,
    "product": prod,
    "shell": shlex.quote,
    "cell": _cell,
    "js_array": js_array,
    "js_key": js_key,
    "js_member": js_member,
}
