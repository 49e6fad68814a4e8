"""Every mistake in a file is answered with file, line, field, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.config.toolchain import load_toolchain
from edgepack.errors import ConfigError

FIXTURES = Path(__file__).parent / "fixtures"

# fixture: the line (0: the file as a whole), what the message says, what the hint says
MISTAKES = {
    "alias_of_itself": (2, "runner.options: an alias", ""),
    "bad_indentation": (4, "not valid YAML", "Indent with spaces"),
    "bad_size": (3, "cpu.l1d: '32 kibi' is not a size", ""),
    "cost_below_zero": (4, "cpu.costs.load: must be greater than or equal to 0, found -1.0", ""),
    "costs_of_an_unknown_rule": (4, "'conv2d.winograd int8' is not compared; there are conv2d.", ""),
    "costs_of_linux": (3, "cpu.costs: only firmware (os: none) is compared by instructions", ""),
    "cycle_a": (1, "leads back to itself (cycle_a -> cycle_b -> cycle_a)", "must not extend"),
    "detect_and_extends": (2, "detect:", ""),
    "detect_is_no_boolean": (1, "detect: must be true, gpu or be left out, found 'cpu'", ""),
    "duplicate_key": (3, "threads: is given twice (first in line 2)", ""),
    "empty": (0, "is empty", "extends"),
    "extends_itself": (2, "leads back to itself", ""),
    "extends_list": (1, "extends: expected the name of one device", ""),
    "extends_missing_file": (1, "there is no device file", "edgepack devices"),
    "extends_unknown": (3, "there is no device 'rasberrypi4'", "'raspberrypi4'"),
    "family_of_no_apple": (2, "gpu: family: only Apple's GPUs", ""),
    "feature_without_sign": (3, "llvm.features.0: 'dotprod' has no sign", ""),
    "fractional_size": (3, "cpu.l2: '0.3 B' is not a whole number of bytes", ""),
    "list_at_top": (1, "expected `key: value`", ""),
    "list_where_word_is_expected": (2, "toolchain: must be a text, found a list", ""),
    "memories_of_linux": (2, "memories: only firmware (os: none) has sections for them", ""),
    "memories_of_one_section": (5, "memories.2.arena: '.fast' is that of arena in ram already", ""),
    "memories_without_an_arena": (2, "memories: none of them holds intermediate results", ""),
    "memory_loaded_from_ram": (4, "memories.1.loaded_from: 'ram' is not a memory that keeps params", ""),
    "memory_of_a_common_section": (3, "memories.0.arena: '.bss' is not the name of a section", ""),
    "memory_that_forgets": (4, "memories.1.loaded_from: RAM forgets params; name the memory", ""),
    "memory_with_two_budgets": (3, "memories.0.size: how much of ram a model may take is said by budget", ""),
    "memory_without_size": (4, "memories.1.size: is missing; write what a model may take of it", ""),
    "missing_field": (1, "llvm: is missing", "extends"),
    "missing_nested_field": (3, "compilers.mycc.target: is missing", "Add `target:`"),
    "no_artifact": (2, "artifacts: must name at least one", ""),
    "not_utf8": (2, "not UTF-8", ""),
    "page_size_no_power_of_two": (2, "page_size: must be a power of two, found 5000", ""),
    "python_tag": (2, "description: the tag", ""),
    "several_mistakes": (2, "threads: must be greater than or equal to 1, found 0", ""),
    "tab_indentation": (3, "not valid YAML", "Indent with spaces"),
    "triple_of_another_arch": (
        3,
        "llvm.triple: 'aarch64-unknown-linux-gnu' is not a triple of arch 'arm'",
        "",
    ),
    "triple_of_three_parts": (3, "must have four parts", ""),
    "unclosed_bracket": (3, "not valid YAML", ""),
    "unknown_artifact": (2, "artifacts.1: must be 'shared', 'static' or 'program', found 'firmware'", ""),
    "unknown_cpu_requirement": (2, "cpu_requires: the runtime cannot check 'avx2' on aarch64", ""),
    "unknown_key": (3, "thread: unknown key", "Did you mean 'threads' or 'web_threads'?"),
    "unknown_nested_key": (5, "compilers.zig.tripel: unknown key", "Allowed here: target, cpu, flags"),
    "unquoted_version": (3, "audit.glibc: must be a text, found 2.3", "in quotes"),
    "word_where_list_is_expected": (2, "libraries: must be a list, found 'm'", ""),
    "wrong_type": (4, "threads: must be a whole number, found 'four'", ""),
    "yaml11_boolean": (3, "cpu.fma: must be true or false, found 'no'", ""),
}
#: In these the mistake stands in another file than the one that is loaded.
ELSEWHERE = {"cycle_a": "cycle_b", "cycle_b": "cycle_a", "unknown_key_in_base": "unknown_key"}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_file_line_and_field(name: str) -> None:
    line, message, hint = MISTAKES[name]
    path = FIXTURES / f"{ELSEWHERE.get(name, name)}.yaml"
    with pytest.raises(ConfigError) as caught:
        load_device(FIXTURES / f"{name}.yaml")
    assert caught.value.message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_every_fixture_is_tested() -> None:
    assert {path.stem for path in FIXTURES.glob("*.yaml")} == {*MISTAKES, *ELSEWHERE}


def test_a_mistake_in_a_base_names_the_base() -> None:
    with pytest.raises(ConfigError) as caught:
        load_device(FIXTURES / "unknown_key_in_base.yaml")
    assert f"{FIXTURES / 'unknown_key.yaml'}:3: thread" in caught.value.message


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_device(FIXTURES / "several_mistakes.yaml")
    assert "several_mistakes.yaml:3: artifacts.1" in caught.value.detail
    assert "several_mistakes.yaml:4: runer: unknown key" in caught.value.detail


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("raspberypi4", "'raspberrypi4'"), ("Linux-X86_64", "'linux-x86_64'"), ("hots", "'host'")],
)
def test_an_unknown_device_is_answered_with_the_nearest_names(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_device(wrong)
    assert f"there is no device {wrong!r}" in caught.value.message
    assert near in caught.value.hint


def test_an_unknown_toolchain_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError) as caught:
        load_toolchain("gccc")
    assert "there is no toolchain 'gccc'" in caught.value.message
    assert "'gcc'" in caught.value.hint


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        load_device("zzzzzz")
    assert "Did you mean" not in caught.value.hint
    assert "edgepack devices" in caught.value.hint


def test_a_toolchain_cannot_be_detected(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("family: gcc\ndetect: true\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: detect"):
        load_toolchain(path)


def test_a_file_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no device file"):
        load_device(str(tmp_path) + "/")


def test_many_aliases_do_not_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="values in one file"):
        load_device(path)
