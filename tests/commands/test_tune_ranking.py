"""In which order ``edgepack tune`` measures schedules."""

from __future__ import annotations

from dataclasses import replace

from edgepack.commands.tune_ranking import EXPLORED, WORTH_TRYING, Ranking
from edgepack.commands.tune_rounds import FAILED, Candidate, Group

NOW = Candidate("gemm", {"tile": [4, 16], "order": "rows"}, 100.0)


def tile(rows: int, columns: int, cycles: float) -> Candidate:
    return Candidate("gemm", {"tile": [rows, columns], "order": "rows"}, cycles)


def group(key: str, *candidates: Candidate) -> Group:
    return Group(key, key, frozenset({(key,)}), candidates, NOW)


#: The nearest first; the last one is predicted to be the fastest.
NEAR = (tile(3, 16, 120.0), tile(5, 16, 110.0), tile(8, 16, 95.0), tile(2, 32, 105.0), tile(6, 32, 80.0))


def order(ranking: Ranking, one: Group, measured: dict[str, float] | None = None) -> list[Candidate]:
    """In which a group's candidates are measured, each with the ratio that it has in ``measured``, or 1."""
    tried: dict[str, float] = {}
    found = []
    while (candidate := ranking.next(one, tried)) is not None:
        found.append(candidate)
        tried[candidate.digest] = (measured or {}).get(candidate.digest, 1.0)
        ranking.fit([one], {one.key: tried})
    return found


def test_the_best_by_prediction_are_first_and_some_are_the_nearest() -> None:
    found = order(Ranking(), group("a", *NEAR, tile(16, 16, 200.0)), {one.digest: 1.0 for one in NEAR})
    assert found[0] == NEAR[4] and len(found) == 6
    assert found[EXPLORED - 1] == next(one for one in NEAR if one not in found[: EXPLORED - 1])


def test_without_the_model_the_nearest_are_first() -> None:
    assert order(Ranking(by_model=False), group("a", *NEAR)) == list(NEAR)


def test_candidates_of_which_nothing_is_predicted_are_in_their_order() -> None:
    unknown = [Candidate(one.rule, one.schedule) for one in NEAR]
    assert order(Ranking(), Group("a", "a", frozenset(), unknown)) == unknown


def test_what_was_measured_elsewhere_corrects_the_prediction() -> None:
    """Wide tiles are slower than predicted in two layers: they come behind in a third one."""
    ranking, wide = Ranking(), NEAR[4]
    third = group("c", *NEAR)
    assert ranking.next(third, {}) == wide
    tried = {key: {wide.digest: 0.5, NEAR[2].digest: 1.1} for key in ("a", "b")}
    ranking.fit([group(key, *NEAR) for key in ("a", "b", "c")], tried)
    assert ranking.next(third, {}) == NEAR[2]
    assert ranking.predicted(NOW, wide) > 0 > ranking.predicted(NOW, NEAR[2])


def test_a_rule_that_disappoints_comes_behind() -> None:
    """Of all its forms, also of those that were not measured."""
    ranking = Ranking()
    forms = [Candidate("winograd", {"outputs": [m, m]}, 70.0) for m in (2, 4, 6)]
    one, other = group("a", *forms, NEAR[2]), group("b", *forms, NEAR[2])
    ranking.fit([one, other], {"a": {forms[0].digest: 0.6, forms[1].digest: 0.55}})
    assert ranking.next(other, {}) == NEAR[2]


def test_the_same_measurements_make_the_same_order() -> None:
    tried = {"a": {NEAR[0].digest: 1.2, NEAR[3].digest: 0.8}}
    found = []
    for _ in range(2):
        ranking = Ranking()
        ranking.fit([group("a", *NEAR), group("b", *NEAR)], tried)
        found.append([ranking.predicted(NOW, one) for one in NEAR])
    assert found[0] == found[1]


def test_candidates_that_failed_teach_nothing() -> None:
    ranking = Ranking()
    ranking.fit([group("a", *NEAR)], {"a": {NEAR[4].digest: FAILED}})
    assert ranking.next(group("b", *NEAR), {}) == NEAR[4]


def test_what_was_measured_before_the_neighbourhood_moved_is_remembered() -> None:
    ranking, wide = Ranking(), NEAR[4]
    ranking.fit([group("a", wide)], {"a": {wide.digest: 0.5}})
    moved = Group("a", "a", frozenset(), (tile(1, 1, 90.0),), wide)
    ranking.fit([moved], {"a": {wide.digest: 0.5}})
    assert ranking.predicted(NOW, wide) > 0


def test_what_shares_steps_is_measured_in_different_versions() -> None:
    """What is decided between kernels first; then they."""
    names = {"a": "a", "b": "b", "c": "c", "pair": "ab"}
    groups = [
        replace(group(key, *NEAR), nodes=frozenset({tuple(nodes)}), between=key == "pair")
        for key, nodes in names.items()
    ]
    ranking, tried = Ranking(), {"pair": {one.digest: 1.0 for one in NEAR[1:]}}
    first = ranking.picks(groups, {}, tried)
    assert first.keys() == {"pair", "c"} and first["pair"] == NEAR[0]
    tried["pair"][NEAR[0].digest] = 1.0
    assert ranking.picks(groups, {}, tried).keys() == {"a", "b", "c"}


def test_small_groups_are_left_as_they_are() -> None:
    groups = [group("a", *NEAR), group("b", *NEAR), group("c")]
    found = Ranking().picks(groups, {"a": 0.5, "b": WORTH_TRYING / 2, "c": 0.4}, {})
    assert list(found) == ["a"]
