"""What is typed behind options that have a name and a value, or several values, as Python's own."""

from __future__ import annotations

from collections.abc import Sequence

import click

__all__ = ["constants", "dims", "maxima", "patterns", "shapes"]


def _pairs(what: str, values: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for value in values:
        # A tensor's name may hold an equals sign; what stands behind the last one cannot.
        name, separator, rest = value.rpartition("=")
        if not separator or not name or not rest:
            raise click.BadParameter(f"{value!r} is not of the form {what}.")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice.")
        pairs[name] = rest
    return pairs


def shapes(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input, of ``INPUT=1,3,224,224`` each."""
    del ctx, param
    found = {}
    for name, text in _pairs("INPUT=1,3,224,224", values).items():
        try:
            found[name] = tuple(int(part) for part in text.split(",")) if text != "()" else ()
        except ValueError:
            raise click.BadParameter(f"{text!r} is no shape: write whole numbers with commas.") from None
        if any(extent < 0 for extent in found[name]):
            raise click.BadParameter(f"{text!r} has a negative extent.")
    return found


def dims(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    """Sizes by name, of ``SYMBOL=1`` each."""
    del ctx
    pairs = _pairs(param.metavar or "SYMBOL=1", values)
    for text in pairs.values():
        if not text.isdecimal():
            raise click.BadParameter(f"{text!r} is not a whole number.")
    return {name: int(text) for name, text in pairs.items()}


def constants(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Numbers by input, of ``INPUT=16000`` each."""
    del ctx, param
    found: dict[str, tuple[float, ...]] = {}
    for name, text in _pairs("INPUT=16000", values).items():
        try:
            found[name] = tuple(_number(part) for part in text.split(","))
        except ValueError:
            raise click.BadParameter(f"{text!r} is no number, nor several with commas.") from None
    return found


def _number(text: str) -> float:
    plain = text.strip().lower()
    if plain in {"true", "false"}:
        return plain == "true"
    try:
        return int(plain)
    except ValueError:
        return float(plain)


def maxima(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    """Sizes above 0 by name."""
    sizes = dims(ctx, param, values)
    if 0 in sizes.values():
        raise click.BadParameter("there has to be room for 1 entry at least.")
    return sizes


def patterns(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Patterns, of which one value may hold several."""
    del ctx, param
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
