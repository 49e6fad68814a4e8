"""Renders templates; a name that a template misspells is an error, never an empty string."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from edgepack.resources import TEMPLATES

__all__ = ["render"]


def render(
    template: str, values: Mapping[str, Any], filters: Mapping[str, Callable[..., Any]] | None = None
) -> str:
    """The text of a template of ``templates/`` (``model/model.c.j2``), with ``values``."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # nothing that is rendered is HTML
    )
    environment.filters |= filters or {}
    return environment.get_template(template).render(**values)
