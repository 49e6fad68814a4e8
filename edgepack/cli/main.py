"""The ``edgepack`` program: finds the command, runs it, and turns what it raises into a sentence and an
exit code."""

from __future__ import annotations

import importlib
import io
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TextIO

import click
from click.shell_completion import CompletionItem

from edgepack.cli.output import Settings, hint_lines, say, settings_of
from edgepack.cli.signals import run_cleanly
from edgepack.cli.streams import with_safe_streams
from edgepack.errors import EdgepackError, EdgepackWarning
from edgepack.text.printable import printable
from edgepack.text.spelling import at_the_command_line
from edgepack.version import __version__

__all__ = ["cli", "main"]

#: Commands, in the order of --help: the module of edgepack.cli that has it, and its one line. A module is
#: imported
#: only when its command is asked for; ``command`` in it is the click command.
COMMANDS = {
    "pack": "Compile a model into a bundle for a device.",
    "check": "Say what of a model would be compiled, refused or slow, without compiling it.",
    "quantize": "Make a quantised model (int8) of a float one.",
    "compare": "Compare two models or bundles on the same inputs, layer by layer.",
    "verify": "Run a bundle's own program on its recorded data and compare.",
    "tune": "Measure schedules of kernels on a device, and keep the faster ones.",
    "bench": "Measure a bundle: latency, memory, load time.",
    "new": "Write a project file, for release.",
    "release": "Build what a project file describes: models for devices, as packages.",
    "check-release": "Check a release: sums, signature, manifests, packages; run what can run here.",
    "export": "Make packages of a bundle: archives, and what package managers install.",
    "update": "Make new params for a bundle that is in use, from a retrained model.",
    "report": "Write a page about a bundle: memory over time, work, times, kernels, errors.",
    "sign": "Sign a bundle or a release, as minisign or cosign do.",
    "inspect": "Show what a bundle or a model file holds.",
    "stages": "Show what a model becomes on its way to a device: graph, kernels, machine code.",
    "devices": "List the devices, or show one.",
    "toolchains": "List the toolchains, or show one.",
    "cache": "Show what the cache folder holds, and make it smaller.",
    "completion": "Print what makes a shell complete commands, options and names.",
    "doctor": "Say what is missing on this machine, and how to get it.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"edgepack.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command. A broken pipe is that of a program which has ended: click would leave in
        silence."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            from edgepack.system.boundary import internal_error

            raise internal_error(error, f"command: {ctx.invoked_subcommand}") from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands' names, without importing them all, and the options."""
        named = [(name, text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=text) for name, text in named]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            also = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{also}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="edgepack")
@click.option("-q", "--quiet", is_flag=True, help="Print results only, no progress.")
@click.option("-v", "--verbose", is_flag=True, help="Print more; with an error, its Python traceback.")
@click.pass_context
def cli(ctx: click.Context, quiet: bool, verbose: bool) -> None:
    """Compile a trained model ahead of time into a small, fast, verified bundle for a device.

    \b
    Exit codes: 0 done; 1 the thing asked about failed (a mismatch, a check); 2 wrong usage or configuration;
    3 the model cannot be compiled; 4 a toolchain is missing or failed; 5 an internal error, with a saved log;
    130 and 143 after Ctrl-C and SIGTERM, with nothing half made left. A reader that leaves (| head) changes
    none of these; results that could not be printed, for the disk is full, are 2.
    """
    settings = settings_of(ctx)
    settings.quiet |= quiet
    settings.verbose |= verbose


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        argv: arguments without the program's name; default ``sys.argv``.

    Returns:
        the exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    return with_safe_streams(lambda: run_cleanly(lambda: _run(arguments)))


def _run(arguments: list[str]) -> int:
    settings = Settings()
    with warnings.catch_warnings(), at_the_command_line():
        warnings.simplefilter("always", EdgepackWarning)
        warnings.showwarning = _show_warning
        return _answer(arguments, settings)


def _answer(arguments: list[str], settings: Settings) -> int:
    try:
        result = cli.main(args=arguments, prog_name="edgepack", standalone_mode=False, obj=settings)
        return result if isinstance(result, int) else 0
    except EdgepackError as error:
        _report(error, settings)
        return error.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue(), end="", err=True)
        return 2
    except click.Abort:  # click's for KeyboardInterrupt
        raise KeyboardInterrupt from None
    except Exception as error:
        from edgepack.system.boundary import translated

        said = translated(error, f"arguments: {arguments}")
        said.__cause__ = error
        _report(said, settings)
        return said.exit_code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del file
    if issubclass(category, EdgepackWarning):
        text = f"edgepack: warning: {printable(str(message))}\n"
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    say(text, end="", err=True)


def _report(error: EdgepackError, settings: Settings) -> None:
    lines = [f"edgepack: error: {printable(error.message)}"]
    lines += [f"  | {line}" for line in error.detail.strip().splitlines()]
    if error.hint:
        lines.append(f"  hint: {hint_lines(error.hint)}")
    say("\n".join(lines), err=True)
    if settings.verbose:
        say("".join(traceback.format_exception(error)), end="", err=True)
