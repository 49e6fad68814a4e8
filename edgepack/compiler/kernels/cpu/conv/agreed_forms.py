"""By which of several forms, of other weights each, the kinds of CPU of a library compute a layer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

__all__ = ["MOST_COST", "agreed_forms"]

Kind = TypeVar("Kind", bound=Hashable)
Form = TypeVar("Form", bound=Hashable)

#: How many times as long as its fastest form a kind of CPU may take by the one that it shares with others.
MOST_COST = 1.03


def agreed_forms(costs: Mapping[Kind, Mapping[Form, float]]) -> dict[Kind, Form]:
    """The form of each kind of CPU: one by which it takes at most :data:`MOST_COST` times as long as by its
    fastest, so chosen that few forms, whose weights the library has to hold, serve all kinds.

    The form that serves most kinds is taken, then the one that serves most of the others. Among such that
    serve equally many it is the one by which they lose the least.

    Args:
        costs: by kind the estimated time of each form.
    """
    left = {kind: {form: cost / min(of.values()) for form, cost in of.items()} for kind, of in costs.items()}
    found: dict[Kind, Form] = {}
    while left:
        served: dict[Form, list[float]] = {}
        for of in left.values():
            for form, ratio in of.items():
                if ratio <= MOST_COST:
                    served.setdefault(form, []).append(ratio)
        best = min(served, key=lambda form: (-len(served[form]), sum(served[form])))
        taken = [kind for kind, of in left.items() if of.get(best, MOST_COST + 1) <= MOST_COST]
        for kind in taken:
            found[kind] = best
            del left[kind]
    return found
