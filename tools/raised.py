"""What edgepack's errors say, read from its sources: message and hint of each ``raise``, as templates.

``{name}`` stands for what is known at run time only. A hint that a function is handed is looked up where the
function is called, one that a function makes in what it returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice, product
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "edgepack"

#: Exit codes by what is raised; of functions that raise for their caller, what they raise.
EXIT_CODES = {
    "CheckFailedError": 1,
    "ConfigError": 2,
    "ModelError": 3,
    "RefusedError": 3,  # of a part of a .pt2 file, which becomes a ModelError
    "RefusedNodesError": 3,
    "UnboundSizesError": 3,
    "ToolchainError": 4,
    "__init__": 4,  # of NotWrittenError; others hand on what they are given
    "InternalError": 5,
    "run_checked": 4,
    "within": 3,
}
#: What is no error yet, but becomes one: exit code, and which of its arguments are message and hint. A runner
#: that cannot run something says only why.
CARRIERS: Mapping[str, tuple[int, int | None, int]] = {"Availability": (4, None, 2), "_Mistake": (2, 1, 2)}
#: How many forms one text is followed into: alternatives multiply.
_FORMS = 6
_DEPTH = 4


@dataclass(frozen=True)
class Raised:
    """An error as the sources have it: room (``runners``), exit code, and templates of its two texts."""

    module: str
    line: int
    exit_code: int
    message: str
    hint: str


@dataclass
class Module:
    """A source file: its constants, functions and imports by name."""

    path: Path
    tree: ast.Module
    constants: dict[str, ast.expr] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """With dots, below ``edgepack``."""
        parts = self.path.relative_to(SOURCES.parent).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")


@dataclass(frozen=True)
class Scope:
    """Where an expression stands: its module, its function, what the function's parameters are bound to."""

    module: Module
    function: ast.FunctionDef | None = None
    bound: Mapping[str, tuple[ast.expr, Scope]] = field(default_factory=dict)


class Sources:
    """All modules of the package."""

    def __init__(self) -> None:
        self.modules = {module.name: module for module in map(_read, sorted(SOURCES.rglob("*.py")))}

    @cached_property
    def calls(self) -> dict[str, list[tuple[ast.Call, Scope]]]:
        """Calls by the last part of what is called, each with where it stands."""
        found: dict[str, list[tuple[ast.Call, Scope]]] = {}
        for module in self.modules.values():
            for call, function in _calls_in(module.tree, None):
                found.setdefault(_last(call.func), []).append((call, Scope(module, function)))
        return found

    def raised(self) -> Iterator[Raised]:
        """All errors that have a hint. One that is handed on from another error is where that is raised."""
        for called, code in EXIT_CODES.items():
            for call, scope in self.calls.get(called, ()):
                hint = next((one.value for one in call.keywords if one.arg == "hint"), None)
                if hint is not None and not (called == "__init__" and isinstance(hint, ast.Name)):
                    message = call.args[0] if called != "run_checked" and call.args else None
                    yield from self._of(call, scope, code, message, hint)
        for called, (code, said, hinted) in CARRIERS.items():
            for call, scope in self.calls.get(called, ()):
                if len(call.args) > hinted:
                    message = call.args[said] if said is not None else None
                    yield from self._of(call, scope, code, message, call.args[hinted])

    def _of(
        self, call: ast.Call, scope: Scope, code: int, message: ast.expr | None, hint: ast.expr
    ) -> Iterator[Raised]:
        for where in self._callers(scope, hint):
            for text in self.texts(hint, where):
                said = self.texts(message, where) if message is not None else []
                for one in said[:_FORMS] or [""]:
                    yield Raised(scope.module.name, call.lineno, code, one, text)

    def _callers(self, scope: Scope, hint: ast.expr) -> Sequence[Scope]:
        """The scope itself; or, where the hint is a parameter, one for each call that gives it."""
        function = scope.function
        named = {node.id for node in ast.walk(hint) if isinstance(node, ast.Name)}
        if function is None or not named & set(_parameters(function)):
            return [scope]
        found = []
        for call, at in self.calls.get(function.name, ()):
            if at.function is not function:
                found.append(Scope(scope.module, function, _bound(scope.module, function, call, at)))
        return found or [scope]

    def texts(self, node: ast.expr, scope: Scope, depth: int = _DEPTH) -> list[str]:
        """What the expression can be, as templates; nothing where it is another error's text or empty."""
        return list(dict.fromkeys(text for text in self._forms(node, scope, depth) if text.strip()))

    def _forms(self, node: ast.expr, scope: Scope, depth: int) -> list[str]:
        if depth < 0:
            return []
        if isinstance(node, ast.Constant):
            return (
                [str(node.value)] if isinstance(node.value, str | int) and node.value is not False else [""]
            )
        if isinstance(node, ast.JoinedStr):
            parts = [self._part(one, scope, depth) for one in node.values]
            return ["".join(one) for one in islice(product(*parts), _FORMS)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._forms(node.left, scope, depth), self._forms(node.right, scope, depth)
            return [a + b for a, b in islice(product(left, right), _FORMS)]
        if isinstance(node, ast.IfExp):
            return self._forms(node.body, scope, depth) + self._forms(node.orelse, scope, depth)
        if isinstance(node, ast.BoolOp):
            return [form for one in node.values for form in self._forms(one, scope, depth)]
        if isinstance(node, ast.Name):
            return self._named(node.id, scope, depth)
        if isinstance(node, ast.Subscript):
            return self._entries(node.value, scope, depth)
        if isinstance(node, ast.Call):
            return self._called(node, scope, depth)
        return []

    def _part(self, node: ast.expr, scope: Scope, depth: int) -> list[str]:
        """A part of an f-string: what is known of it, else its name in braces."""
        if not isinstance(node, ast.FormattedValue):
            return self._forms(node, scope, depth)
        value = node.value
        known = isinstance(value, ast.IfExp | ast.Name | ast.BinOp)
        forms = self._known(value, scope, depth - 1) if known else []
        return list(dict.fromkeys(forms)) or ["{" + _placeholder(value) + "}"]

    def _known(self, node: ast.expr, scope: Scope, depth: int) -> list[str]:
        """Its forms, where all of them are texts of the sources."""
        local = isinstance(node, ast.Name) and scope.function is not None and node.id not in scope.bound
        if local and not self._constant(node.id, scope):  # type: ignore[attr-defined]
            given = _assigned(scope.function, node.id)  # type: ignore[attr-defined]
            simple = all(isinstance(one, ast.Constant | ast.IfExp) for one in given)
            return [form for one in given for form in self._forms(one, scope, depth)] if simple else []
        return self._forms(node, scope, depth)

    def _constant(self, name: str, scope: Scope) -> bool:
        own = scope.function is not None and name in _parameters(scope.function)
        return not own and (name in scope.module.constants or name in scope.module.imports)

    def _named(self, name: str, scope: Scope, depth: int) -> list[str]:
        if name in scope.bound:
            node, where = scope.bound[name]
            return self._forms(node, where, depth - 1)
        if scope.function is not None and (given := _assigned(scope.function, name)):
            return [form for one in given for form in self._forms(one, scope, depth - 1)]
        if name in scope.module.constants:
            return self._forms(scope.module.constants[name], Scope(scope.module), depth - 1)
        module, original = scope.module.imports.get(name, ("", ""))
        if module in self.modules and original in self.modules[module].constants:
            there = self.modules[module]
            return self._forms(there.constants[original], Scope(there), depth - 1)
        return []

    def _entries(self, table: ast.expr, scope: Scope, depth: int) -> list[str]:
        """All texts of a table that is a constant of the module."""
        if isinstance(table, ast.Name) and isinstance(
            found := scope.module.constants.get(table.id), ast.Dict
        ):
            return [form for one in found.values for form in self._forms(one, Scope(scope.module), depth - 1)]
        return []

    def _called(self, call: ast.Call, scope: Scope, depth: int) -> list[str]:
        """What a function returns; of ``table.get`` the entries, of ``text.format`` the text."""
        name = _last(call.func)
        if isinstance(call.func, ast.Attribute):
            if name == "get":
                rest = [form for one in call.args[1:] for form in self._forms(one, scope, depth)]
                return self._entries(call.func.value, scope, depth) + rest
            if name in {"format", "strip", "rstrip"}:
                forms = self._forms(call.func.value, scope, depth)
                filled = "{" + _placeholder(call.args[0]) + "}" if call.args else ""
                return [one.replace("{}", filled) for one in forms] if name == "format" else forms
        if name in {"str", "shown"} and call.args:
            return self._forms(call.args[0], scope, depth)
        if name == "next" and isinstance(call.args[0], ast.GeneratorExp):
            return self._column(call.args[0], scope, depth)
        forms = []
        for module, function in self._functions(call, scope):
            inside = Scope(module, function, _bound(module, function, call, scope))
            returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value]
            forms += [form for one in returned for form in self._forms(one, inside, depth - 1)]
        return forms

    def _functions(self, call: ast.Call, scope: Scope) -> list[tuple[Module, ast.FunctionDef]]:
        """What is called: of this module, an imported one, or the methods of this name."""
        name, module = _last(call.func), scope.module
        if name in module.functions:
            return [(module, module.functions[name])]
        if name in module.imports:
            there = self.modules.get(module.imports[name][0])
            return [(there, there.functions[name])] if there and name in there.functions else []
        if isinstance(call.func, ast.Attribute) and name.endswith("hint"):
            return [(one, one.functions[name]) for one in self.modules.values() if name in one.functions]
        return []

    def _column(self, rows: ast.GeneratorExp, scope: Scope, depth: int) -> list[str]:
        """What ``hint for text, hint in TABLE`` can give, of a table that is a constant of the module."""
        (each,) = rows.generators
        table = scope.module.constants.get(each.iter.id) if isinstance(each.iter, ast.Name) else None
        if not isinstance(each.target, ast.Tuple) or not isinstance(table, ast.Tuple):
            return []
        at = [_last(one) for one in each.target.elts].index(_last(rows.elt))
        cells = [row.elts[at] for row in table.elts if isinstance(row, ast.Tuple)]
        return [form for one in cells for form in self._forms(one, Scope(scope.module), depth - 1)]


@cache
def sources() -> Sources:
    """The package's modules, read once in a process."""
    return Sources()


@cache
def found() -> Sequence[Raised]:
    """All errors that have a hint."""
    return list(sources().raised())


def _read(path: Path) -> Module:
    module = Module(path, ast.parse(path.read_text(encoding="utf-8")))
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and (value := getattr(node, "value", None)) is not None:
                module.constants[target.id] = value
    for inner in ast.walk(module.tree):
        if isinstance(inner, ast.FunctionDef):
            module.functions[inner.name] = inner
        elif isinstance(inner, ast.ImportFrom) and inner.module:
            for alias in inner.names:
                module.imports[alias.asname or alias.name] = (inner.module, alias.name)
    return module


def _calls_in(
    node: ast.AST, function: ast.FunctionDef | None
) -> Iterator[tuple[ast.Call, ast.FunctionDef | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, function
        yield from _calls_in(child, child if isinstance(child, ast.FunctionDef) else function)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _bound(
    module: Module, function: ast.FunctionDef, call: ast.Call, scope: Scope
) -> dict[str, tuple[ast.expr, Scope]]:
    """What a call gives to the parameters of a module's function, defaults included."""
    positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if positional[:1] in (["self"], ["cls"]):
        positional = positional[1:]
    found = {name: (one, Scope(module)) for name, one in _defaults(function) if not _empty(one)}
    found |= {name: (one, scope) for name, one in zip(positional, call.args, strict=False)}
    found |= {one.arg: (one.value, scope) for one in call.keywords if one.arg}
    return found


def _empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    given = function.args
    positional = [one.arg for one in (*given.posonlyargs, *given.args)]
    yield from zip(reversed(positional), reversed(given.defaults), strict=False)
    for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if value is not None:
            yield one.arg, value


@cache
def _assigned(function: ast.FunctionDef, name: str) -> Sequence[ast.expr]:
    """What a local name is set to, by itself or in a tuple."""
    return list(_assignments(function, name))


def _assignments(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.NamedExpr | ast.AugAssign):
            pairs = [(node.target, node.value)]
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id == name:
                yield value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                named = zip(target.elts, value.elts, strict=False)
                yield from (one for left, one in named if isinstance(left, ast.Name) and left.id == name)


def _placeholder(node: ast.expr) -> str:
    """A word for what is known at run time only: the last name in it."""
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_")
    if isinstance(node, ast.Name):
        return node.id.strip("_")
    if isinstance(node, ast.Call):
        given = [one for one in node.args if not isinstance(one, ast.Constant)]
        return _placeholder(given[-1]) if given else _last(node.func).strip("_")
    if isinstance(node, ast.Subscript | ast.Starred):
        return _placeholder(node.value)
    if isinstance(node, ast.BoolOp):
        named = [one for one in node.values if not isinstance(one, ast.Constant)]
        return _placeholder(named[-1])
    if isinstance(node, ast.IfExp):
        return _placeholder(node.body)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _placeholder(node.generators[0].iter)
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    return names[0].strip("_") if names else "..."
