"""Which tensors between kernels are looked at."""

from __future__ import annotations

from edgepack.plan.layers import InnerTensor, chosen_tensors

TENSORS = [
    InnerTensor("conv", "Conv", "a", ("x",)),
    InnerTensor("relu", "Relu", "b", ("a",)),
    InnerTensor("pool", "AveragePool", "c", ("b",)),
    InnerTensor("add", "Add", "d", ("c", "b")),
]


def chosen(*steps: list[str]) -> dict[str, int]:
    return {name: index for name, (_, index) in chosen_tensors(steps, TENSORS).items()}


def test_a_step_is_looked_at_behind_its_last_node() -> None:
    assert chosen(["conv", "relu"], ["pool", "add"]) == {"b": 0, "d": 1}


def test_a_node_that_several_steps_compute_has_its_result_in_the_last() -> None:
    assert chosen(["conv", "relu", "pool"], ["pool"], ["add"]) == {"b": 0, "c": 1, "d": 2}


def test_a_node_that_no_step_names_is_part_of_the_one_before() -> None:
    """A Relu has no operator of its own in a product's kernel."""
    assert chosen(["conv"], ["pool"], ["add"]) == {"b": 0, "c": 1, "d": 2}


def test_steps_without_nodes_of_the_model_are_left_out() -> None:
    assert chosen(["layout"], ["conv", "relu"], [], ["pool", "add"]) == {"b": 1, "d": 3}
