"""Renders the templates of ``templates/`` (Jinja), with filters for people, Markdown, shells, CMake and
JavaScript.

A name that a template misspells is an error, never an empty string.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from math import prod

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from edgepack.render.formatting import human_bytes, human_count, shape_text
from edgepack.render.javascript import js_array, js_key, js_member
from edgepack.render.markdown import code, code_cell, markdown
from edgepack.resources import TEMPLATES
from edgepack.text.printable import printable

__all__ = ["render", "render_html"]


def render(template: str, values: Mapping[str, object]) -> str:
    """The text of a template.

    Args:
        template: its path in ``templates/``, such as ``model/model.c.j2``.
        values: what it may name.

    Raises:
        jinja2.UndefinedError: it names something else.
    """
    return _environment(escapes=False).get_template(template).render(**values)


def render_html(template: str, values: Mapping[str, object]) -> str:
    """Renders HTML: what :func:`render` does, with the characters that mean something there escaped."""
    return _environment(escapes=True).get_template(template).render(**values)


def _cmake(text: str) -> str:
    """What stands between the quotes of one of CMake's arguments."""
    return re.sub(r'([\\"$])', r"\\\1", printable(text))


def _shell(text: str) -> str:
    """A word of a command line; what a terminal does not show as itself in the spelling of bash and zsh."""
    if text.isprintable():
        return shlex.quote(text)
    spelled = (
        f"\\{one}" if one in "\\'" else one if one.isprintable() else f"\\U{ord(one):08x}" for one in text
    )
    return f"$'{''.join(spelled)}'"


_FILTERS: Mapping[str, Callable[..., object]] = {
    "bytes": human_bytes,
    "count": human_count,
    "shape": shape_text,
    "product": prod,
    "shell": _shell,
    "cmake": _cmake,
    "code": code,
    "code_cell": code_cell,
    "markdown": markdown,
    "js_array": js_array,
    "js_key": js_key,
    "js_member": js_member,
    "printable": printable,
}


@cache
def _environment(*, escapes: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=escapes,  # all but reports are C, JSON, Markdown, ...
    )
    environment.filters |= _FILTERS
    return environment
