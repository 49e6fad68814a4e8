"""What is said of a model that keeps state."""

from __future__ import annotations

from edgepack.compiler.frontend.states import state_warnings


def test_all_states_are_one_sentence() -> None:
    """A wake word has six."""
    what = "the model keeps {} between runs"
    assert list(state_warnings(what, "variable", [])) == []
    assert list(state_warnings(what, "variable", [("a", "a_next")])) == [
        "State: the model keeps a variable between runs. Give each run, as input, what the run before "
        "returned as output: 'a' from 'a_next'."
    ]
    states = [(f"s{one}", f"s{one}_next") for one in range(6)]
    (said,) = state_warnings(what, "variable", states)
    assert said.startswith("State: the model keeps 6 variables between runs. Give each run, as inputs, what")
    assert said.endswith(": NAME from NAME_next for 's0', 's1', 's2', 's3', 's4', 's5'.")
    (said,) = state_warnings(what, "variable", [*states, ("h", "output_1")])
    assert "'s5' from 's5_next', 'h' from 'output_1'." in said
