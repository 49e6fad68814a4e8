"""Renders the templates of a bundle; a name that a template misspells is an error, never an empty string."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import edgepack
from edgepack.bundle.javascript import js_array, js_key, js_member
from edgepack.bundle.text import human_bytes, human_count, shape_text

__all__ = ["TEMPLATES", "render"]

#: Where all templates are.
TEMPLATES = Path(edgepack.__file__).parent / "templates"


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template of ``templates/`` (``bundle/README.md.j2``), with ``values``."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # nothing that is rendered is HTML
    )
    environment.filters["bytes"] = human_bytes
    environment.filters["count"] = human_count
    environment.filters["shape"] = shape_text
    environment.filters["product"] = prod
    environment.filters["shell"] = shlex.quote
    environment.filters["cell"] = _cell
    environment.filters["js_array"] = js_array
    environment.filters["js_key"] = js_key
    environment.filters["js_member"] = js_member
    return environment.get_template(template).render(**values)


def _cell(text: str) -> str:
    """A name as it may stand in a table's cell; ONNX allows any text."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")
