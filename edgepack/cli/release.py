"""``edgepack release``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from edgepack.cli.catalogue import note_alias
from edgepack.cli.options import json_option
from edgepack.cli.output import Settings, print_json, say, table, verbosity_options
from edgepack.cli.signals import leaving
from edgepack.release.planned import Planned
from edgepack.release.project import PROJECT_FILE
from edgepack.release.project_file import load_project
from edgepack.release.run import Release, ReleaseOptions, check_signing, plan_release
from edgepack.release.run import release as run
from edgepack.release.work import work_place
from edgepack.render.formatting import human_bytes, human_ms
from edgepack.text.printable import printable

__all__ = ["command"]


@click.command()
@click.argument("project", type=click.Path(path_type=Path), default=PROJECT_FILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="dist",
    show_default=True,
    help="The release's folder.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="MODEL@DEVICE",
    help="Release a part; a pattern (`net@linux-*`). Several times for several.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    help="Units that are built at once.  [default: one for each CPU]",
)
@click.option(
    "--dry-run", is_flag=True, help="Print the matrix, and what of it is to be built; write nothing."
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="RELEASE",
    help="Folder or release.json of a release to compare with.",
)
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="NAME",
    help="What builds the units: processes, dask, ...",
)
@click.option(
    "--scheduler", default="", metavar="ADDRESS", help="Of Dask, for --executor dask: tcp://10.0.0.1:8786."
)
@click.option(
    "--bench", is_flag=True, help="Measure what runs here at its own speed, into measurements.json."
)
@click.option(
    "--allow-same-version",
    is_flag=True,
    help="Do not warn where a model differs from the one that was released under this version.",
)
@click.option(
    "--unsigned", is_flag=True, help="Do not sign, though the project names a key: for checks that have none."
)
@json_option
@verbosity_options
def command(
    *,
    settings: Settings,
    project: Path,
    output: Path,
    only: Sequence[str],
    jobs: int | None,
    dry_run: bool,
    against: Path | None,
    executor: str,
    scheduler: str,
    bench: bool,
    allow_same_version: bool,
    unsigned: bool,
    as_json: bool,
) -> int:
    """Build what PROJECT (edgepack.yaml) describes: all its models for all their devices, as packages.

    What is up to date is not built again, and a release that was ended goes on where it stopped. The folder
    is replaced at once, when all is built. Exit code 1: something could not be built,
    or a budget is exceeded.
    """
    from edgepack.cli.release_display import display

    options = ReleaseOptions(
        tuple(only), jobs, against, executor, scheduler, bench, allow_same_version, unsigned
    )
    note_alias(settings, *load_project(project).project.devices)
    if dry_run:
        planned = plan_release(project, output.absolute(), options)
        if as_json:
            described = load_project(project).project
            head = {"name": described.name, "version": described.version}
            print_json({**head, "units": [_plain(one) for one in planned]})
        else:
            say(_matrix(planned))
        check_signing(project, options)
        return 1 if any(one.failure for one in planned) else 0
    with leaving(lambda: _kept(output)), display(settings) as show:
        made = run(project, output, options, show)
    for text in made.warnings:
        say(f"edgepack: warning: {printable(text)}", err=True)
    if as_json:
        print_json(_result(made))
    else:
        say(_summary(made, output, settings))
    return 0 if made.ok else 1


def _kept(output: Path) -> str:
    """What is left of a release that was ended."""
    place = work_place(output.absolute())
    return f"what was built is kept in {place}, and the next release goes on there" if place.is_dir() else ""


def _state(one: Planned) -> str:
    if one.failure is not None:
        return f"cannot be built: {one.failure.message}"
    if one.built is not None:
        return "up to date"
    return "build" if one.bundle is None else "make packages"


def _plain(one: Planned) -> dict[str, object]:
    unit = one.unit
    return {
        "model": unit.model,
        "device": unit.device,
        "formats": [*unit.formats, *unit.joint],
        "runner": one.runner,
        "not_run": one.not_run,
        "state": _state(one),
    }


def _matrix(planned: Sequence[Planned]) -> str:
    rows = [
        [
            one.unit.model,
            one.unit.device,
            ", ".join([*one.unit.formats, *one.unit.joint]),
            one.runner or one.not_run,
            _state(one),
        ]
        for one in planned
    ]
    return table(rows, header=["model", "device", "formats", "verified by", "state"])


def _result(made: Release) -> dict[str, object]:
    return {
        "ok": made.ok,
        "release": str(made.path),
        "changed": made.changed,
        "built": list(made.built),
        "failures": {name: asdict(failure) for name, failure in made.failures.items()},
        "broken_budgets": [{"unit": name, "what": what} for name, what in made.broken],
        "measured": None if made.measured is None else made.measured.model_dump(mode="json")["units"],
        "slower": [asdict(one) for one in made.slower],
        "warnings": list(made.warnings),
        "seconds": round(made.seconds, 3),
        "index": None if made.index is None else made.index.model_dump(mode="json"),
    }


def _summary(made: Release, output: Path, settings: Settings) -> str:
    if made.index is None:
        return _failed(made, settings)
    lines = []
    if not settings.quiet:
        rows = []
        for unit in made.index.units:
            sizes, found = unit.sizes, unit.verified
            values = [human_bytes(value) if value is not None else "" for value in (sizes.text, sizes.params)]
            how = f"ok, {found.runner}" if found.runner else f"not run: {found.not_run}"
            files = str(len(made.index.packages_of(unit)))
            rows.append([unit.model, unit.device, *values, human_bytes(sizes.arena), files, how])
        header = ["model", "device", "code", "params", "arena", "packages", "verified"]
        lines += [table(rows, header=header, right=[2, 3, 4, 5]), ""]
    for unit in made.index.units:
        for one in unit.budgets:
            if not one.kept and one.value is not None:
                text = f"{unit.name}: {one.what} is {human_bytes(one.value)}, more than its budget of "
                lines.append(printable(f"BUDGET: {text}{human_bytes(one.limit)}"))
    for slow in made.slower:
        allowed = f"{slow.limit:g} % above {human_ms(slow.before_ms)}"
        text = f"{slow.unit} takes {human_ms(slow.now_ms)}, more than {allowed}"
        lines.append(printable(f"BUDGET: {text}"))
    if made.measured is not None and not settings.quiet:
        rows = [
            [one.unit, human_ms(one.median_ms), human_ms(one.p90_ms), str(one.threads), one.runner]
            for one in made.measured.units
        ]
        header = ["measured", "median", "p90", "threads", "by"]
        lines += [table(rows, header=header, right=[1, 2, 3]) if rows else "Nothing could be measured.", ""]
    old = len(made.index.units) - len(made.built)
    built = f"{len(made.built)} built" + (f", {old} up to date" if old else "")
    what = built if made.changed else "up to date"
    lines.append(
        printable(f"{made.index.name} {made.index.version}: {output}, {what} ({made.seconds:.1f} s)")
    )
    return "\n".join(lines)


def _failed(made: Release, settings: Settings) -> str:
    rows = [[name, failure.message, failure.hint] for name, failure in made.failures.items()]
    lines = [table(rows, header=["failed", "why", "what to try"])]
    if settings.verbose:
        for name, failure in made.failures.items():
            if failure.detail:
                lines += ["", printable(f"{name}:"), *(f"  | {line}" for line in failure.detail.splitlines())]
    count = "1 unit" if len(made.failures) == 1 else f"{len(made.failures)} units"
    done = f"; what was built now is kept ({len(made.built)})" if made.built else ""
    lines += ["", f"{count} failed, so nothing was published{done}. --verbose prints what the tools said."]
    return "\n".join(lines)
