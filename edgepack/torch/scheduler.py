"""Who chooses the kernels' schedules: the option ``scheduler``, and ``TVM_SCHEDULER`` where it is not given.

PyTorch's own backend for TVM (``torch/_dynamo/backends/tvm.py``) reads the two in this order. Its tuners,
which measure while a model is compiled, do not exist here: as an option they are refused; in the environment,
which may be meant for another backend, they are said once, and edgepack's rules choose. ``tuned`` takes what
``edgepack tune`` measured before (docs/tuning.md).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from edgepack.errors import ConfigError

__all__ = ["ENVIRONMENT", "check_scheduler", "no_trials", "say_once"]

_LOG = logging.getLogger("edgepack.torch")
#: The variable that PyTorch's backend for TVM reads.
ENVIRONMENT = "TVM_SCHEDULER"
#: What edgepack has without files; ``default`` is TVM's word for it.
_RULES = ("rules", "default")
#: TVM's tuners.
_TUNERS = ("auto_scheduler", "meta_schedule")
_TUNE = "`edgepack tune MODEL --device host -o FILE.json` writes a file"
_GIVE = 'options={"scheduler": "tuned", "tuned": "FILE.json"} takes it'


def check_scheduler(chosen: Any, tuned: Sequence[str] = ()) -> None:
    """Raise ConfigError for a scheduler that there is not, or one that does not fit the files that are given.

    Args:
        chosen: the option; None for that of ``TVM_SCHEDULER``.
        tuned: files of tuned schedules.
    """
    where = "scheduler"
    if chosen is None:
        where, chosen = ENVIRONMENT, os.environ.get(ENVIRONMENT) or "rules"
        if chosen in _TUNERS:
            say_once(
                f"{ENVIRONMENT} is {chosen}, a tuner of TVM's that edgepack does not have: schedules are "
                "chosen by edgepack's rules"
            )
            chosen = "rules"
    if chosen == "tuned":
        if not tuned:
            raise ConfigError(
                f"{where} is 'tuned', and no file of tuned schedules is named.", hint=f"{_TUNE}; {_GIVE}."
            )
    elif chosen in _TUNERS:
        raise ConfigError(
            f"{where} is {chosen!r}, a tuner of TVM's that edgepack does not have.",
            hint=f"{_TUNE}; {_GIVE}. Without, schedules are chosen by edgepack's rules and cost models.",
        )
    elif chosen not in _RULES:
        raise ConfigError(
            f"{where} is {chosen!r}, which is no scheduler.", hint="There are rules, the default, and tuned."
        )
    elif tuned:
        raise ConfigError(
            f"tuned names {', '.join(tuned)}, and schedules are chosen by edgepack's rules.",
            hint='Add "scheduler": "tuned", or leave out tuned.',
        )


def no_trials(given: Any) -> None:
    """Raise ConfigError where a number of trials is given: nothing is tried while a model is compiled."""
    if given is not None:
        raise ConfigError(
            "trials is for tuning, which is not done while a model is compiled.",
            hint=f"Leave out trials. {_TUNE}; {_GIVE}.",
        )


@cache
def say_once(text: str) -> None:
    """Log a warning, once in a process."""
    _LOG.warning("%s", text)
