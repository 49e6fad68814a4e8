"""The renderer of templates: what is misspelt is an error, and names stay whole in tables and shells."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from jinja2 import UndefinedError

from edgepack.render import templates
from edgepack.render.templates import render


def test_a_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="compiler"):
        render("firmware/gcc-arm-none-eabi.cmake.j2", {})


def test_every_template_is_one_that_the_renderer_can_read() -> None:
    """Its syntax is right, and the filters that it uses are there."""
    environment = templates._environment(escapes=False)
    names = environment.list_templates(extensions=["j2"])
    assert "model/model.c.j2" in names
    for name in names:
        environment.get_template(name)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
@pytest.mark.parametrize("name", ["plain", "it's $HOME", "a\nb\t\x1b[2J\u202e'\\ \"é\x9b"])
def test_a_word_of_a_command_is_the_name_and_acts_on_no_terminal(name: str) -> None:
    word = templates._environment(escapes=False).from_string("{{ name | shell }}").render(name=name)
    assert word.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True
    )
    assert done.stdout.decode() == name
