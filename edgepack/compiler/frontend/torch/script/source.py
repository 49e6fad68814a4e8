"""The code in a TorchScript archive: read by Python's parser, checked form by form, and written again.

Its printer writes few forms: operators are calls, control flow is ``if``, ``for ... in range(...)`` and
``while``. What is of another form is refused, so PyTorch's compiler gets nothing that was not looked at: it
reads what is written here, and not the file's own text, in which comments, continued lines and escapes may
mean something else to its lexer than to Python's.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping

from edgepack.compiler.frontend.torch.script.expressions import RESERVED, Expressions, quoted
from edgepack.compiler.frontend.torch.script.statements import Statements, assigned, variables
from edgepack.compiler.frontend.torch.script.types import Definition, Refused, dotted, read_type

__all__ = ["Code"]

#: Words and signs in all of an archive's code; a line has about 30, and 20,000 lines take a second.
_MOST_TOKENS = 1_500_000
_TOKEN = re.compile(r"\w+|[^\w\s]")
_KINDS = {"Module", "NamedTuple", "Interface", "ModuleInterface", "Enum"}
#: Lists of names in a class: what is a parameter, a buffer, a hook.
_LISTS = {"__parameters__", "__buffers__", "__forward_hooks__", "__forward_pre_hooks__", "__annotations__"}


class Code:
    """The definitions of an archive, and its files written again.

    Args:
        files: their texts by their names in the archive: ``code/__torch__/a.py``.

    Raises:
        Refused: a form, or a call, that is not on the list, with its file and line.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self.file = ""
        self.defined: dict[str, Definition] = {}
        self._tokens = 0
        try:
            trees = {name: self._parsed(name, text) for name, text in files.items()}
            for name, tree in trees.items():
                self.file = name
                self._collect(_module_of(name), tree)
            for one in self.defined.values():
                self.file = one.file
                self._describe(one)
            self.attributes = {name for one in self.defined.values() for name in one.attributes}
            self.methods = {name for one in self.defined.values() for name in one.methods}
            self.written = {name: self._write(name, tree) for name, tree in trees.items()}
        except (RecursionError, MemoryError):
            raise Refused(f"{self.file} holds code that is nested too deeply") from None
        except Refused as refused:
            line = "" if refused.line is None else f":{refused.line}"
            raise Refused(f"{self.file}{line} holds {refused}") from None

    def _parsed(self, name: str, text: str) -> ast.Module:
        self.file = name
        if not text.isascii() or any(not one.isprintable() and one != "\n" for one in set(text)):
            raise Refused("characters that PyTorch does not write")
        self._tokens += sum(1 for _ in _TOKEN.finditer(text))
        if self._tokens > _MOST_TOKENS:
            raise Refused(f"more than {_MOST_TOKENS} words and signs of code")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise Refused("code that cannot be read", getattr(error, "lineno", None)) from None

    def _collect(self, module: str, tree: ast.Module) -> None:
        """What a file defines, by names alone."""
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found = Definition("function", node, self.file)
            elif isinstance(node, ast.ClassDef):
                found = Definition(_kind_of(node), node, self.file)
            elif _says_a_version(node) or isinstance(node, ast.Import):
                continue
            else:
                raise Refused("a statement beside its classes and functions", node.lineno)
            whole = f"{module}.{node.name}"
            if whole in self.defined:
                raise Refused(f"two definitions of {whole!r:.80}", node.lineno)
            if whole.startswith("__torch__.torch.classes."):
                raise Refused(f"a definition of {whole!r:.80}, which is PyTorch's own", node.lineno)
            self.defined[whole] = found

    def _describe(self, found: Definition) -> None:
        """The attributes, constants and methods of a class."""
        if not isinstance(found.tree, ast.ClassDef):
            return
        for node in found.tree.body:
            if isinstance(node, ast.FunctionDef):
                _once(node.name, found.methods, node)
                found.methods[node.name] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                _once(node.target.id, found.attributes, node)
                final = _final(node)
                found.attributes[node.target.id] = read_type(final or node.annotation, self.defined)
                if final is not None:
                    found.constants.add(node.target.id)
            elif (name := _annotated(node)) is not None and isinstance(node, ast.Assign):
                _once(name, found.attributes, node)
                found.attributes[name] = read_type(node.value, self.defined)
            elif found.kind == "Enum" and (name := assigned(node)) is not None:
                found.constants.add(name)

    def _write(self, name: str, tree: ast.Module) -> str:
        self.file = name
        lines: list[str] = []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                lines += self._function(node, "")
            elif isinstance(node, ast.ClassDef):
                lines += self._class(node, self.defined[f"{_module_of(name)}.{node.name}"])
        return "\n".join([*lines, ""])

    def _class(self, node: ast.ClassDef, found: Definition) -> Iterator[str]:
        yield f"class {node.name}({found.kind}):" if found.kind != "class" else f"class {node.name}:"
        expressions = Expressions(self.defined, self.attributes, self.methods)
        if found.kind == "Enum":
            yield from _members(node, expressions)
            return
        has_code, has_types = found.kind != "NamedTuple", found.kind in {"class", "Module", "NamedTuple"}
        for one in node.body:
            name = _annotated(one)
            if isinstance(one, ast.FunctionDef) and has_code:
                yield from self._function(one, "  ")
            elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and has_types:
                yield f"  {_typed(one, found, expressions)}"
            elif name is not None and has_code and has_types:
                yield f"  __annotations__[{quoted(name)}] = {found.attributes[name]}"
            elif isinstance(one, ast.Assign) and has_code and has_types:
                yield f"  {_list_of_names(one, found)}"
            elif not isinstance(one, ast.Pass):
                raise Refused("a statement in a class that PyTorch does not write", one.lineno)
        if all(isinstance(one, ast.Pass) for one in node.body):
            yield "  pass"

    def _function(self, node: ast.FunctionDef, indent: str) -> Iterator[str]:
        given = node.args
        if given.posonlyargs or given.vararg or given.kwonlyargs or given.kwarg or node.decorator_list:
            raise Refused(f"a function {node.name!r:.80} of a form that PyTorch does not write", node.lineno)
        bound, functions = variables(node, self.defined)
        if wrong := bound & RESERVED:
            raise Refused(f"a variable {min(wrong)!r}, which is one of PyTorch's words", node.lineno)
        expressions = Expressions(self.defined, self.attributes, self.methods, bound, functions)
        defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
        arguments = []
        for one, default in zip(given.args, defaults, strict=True):
            kind = f": {expressions.type(one.annotation)}" if one.annotation else ""
            arguments.append(f"{one.arg}{kind}" + (f"={expressions.constant(default)}" if default else ""))
        returned = f" -> {expressions.type(node.returns)}" if node.returns else ""
        yield f"{indent}def {node.name}({', '.join(arguments)}){returned}:"
        yield from Statements(expressions, node.name).block(node.body, indent + "  ")


def _module_of(file: str) -> str:
    return file.removeprefix("code/").removesuffix(".py").replace("/", ".")


def _kind_of(node: ast.ClassDef) -> str:
    if node.keywords or node.decorator_list or len(node.bases) > 1:
        raise Refused("a class of a form that PyTorch does not write", node.lineno)
    base = dotted(node.bases[0]) if node.bases else "class"
    if base != "class" and base not in _KINDS:
        raise Refused(f"a class that is a kind of {base!r:.80}", node.lineno)
    return base


def _says_a_version(node: ast.stmt) -> bool:
    """``op_version_set = 1``, which old versions wrote, and nobody reads."""
    return assigned(node) == "op_version_set" and isinstance(getattr(node, "value", None), ast.Constant)


def _annotated(node: ast.stmt) -> str | None:
    """The name of an attribute that is no identifier: ``__annotations__["0"] = Tensor``."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Subscript) or dotted(target.value) != "__annotations__":
        return None
    name = target.slice.value if isinstance(target.slice, ast.Constant) else None
    return name if isinstance(name, str) else None


def _final(node: ast.AnnAssign) -> ast.expr | None:
    """What stands in ``Final[...]``."""
    kind = node.annotation
    return kind.slice if isinstance(kind, ast.Subscript) and dotted(kind.value) == "Final" else None


def _typed(node: ast.AnnAssign, found: Definition, expressions: Expressions) -> str:
    """An attribute and its type; or a constant, which has a value."""
    assert isinstance(node.target, ast.Name)
    name, kind = node.target.id, found.attributes[node.target.id]
    if name not in found.constants and node.value is None:
        return f"{name} : {kind}"
    if name not in found.constants or node.value is None or found.kind == "NamedTuple":
        raise Refused("a value that is no constant of its class", node.lineno)
    return f"{name} : Final[{kind}] = {expressions.constant(node.value)}"


def _list_of_names(node: ast.Assign, found: Definition) -> str:
    """What of a class is a parameter, a buffer or a hook."""
    name = assigned(node)
    listed = node.value.elts if isinstance(node.value, ast.List) else None
    if name not in _LISTS or listed is None or (found.kind != "Module" and name != "__annotations__"):
        raise Refused("a value in a class that is no list of names", node.lineno)
    names = [one.value if isinstance(one, ast.Constant) else None for one in listed]
    there = found.methods if name.endswith("_hooks__") else found.attributes
    if not all(isinstance(one, str) and one in there for one in names):
        raise Refused(f"a list {name} of what the class does not have", node.lineno)
    return f"{name} = [{''.join(f'{quoted(str(one))}, ' for one in names)}]"


def _members(node: ast.ClassDef, expressions: Expressions) -> Iterator[str]:
    """Those of an enumeration, which are of one type: PyTorch's reader asks for nothing of that."""
    kinds = set()
    for one in node.body:
        name, value = assigned(one), getattr(one, "value", None)
        if name is None or not isinstance(value, ast.expr):
            raise Refused("a statement in an enumeration that PyTorch does not write", one.lineno)
        number = value.operand if isinstance(value, ast.UnaryOp) else value
        kinds.add(type(number.value) if isinstance(number, ast.Constant) else None)
        yield f"  {name} = {expressions.constant(value)}"
    if len(kinds) != 1 or not kinds <= {int, float, str}:
        raise Refused("an enumeration whose members are not all numbers, or all texts", node.lineno)


def _once(name: str, there: Mapping[str, object], node: ast.stmt) -> None:
    if name in there:
        raise Refused(f"two definitions of {name!r:.80} in a class", node.lineno)
