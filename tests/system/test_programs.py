"""Where programs are looked for: never in the current folder, which may be somebody else's."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from edgepack.errors import ToolchainError
from edgepack.system.paths import find_program
from edgepack.system.process import ask, execute, run_tool

PACKAGE = Path(__file__).resolve().parents[2] / "edgepack"

SUFFIX = ".bat" if os.name == "nt" else ""


@pytest.fixture
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which somebody put programs of names that are looked for."""
    for folder in (tmp_path, tmp_path / "tools"):
        folder.mkdir(exist_ok=True)
        for name in ("clang", "bwrap"):
            program = folder / (name + SUFFIX)
            program.write_text(f"#!/bin/sh\necho taken >{tmp_path / 'ran'}\n")
            program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("parts", ["", ".", "tools", "./tools", "", "nowhere::", "nowhere"])
def test_no_program_is_taken_from_the_current_folder(
    parts: str, current: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join(parts.split(":"))
    assert find_program("clang", path) is None
    monkeypatch.setenv("PATH", path)
    assert find_program("clang") is None
    with pytest.raises(ToolchainError, match="clang cannot be started"):
        run_tool(["clang", "--version"], timeout=10)
    with pytest.raises(ToolchainError, match="clang cannot be started"):
        execute(["clang"], timeout=10, cwd=current)
    assert ask(["clang", "--version"]) == ""
    assert not (current / "ran").exists()


def test_a_program_is_found_in_an_absolute_folder_of_the_path_and_by_its_own_path(
    current: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = current / "tools" / ("clang" + SUFFIX)
    path = os.pathsep.join([".", "", str(current / "nothing"), str(current / "tools")])
    assert Path(str(find_program("clang", path))) == expected
    monkeypatch.setenv("PATH", path)
    assert Path(str(find_program("clang"))) == expected
    assert find_program(str(expected), "") == str(expected)
    assert Path(str(find_program("./clang", ""))) == Path("clang" + SUFFIX)
    assert find_program("nothing", path) is None


def test_windows_spellings_are_tried_and_its_current_folder_is_not(
    current: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.name != "nt":
        monkeypatch.setattr(
            "edgepack.system.paths._spellings", lambda name: iter([f"{name}.EXE", f"{name}.bat"])
        )
        for folder in (current, current / "tools"):
            (folder / "clang").rename(folder / "clang.bat")
    assert find_program("clang", "") is None
    found = find_program("clang", str(current / "tools"))
    assert found is not None
    assert Path(found).parent == current / "tools"


#: Ways to find or start a program by its name.
WAYS = {
    "which",
    "run",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "system",
    "popen",
}
WAYS |= {"create_subprocess_exec", "create_subprocess_shell", "get_exec_path", "startfile", "Popen"}


def used_ways(tree: ast.AST) -> set[str]:
    """The ways that a module imports or calls."""
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"shutil", "subprocess", "os", "asyncio"}:
            used |= {alias.name for alias in node.names}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            used |= {node.func.attr} if owner in {"shutil", "subprocess", "os", "asyncio"} else set()
    return {
        name for name in used if name in WAYS or name.startswith(("execv", "execl", "spawn", "posix_spawn"))
    }


def test_nothing_else_looks_for_programs() -> None:
    """shutil.which looks in the current folder on Windows, and the system there does when it starts a name:
    edgepack.system.paths finds programs, and edgepack.system.process starts them."""
    allowed = {"paths.py": {"which"}, "guardian.py": {"Popen"}}
    for path in sorted(PACKAGE.rglob("*.py")):
        used = used_ways(ast.parse(path.read_text(encoding="utf-8")))
        assert used <= allowed.get(path.name, set()), f"{path.relative_to(PACKAGE)} finds programs by itself"
