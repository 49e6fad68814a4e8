"""Why a rule does not make a kernel."""

from __future__ import annotations

from edgepack.compiler.memory import ran_out

__all__ = ["RuleError", "ScheduleError", "defect", "is_the_machines"]


class RuleError(Exception):
    """A rule does not serve this fused group; the text says why.

    What else a rule raises is a defect of it, or of TVM, and no reason to refuse the model: the next rule is
    tried, and the user is told (RecursionError too: the worker's limit is the same everywhere). But for what
    is the machine's and not the model's, :func:`is_the_machines`.
    """


class ScheduleError(RuleError):
    """A schedule that was given does not fit the fused group; the text says why."""


def is_the_machines(error: Exception) -> bool:
    """Whether an error of a rule comes from the machine that compiles: no memory, no file, a package that is
    not whole. It ends the job: another rule's kernels would be taken for the model's, and cached."""
    return ran_out(error) or isinstance(error, OSError | ImportError)


def defect(error: Exception) -> str:
    """A rule's defect in a few words. Raises the error again if it is the machine's."""
    if is_the_machines(error):
        raise error
    text = str(error).strip()
    return text.splitlines()[-1] if text else type(error).__name__
