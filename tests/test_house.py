"""The rules that keep the code in rooms; `lint-imports` checks the imports between them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import edgepack
from edgepack.options import PackKeywords, PackOptions
from tools.plant_defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "edgepack"
MODULES = sorted(PACKAGE.rglob("*.py"))
#: By the folder that they are in below the package's.
ROOMS = sorted({path.relative_to(PACKAGE).parts[0] for path in MODULES})
#: Lines that a module, and a function with its docstring, may have.
MOST_LINES, MOST_IN_FUNCTION = 400, 60
MOST_PARAMETERS = 7


def rooms() -> set[str]:
    """The package's own modules (``api.py``) and packages (``cli/``)."""
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    return modules | packages


def test_no_room_but_the_compiler_may_know_tvm() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pattern = r'name = "Only the compiler knows TVM".*?source_modules = \[(.*?)\]'
    (contract,) = re.findall(pattern, text, re.DOTALL)
    names = {name.removesuffix("/").removesuffix(".py") for name in rooms()}
    assert set(re.findall(r'"edgepack\.(\w+)"', contract)) == names - {"compiler"}


def test_architecture_describes_the_rooms_that_there_are() -> None:
    text = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    described = re.findall(r"^\| `([\w/.]+)`", text, re.MULTILINE)
    assert not rooms() - set(described)
    for name in described:
        places = (PACKAGE / name, PACKAGE / "compiler" / name, ROOT / name)
        assert any(place.exists() for place in places), f"{name} is described and not there"


def imported(path: Path) -> set[str]:
    """The packages, and scripts beside it, that a file imports at any place."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize(
    ("folder", "not_these"),
    [
        ("benchmarks", {"tests"}),
        ("tools", {"tests"}),
        ("workbench", {"tests", "benchmarks", "tools"}),
        ("edgepack", {"tests", "benchmarks", "tools", "workbench"}),
    ],
)
def test_programs_are_not_made_of_tests(folder: str, not_these: set[str]) -> None:
    """What they share with tests is in workbench/."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    wrong = {path.relative_to(ROOT).as_posix(): imported(path) & not_these for path in files}
    assert not {path: names for path, names in wrong.items() if names}


def modules(room: str) -> list[Path]:
    return [path for path in MODULES if path.relative_to(PACKAGE).parts[0] == room]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("room", ROOMS)
def test_modules_functions_and_signatures_are_of_a_readable_size(room: str) -> None:
    assert [wrong for path in modules(room) for wrong in too_large(path)] == []


def too_large(path: Path) -> Iterator[str]:
    where = path.relative_to(ROOT).as_posix()
    lines = path.read_text(encoding="utf-8").count("\n")
    if lines > MOST_LINES:
        yield f"{where} has {lines} lines"
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.FunctionDef):
            continue
        length = (node.end_lineno or 0) - node.lineno + 1
        if length > MOST_IN_FUNCTION:
            yield f"{where}: {node.name} has {length} lines"
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        parameters = [name for name in names if name not in ("self", "cls")]
        if (
            not node.name.startswith("_")
            and not decorated_as_command(node)
            and len(parameters) > MOST_PARAMETERS
        ):
            yield f"{where}: {node.name} has {len(parameters)} parameters"


def decorated_as_command(node: ast.FunctionDef) -> bool:
    """A command's parameters are its options: click hands them over one by one."""
    return any("click.command" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_options_of_pack_are_keywords_of_the_same_types() -> None:
    fields = {name: field.type for name, field in PackOptions.__dataclass_fields__.items()}
    keywords = PackKeywords.__annotations__
    assert fields == {name: getattr(keywords[name], "__forward_arg__", keywords[name]) for name in fields}
    assert fields.keys() == keywords.keys()
    assert {name: str(kind) for name, kind in fields.items()} == {
        name: getattr(kind, "__forward_arg__", str(kind))
        for name, kind in PackKeywords.__annotations__.items()
    }


def test_the_package_exports_what_it_says() -> None:
    for name in edgepack.__all__:
        assert getattr(edgepack, name) is not None
    errors = [getattr(edgepack, name) for name in edgepack.__all__ if name.endswith("Error")]
    assert all(inspect.isclass(error) and issubclass(error, edgepack.EdgepackError) for error in errors)
    assert len(errors) == 6
    assert {*edgepack.__all__, "errors", "__doc__"} <= set(dir(edgepack))
    assert edgepack.errors.ModelError is edgepack.ModelError  # type: ignore[attr-defined]
    assert not [name for name in dir(edgepack) if not name.startswith("_") and not hasattr(edgepack, name)]


@pytest.mark.parametrize("room", ROOMS)
def test_programs_are_started_where_a_killed_edgepack_ends_them(room: str) -> None:
    """And where a wait is one of at most 0.2 s: process.py, and guardian.py below it."""
    names = ("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput")
    starts = {*(f"subprocess.{name}" for name in names), "os.system", "os.popen"}
    for path in modules(room):
        if path.name in ("guardian.py", "process.py"):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert ast.unparse(node.func) not in starts, f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_that_is_planted_fits_the_source(defect: Defect) -> None:
    assert (ROOT / defect.file).read_text(encoding="utf-8").count(defect.old) == 1
    assert all((ROOT / path).exists() for path in defect.tests if path.startswith("tests/"))
