"""What is said of a model that keeps state from one run to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["state_warnings"]


def state_warnings(what: str, noun: str, states: Sequence[tuple[str, str]]) -> Iterator[str]:
    """One sentence for all states; none where there is none.

    Args:
        what: keeps them (``the model keeps {} between runs``), and ``noun`` what is kept (``variable``).
        states: of each the name of the input that takes it, and of the output that returns it.
    """
    if not states:
        return
    kept, ending = (f"{len(states)} {noun}s", "s") if len(states) > 1 else (f"a {noun}", "")
    pairs = ", ".join(f"{given!r} from {returned!r}" for given, returned in states)
    if ending and all(returned == f"{given}_next" for given, returned in states):
        pairs = f"NAME from NAME_next for {', '.join(repr(given) for given, _ in states)}"
    yield (
        f"State: {what.format(kept)}. Give each run, as input{ending}, what the run before returned as "
        f"output{ending}: {pairs}."
    )
