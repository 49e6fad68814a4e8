"""The options of ``torch.compile(model, backend="edgepack", options={...})``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edgepack.config.option_checks import check_opt_level, check_options, check_whole
from edgepack.config.tuned import read_all_tuned
from edgepack.errors import ConfigError
from edgepack.plan.opt_level import ALL
from edgepack.torch.scheduler import check_scheduler, no_trials

__all__ = ["CompileOptions", "compile_options"]


@dataclass(frozen=True)
class CompileOptions:
    """What ``options`` may hold.

    Attributes:
        threads: how many compute in a run; default ``torch.get_num_threads()`` when a subgraph is compiled.
        shapes: how many times a subgraph is compiled at most, once for each sizes of its inputs (and for each
            state of its parameters); with further ones it stays eager.
        scheduler: who chooses the kernels' schedules: ``rules``, which the environment's ``TVM_SCHEDULER``
            cannot change, or ``tuned``, what was measured. Default: what ``TVM_SCHEDULER`` says.
        tuned: files of schedules that were measured on this kind of CPU, for ``tuned``: one, or a list.
        opt_level: how much is done for speed, 0 to 3, as for :func:`edgepack.pack`.
        precision, weights: as for :func:`edgepack.pack`.
    """

    threads: int | None = None
    shapes: int = 8
    scheduler: str | None = None
    tuned: tuple[str, ...] = ()
    opt_level: int = 3
    precision: str | None = None
    weights: str | None = None

    def packing(self) -> dict[str, Any]:
        """What is given to :func:`edgepack.pack` beside tuned schedules."""
        level = {} if self.opt_level == ALL else {"opt_level": self.opt_level}
        return {**level, **self.of_numbers()}

    def of_numbers(self) -> dict[str, Any]:
        """Those of what is given to :func:`edgepack.pack` that this machine may not have, and that round."""
        chosen = {"precision": self.precision, "weights": self.weights}
        return {name: value for name, value in chosen.items() if value is not None}


def compile_options(given: Any, mode: str | None = None) -> CompileOptions:
    """The options of a call of ``torch.compile``.

    Args:
        given: a mapping of names to values, or None.
        mode: of ``torch.compile``, whose modes are inductor's.

    Raises:
        ConfigError: there is no such option, a value is of a wrong type, a mode is given, or a file of tuned
            schedules cannot be read.
    """
    if mode not in (None, "default"):
        raise ConfigError(
            f"The backend edgepack has no mode {mode!r}: modes of torch.compile are inductor's.",
            hint='Leave out mode; options={"threads": 2} chooses threads.',
        )
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"options of torch.compile is a dict, not a value of type {type(given).__name__}.")
    values = dict(given or {})
    no_trials(values.pop("trials", None))
    names = [field.name for field in fields(CompileOptions)]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            raise ConfigError(
                f"The backend edgepack of torch.compile has no option {name!r}.",
                hint=f"Did you mean {near[0]}?" if near else f"It has {', '.join(sorted(names))}.",
            )
    check_whole("threads", values.get("threads"), least=1)
    check_whole("shapes", values.get("shapes", 8), least=1)
    values["tuned"] = _files(values.get("tuned"))
    check_scheduler(values.get("scheduler"), values["tuned"])
    read_all_tuned(map(Path, values["tuned"]))
    check_opt_level(values.get("opt_level", ALL))
    if values.get("shapes", 8) is None:
        raise ConfigError("shapes is a whole number, not None.", hint="Give 1 or more.")
    check_options({name: values.get(name) for name in ("precision", "weights")})
    return CompileOptions(**values)


def _files(given: Any) -> tuple[str, ...]:
    """The files of tuned schedules, of one path or several."""
    files = [given] if isinstance(given, str | os.PathLike) else given
    check_options({"tuned": files})
    return tuple(map(str, map(os.fspath, files or ())))
