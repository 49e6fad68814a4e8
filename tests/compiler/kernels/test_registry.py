"""Which rules there are, in which order they are tried, and what is refused as one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import onnx
import pytest
import tvm

from edgepack.compiler.kernels import registry
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.registry import (
    GPU_RULES,
    PAIR_RULES,
    RULES,
    find_rules,
    implement_pair,
    with_prefetch,
)
from edgepack.compiler.kernels.rule import Rule
from workbench.compiled import Compiled
from workbench.models.builder import Graph

ORDER = """
    conv2d.depthwise conv2d.winograd conv2d.grouped conv2d.igemm pool2d attention matmul.packed matmul.batched
    rowwise elementwise generic rows plain
"""

HEADER = "from edgepack.compiler.kernels.rule import FLOAT32, Rule\n"


def test_every_rule_is_found_and_has_its_place() -> None:
    # A new rule takes its place among these without an edit here; what serves everything comes last.
    assert [rule.name for rule in RULES if rule.name in ORDER.split()] == ORDER.split()
    assert RULES[-1].name == "plain"
    assert "conv2d.chained" in [rule.name for rule in PAIR_RULES]


def test_rules_of_gpus_are_found_in_the_same_way() -> None:
    products_then_all = ["tensor_core", "simdgroup_matrix", "contraction", "element"]
    assert [rule.name for rule in GPU_RULES if rule.name in products_then_all] == products_then_all
    assert GPU_RULES[-1].name == "element"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty package of the name ``cpu``."""
    (tmp_path / "house" / "cpu" / "room").mkdir(parents=True)
    for folder in ("house", "house/cpu", "house/cpu/room"):
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        monkeypatch.delitem(sys.modules, name)
    return __import__("house.cpu").cpu  # type: ignore[no-any-return]


def _write(package: ModuleType, **modules: str) -> None:
    for name, text in modules.items():
        Path(package.__path__[0], "room", f"{name}.py").write_text(HEADER + text)


def test_a_new_rule_is_one_file(package: ModuleType) -> None:
    _write(package, late="RULE = Rule('late', order=2, dtypes=FLOAT32, apply=print)")
    _write(package, early="RULE = Rule('early', order=1, dtypes=FLOAT32, apply=print)")
    _write(package, reader="from house.cpu.room.late import RULE")
    assert [rule.name for rule in find_rules(package, Rule)] == ["early", "late"]


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ("'first', order=2", "rules first and first have the same name or order"),
        ("'second', order=1", "rules first and second have the same name or order"),
    ],
)
def test_rules_that_contradict_each_other_are_an_error(package: ModuleType, second: str, text: str) -> None:
    _write(package, a="RULE = Rule('first', order=1, dtypes=FLOAT32, apply=print)")
    _write(package, b=f"RULE = Rule({second}, dtypes=FLOAT32, apply=print)")
    with pytest.raises(ValueError, match=text):
        find_rules(package, Rule)


@pytest.mark.parametrize("file", ["broken.py", "broken/__init__.py"])
def test_a_module_that_cannot_be_imported_is_an_error(package: ModuleType, file: str) -> None:
    path = Path(package.__path__[0], file)
    path.parent.mkdir(exist_ok=True)
    path.write_text("import no_such_module_anywhere")
    with pytest.raises(ImportError, match="no_such_module_anywhere"):
        find_rules(package, Rule)


def _softmax() -> onnx.ModelProto:
    g = Graph("softmax", seed=1)
    g.op("Softmax", g.input("x", [5, 24]), axis=-1, name="y")
    g.output("y")
    return g.model()


def _replace(monkeypatch: pytest.MonkeyPatch, *changed: Rule) -> None:
    by_name = {rule.name: rule for rule in changed}
    monkeypatch.setattr(registry, "RULES", tuple(by_name.get(rule.name, rule) for rule in RULES))


ROWWISE = next(rule for rule in RULES if rule.name == "rowwise")


def test_a_rule_that_fails_is_told_and_the_next_one_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a riddle\nnot today")

    _replace(monkeypatch, replace(ROWWISE, apply=fails))  # type: ignore[arg-type]
    compiled = Compiled({"m": _softmax()}, tmp_path)
    (warning,) = compiled.plan("m").warnings
    assert warning.endswith("rule rowwise failed (not today); a slower rule is used")
    rules = {kernel.rule for kernel in compiled.plan("m").kernels}
    assert "generic" in rules and "rowwise" not in rules
    compiled.check("m")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        tvm.error.InternalError("std::bad_alloc"),
        OSError(28, "No space left on device"),
        ImportError("edgepack.compiler.kernels.cpu.emit"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_machine_lacks_is_no_reason_for_other_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    _replace(monkeypatch, replace(ROWWISE, apply=fails))  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        Compiled({"m": _softmax()}, tmp_path).plan("m")


def _implement_pair_by(rule: Callable[..., Implementation], warn: Callable[[str], None]) -> None:
    group = SimpleNamespace(name="m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "PAIR_RULES", (SimpleNamespace(name="pair", implement=rule),))
        implement_pair(group, group, None, (), warn)  # type: ignore[arg-type]


def test_nor_is_it_one_against_a_pair_or_a_prefetch() -> None:
    def fails(*_: object) -> Implementation:
        raise MemoryError

    said: list[str] = []
    with pytest.raises(MemoryError):
        _implement_pair_by(fails, said.append)
    with pytest.raises(MemoryError):
        with_prefetch(Implementation("rowwise", (), with_prefetch=fails), 64, said.append)
    assert not said


def test_expressions_that_are_too_deep_for_a_rule_are_a_defect_of_the_rule() -> None:
    def fails(*_: object) -> Implementation:
        raise RecursionError("too deep")

    said: list[str] = []
    with pytest.raises(RuleError):
        _implement_pair_by(fails, said.append)
    assert with_prefetch(Implementation("rowwise", (), with_prefetch=fails), 64, said.append) is None
    assert [text.count("(too deep)") for text in said] == [1, 1]


def test_an_interrupt_is_no_rules_defect() -> None:
    def fails(*_: object) -> Implementation:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _implement_pair_by(fails, print)


def test_a_rule_is_not_tried_on_dtypes_that_it_does_not_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _replace(monkeypatch, replace(ROWWISE, dtypes=frozenset({"int8"})))
    compiled = Compiled({"m": _softmax()}, tmp_path)
    assert not compiled.plan("m").warnings
    rules = {kernel.rule for kernel in compiled.plan("m").kernels}
    assert "generic" in rules and "rowwise" not in rules


def test_what_only_the_last_rule_serves_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "RULES", RULES[-1:])
    compiled = Compiled({"m": _softmax()}, tmp_path)
    (warning,) = compiled.plan("m").warnings
    assert "no schedule serves it; it runs in one thread, not vectorised" in warning
    compiled.check("m")
