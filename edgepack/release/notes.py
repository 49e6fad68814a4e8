"""RELEASE.md: what a release holds, for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgepack.release.index import MEASUREMENTS, SUMS, Index, UnitRecord
from edgepack.render.formatting import human_bytes
from edgepack.render.markdown import code_cell, markdown

__all__ = ["budget_text", "render_notes"]

#: What may stand between the signs of a link.
_URL = re.compile(r"https?://[!-;=?-~]+")
#: Digits of a digest that are shown.
_DIGITS = 12
_ALIGN = {True: "---:", False: "---"}


def render_notes(index: Index) -> str:
    """The file's text, Markdown. Names and texts of others cannot break out of it."""
    parts = [f"# {markdown(index.name)} {markdown(index.version)}", _about(index)]
    if index.only:
        parts.append(f"This is a part of the project: {', '.join(map(markdown, index.only))}.")
    parts += ["## Sizes and memory", _sizes(index), "## Verified", _verified(index)]
    if budgets := _budgets(index):
        parts += ["## Budgets", budgets]
    if index.against:
        parts += [f"## Changes since {markdown(index.against)}", _differences(index), _changes(index)]
    parts += ["## Files", _files(index)]
    if warnings := _warnings(index):
        parts += ["## Warnings", warnings]
    parts += [
        "## How to check it",
        f"`sha256sum --check {SUMS}` compares all files, `edgepack check-release .` unpacks the packages too "
        f"and runs the programs again that can run where you are. `{MEASUREMENTS}`, where there is one, "
        f"holds measured latencies: they differ from run to run, so they are in no sum and not signed.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    lines = [header, [_ALIGN[index in right] for index in range(len(header))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _about(index: Index) -> str:
    lines = [f"Made by edgepack {markdown(index.edgepack)} with {_tools(index)}."]
    if index.license:
        lines.append(f"License: {markdown(index.license)}.")
    if index.authors:
        lines.append(f"By {', '.join(map(markdown, index.authors))}.")
    if index.homepage:
        link = f"<{index.homepage}>" if _URL.fullmatch(index.homepage) else markdown(index.homepage)
        lines.append(link)
    return "\n".join(lines)


def _tools(index: Index) -> str:
    return ", ".join(f"{markdown(name)} {markdown(version)}" for name, version in sorted(index.tools.items()))


def _bytes(value: int | None) -> str:
    return "" if value is None else human_bytes(value)


def _sizes(index: Index) -> str:
    firmware = any(unit.sizes.flash is not None for unit in index.units)
    header = ["model", "device", "code", "params", "arena", *(("flash", "RAM") if firmware else ()), "bundle"]
    rows = []
    for unit in index.units:
        sizes = unit.sizes
        values = [sizes.text, sizes.params, sizes.arena]
        values += [sizes.flash, sizes.ram] if firmware else []
        rows.append([markdown(unit.model), markdown(unit.device), *map(_bytes, [*values, sizes.bundle])])
    return _table(header, rows, right=range(2, len(header)))


def _verified(index: Index) -> str:
    """How each unit's program was run: it compares what it computes with recorded outputs."""
    rows = []
    for unit in index.units:
        found = unit.verified
        how = f"ok, by {found.runner} against {found.reference}" if found.runner else "not run here"
        kinds = f" ({', '.join(found.variants)})" if found.variants else ""
        why = f"not run: {found.not_run}" if found.runner and found.not_run else found.not_run
        rows.append([markdown(unit.model), markdown(unit.device), markdown(how + kinds), markdown(why)])
    return _table(["model", "device", "its own program on recorded data", ""], rows)


def budget_text(unit: UnitRecord) -> list[tuple[str, str, str, str]]:
    """What, limit, value and verdict of each budget of a unit."""
    rows: list[tuple[str, str, str, str]] = []
    for one in unit.budgets:
        verdict = "not measured" if one.value is None else "kept" if one.kept else "BROKEN"
        rows.append((one.what, human_bytes(one.limit), _bytes(one.value), verdict))
    return rows


def _budgets(index: Index) -> str:
    rows = [
        [markdown(unit.model), markdown(unit.device), *row]
        for unit in index.units
        for row in budget_text(unit)
    ]
    return _table(["model", "device", "budget", "limit", "takes", ""], rows, right=(3, 4)) if rows else ""


def _differences(index: Index) -> str:
    """Which parts of which units are others, and whether who has the library needs another one."""
    rows, same = [], 0
    for unit in index.units:
        name = [markdown(unit.model), markdown(unit.device)]
        if unit.changes is None:
            rows.append([*name, "new", "", "", ""])
        elif not unit.differences:
            same += 1
        else:
            weights = next((one for one in unit.differences if one.what == "weights"), None)
            digests = (
                [code_cell(one[:_DIGITS]) for one in (weights.before, weights.after)] if weights else ["", ""]
            )
            rows.append([*name, ", ".join(one.what for one in unit.differences), *digests, _update(unit)])
    text = f"{same} unit{' is' if same == 1 else 's are'} made of the same parts." if same else ""
    header = ["model", "device", "changed", "weights before", "weights now", "new params alone"]
    return "\n\n".join(filter(None, [_table(header, rows) if rows else "", text]))


def _update(unit: UnitRecord) -> str:
    """Whether who has the library of the release before needs no other one."""
    if unit.update_refusal is None:
        return ""
    return (
        "`edgepack update` makes them" if not unit.update_refusal else f"no: {markdown(unit.update_refusal)}"
    )


def _changes(index: Index) -> str:
    """Sizes that are others, as far as they are shown."""
    rows = []
    for unit in index.units:
        name = [markdown(unit.model), markdown(unit.device)]
        for one in unit.changes or ():
            if human_bytes(one.before) != human_bytes(one.after):
                percent = f"{(one.after / one.before - 1) * 100:+.1f} %" if one.before else ""
                rows.append([*name, one.what, human_bytes(one.before), human_bytes(one.after), percent])
    if not rows:
        return "No size has changed by as much as is shown."
    return _table(["model", "device", "what", "before", "now", ""], rows, right=(3, 4, 5))


def _files(index: Index) -> str:
    rows = [[code_cell(f"{unit.bundle}/"), "bundle", human_bytes(unit.sizes.bundle)] for unit in index.units]
    every = [one for unit in index.units for one in unit.packages] + list(index.joint)
    rows += [[code_cell(one.path), markdown(one.format), human_bytes(one.nbytes)] for one in every]
    return _table(["file", "format", "size"], sorted(rows), right=(2,))


def _warnings(index: Index) -> str:
    lines = [f"- {markdown(unit.name)}: {markdown(text)}" for unit in index.units for text in unit.warnings]
    return "\n".join(lines)
