"""``edgepack completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from edgepack.cli.output import Settings, say, verbosity_options

__all__ = ["command"]

#: By which the shell asks the program; click looks for it where it starts.
_VARIABLE = "_EDGEPACK_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@verbosity_options
def command(shell: str, settings: Settings) -> None:
    """Print what makes SHELL complete edgepack's commands, options, devices, toolchains, formats and files.

    \b
    bash, in ~/.bashrc:    eval "$(edgepack completion bash)"
    zsh, in ~/.zshrc:      eval "$(edgepack completion zsh)"
    fish:                  edgepack completion fish > ~/.config/fish/completions/edgepack.fish
    """
    from edgepack.cli.main import cli

    del settings
    known = get_completion_class(shell)
    assert known is not None, "click has these"
    made = known(cli, {}, "edgepack", _VARIABLE)
    # Not `made.source()`, which starts bash to ask for its version.
    say(made.source_template % made.source_vars())
