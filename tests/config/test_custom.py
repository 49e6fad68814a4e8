"""Declarations of custom operators in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.custom import load_custom
from edgepack.errors import ConfigError
from edgepack.plan.custom import CustomOperator, CustomOutput

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_operator"


def test_the_example_is_read_with_paths_beside_it() -> None:
    (found,) = load_custom(EXAMPLE / "ops.yaml")
    assert (found.domain, found.operator, found.symbol) == ("my.ops", "HardShrink", "hard_shrink")
    assert found.outputs == (CustomOutput(), CustomOutput(("inputs[0][0]",), "int32"))
    assert found.arguments == ("inputs[0][0]", "inputs[0][1]", "threshold")
    assert Path(found.source) == EXAMPLE / "hard_shrink.c"
    assert (Path(found.reference), found.function) == (EXAMPLE / "reference.py", "hard_shrink")
    assert CustomOperator.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("source: missing.c", r"ops\.yaml:4: source: there is no file .*missing\.c"),
        ("source: f.c\n    reference: f.txt", r"ops\.yaml:5: .*reference"),
        ("source: f.c\n    outputs: [{dtype: float}]", r"ops\.yaml:5: .*one of bool"),
        ('source: "f\\".c"', r"ops\.yaml:4: .*whose name has no quotes"),
        ('source: "f.c\\nint evil;"', r"ops\.yaml:4: .*whose name has no quotes"),
        (f"source: {'f' * 300}.c", r"ops\.yaml:4: .*whose name has no quotes"),
        ("source: f.c\n    symbole: g", r"ops\.yaml:5: .*symbole"),
    ],
)
def test_a_mistake_is_named_with_its_line(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("", encoding="utf-8")
    path = tmp_path / "ops.yaml"
    path.write_text(f"operators:\n  - operator: F\n    symbol: f\n    {line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_custom(path)
