"""Who chooses the kernels' schedules: the option ``scheduler``, and ``TVM_SCHEDULER`` where it is not given.

PyTorch's own backend for TVM (``torch/_dynamo/backends/tvm.py``) reads the two in this order. Its tuners do
not exist here: as an option they are refused; in the environment, which may be meant for another backend,
they are said once, and edgepack's rules choose.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any

from edgepack.errors import ConfigError

__all__ = ["ENVIRONMENT", "check_scheduler", "no_trials"]

_LOG = logging.getLogger("edgepack.torch")
#: The variable that PyTorch's backend for TVM reads.
ENVIRONMENT = "TVM_SCHEDULER"
#: What edgepack has; ``default`` is TVM's word for it.
_RULES = ("rules", "default")
#: TVM's tuners.
_TUNERS = ("auto_scheduler", "meta_schedule")


def check_scheduler(chosen: Any) -> None:
    """Raise ConfigError for a scheduler that there is not.

    Args:
        chosen: the option; None for that of ``TVM_SCHEDULER``.
    """
    if chosen is None:
        chosen = os.environ.get(ENVIRONMENT) or "rules"
        if chosen in _TUNERS:
            _say_once(chosen)
            return
        where = ENVIRONMENT
    else:
        where = "scheduler"
    if chosen in _RULES:
        return
    if chosen == "tuned" or chosen in _TUNERS:
        raise ConfigError(
            f"{where} is {chosen!r}, and this version of edgepack tunes no schedules.",
            hint="Use rules, the default: schedules are chosen by edgepack's rules and cost models.",
        )
    raise ConfigError(f"{where} is {chosen!r}, which is no scheduler.", hint="There is rules, the default.")


def no_trials(given: Any) -> None:
    """Raise ConfigError where a number of trials is given: there is nothing that tries."""
    if given is not None:
        raise ConfigError(
            "trials is for tuning, and this version of edgepack tunes no schedules.",
            hint="Leave out trials: schedules are chosen by edgepack's rules and cost models.",
        )


@cache
def _say_once(tuner: str) -> None:
    _LOG.warning(
        "%s is %s, a tuner of TVM's that edgepack does not have: schedules are chosen by edgepack's rules",
        ENVIRONMENT,
        tuner,
    )
