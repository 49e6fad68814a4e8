"""A command's ``--help`` in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

__all__ = ["MODEL_GROUPS", "GroupedCommand"]

#: Parameters of commands that compile a model, by what they are about; those that are used most come first.
MODEL_GROUPS: Mapping[str, Sequence[str]] = {
    "Most used": (
        *("device", "output", "shapes", "dims", "optimize", "params", "toolchain", "formats", "name"),
        "force",
    ),
    "Model": (
        "const",
        "maxima",
        "set_batch",
        "cut_inputs",
        "cut_outputs",
        "custom",
        "inputs",
        "expected",
        "seed",
    ),
    "Device": ("sdk",),
    "Speed": ("tuned", "opt_level", "precision", "strict_math", "strict_speed"),
    "Size": ("weights", "ram_budget"),
    "Quantising": (
        *("quantize", "calibrate", "dynamic", "method", "percentile", "symmetric", "exclude", "min_sqnr"),
        *("accuracy", "min_accuracy", "max_drop", "reduce_range", "activation_tables", "like"),
        *("bias_correction", "samples"),
    ),
    "Output": (
        *("params_key", "package_name", "package_version", "summary", "license", "authors", "homepage"),
        *("sign_key", "keep_stages", "as_json", "quiet", "verbose"),
    ),
    "Limits": ("timeout", "max_trips", "max_nodes", "max_constant_bytes", "no_cache"),
}


class GroupedCommand(click.Command):
    """A command whose options are printed by :data:`MODEL_GROUPS`, and what is in none of them at the end.

    It answers to ``-h`` too when it is called without the group of all commands: click keeps the option from
    the first call, with the names that it had there.
    """

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes a section for each group of which this command has an option."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        for title, names in MODEL_GROUPS.items():
            rows = [record for name in names if (record := records.pop(name, None)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        rest = [record for record in records.values() if record is not None]
        if rest:
            with formatter.section("Other"):
                formatter.write_dl(rest)
