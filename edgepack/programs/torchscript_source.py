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
from collections.abc import Callable, Iterator, Mapping, Sequence

from edgepack.programs.torchscript_expressions import RESERVED, Expressions, quoted
from edgepack.programs.torchscript_types import Definition, Refused, dotted, read_type

__all__ = ["Code"]

#: Words and signs in all of an archive's code; a line has about 30, and 20,000 lines take a second.
_MOST_TOKENS = 1_500_000
_TOKEN = re.compile(r"\w+|[^\w\s]")
_KINDS = {"Module", "NamedTuple", "Interface", "ModuleInterface", "Enum"}
#: Lists of names in a class: what is a parameter, a buffer, a hook.
_LISTS = {"__parameters__", "__buffers__", "__forward_hooks__", "__forward_pre_hooks__", "__annotations__"}
#: Calls that say something on a terminal and compute nothing: left out.
_SAYS = {"print", "torch.warn"}


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
            elif found.kind == "Enum" and (name := _assigned(node)) is not None:
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
        bound, functions = _variables(node, self.defined)
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
        yield from _Statements(expressions, node.name).block(node.body, indent + "  ")


class _Statements:
    """Checks and writes the statements of one function."""

    def __init__(self, expressions: Expressions, function: str) -> None:
        self._expressions = expressions
        #: PyTorch runs it while it reads the file: no loops, and no calls of the archive's own code.
        self._while_read = function == "__setstate__"
        self._forms: dict[type[ast.stmt], Callable[..., Iterator[str]]] = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.Expr: self._call,
            ast.Return: self._return,
            ast.If: self._if,
            ast.While: self._while,
            ast.For: self._for,
            ast.With: self._with,
            ast.Pass: self._pass,
        }

    def block(self, body: Sequence[ast.stmt], indent: str) -> Iterator[str]:
        """The statements, written again; at least one."""
        written = False
        for node in body:
            form = self._forms.get(type(node))
            if form is None or (self._while_read and isinstance(node, ast.While | ast.For | ast.With)):
                parallel = isinstance(node, ast.FunctionDef)
                what = "code that is run in parallel" if parallel else f"a statement {type(node).__name__}"
                raise Refused(f"{what}, which edgepack does not read here", node.lineno)
            if self._while_read:
                self._refuse_own_code(node)
            for line in form(node, indent):
                written = True
                yield line
        if not written:
            yield f"{indent}pass"

    def _refuse_own_code(self, node: ast.stmt) -> None:
        for one in ast.walk(node):
            if isinstance(one, ast.Call):
                space = (dotted(one.func) or "").partition(".")
                words = space[0] not in self._expressions.functions and not space[1]
                if space[0] not in {"torch", "ops"} and not (words and isinstance(one.func, ast.Name)):
                    raise Refused("a __setstate__ that calls more than operators", one.lineno)
                taken = one.args[0] if space[0] == "unchecked_cast" and one.args else None
                if taken and read_type(taken, self._expressions.defined).holds_structure():
                    raise Refused("a __setstate__ that takes a type for granted", one.lineno)

    def _assign(self, node: ast.Assign, indent: str) -> Iterator[str]:
        if len(node.targets) != 1:
            raise Refused("an assignment of a form that PyTorch does not write", node.lineno)
        target, name = node.targets[0], dotted(node.value)
        if isinstance(target, ast.Name) and target.id in self._expressions.functions:
            yield f"{indent}{target.id} = {name}"
            return
        if isinstance(target, ast.Tuple) and all(isinstance(one, ast.Name) for one in target.elts):
            left = ", ".join(self._expressions.text(one) for one in target.elts) + ","
        elif isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and not _is_reserved(target)):
            left = self._expressions.text(target)
        else:
            raise Refused("an assignment of a form that PyTorch does not write", node.lineno)
        yield f"{indent}{left} = {self._expressions.text(node.value)}"

    def _annotated(self, node: ast.AnnAssign, indent: str) -> Iterator[str]:
        if not isinstance(node.target, ast.Name) or node.value is None:
            raise Refused("an assignment of a form that PyTorch does not write", node.lineno)
        kind, value = self._expressions.type(node.annotation), self._expressions.text(node.value)
        yield f"{indent}{node.target.id}: {kind} = {value}"

    def _call(self, node: ast.Expr, indent: str) -> Iterator[str]:
        if not isinstance(node.value, ast.Call):
            raise Refused("a statement of a form that PyTorch does not write", node.lineno)
        if dotted(node.value.func) not in _SAYS:
            yield f"{indent}{self._expressions.text(node.value)}"

    def _return(self, node: ast.Return, indent: str) -> Iterator[str]:
        yield f"{indent}return {self._expressions.text(node.value) if node.value else 'None'}"

    def _if(self, node: ast.If, indent: str) -> Iterator[str]:
        yield f"{indent}if {self._expressions.text(node.test)}:"
        yield from self.block(node.body, indent + "  ")
        if node.orelse:
            yield f"{indent}else:"
            yield from self.block(node.orelse, indent + "  ")

    def _while(self, node: ast.While, indent: str) -> Iterator[str]:
        if node.orelse:
            raise Refused("a loop of a form that PyTorch does not write", node.lineno)
        yield f"{indent}while {self._expressions.text(node.test)}:"
        yield from self.block(node.body, indent + "  ")

    def _for(self, node: ast.For, indent: str) -> Iterator[str]:
        over = node.iter
        ranged = isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range"
        if (
            not ranged
            or not isinstance(over, ast.Call)
            or len(over.args) != 1
            or over.keywords
            or node.orelse
        ):
            raise Refused("a loop of a form that PyTorch does not write", node.lineno)
        if not isinstance(node.target, ast.Name):
            raise Refused("a loop of a form that PyTorch does not write", node.lineno)
        yield f"{indent}for {node.target.id} in range({self._expressions.text(over.args[0])}):"
        yield from self.block(node.body, indent + "  ")

    def _with(self, node: ast.With, indent: str) -> Iterator[str]:
        item = node.items[0]
        if len(node.items) != 1 or not isinstance(item.optional_vars, ast.Name | None):
            raise Refused("a with statement of a form that PyTorch does not write", node.lineno)
        named = f" as {item.optional_vars.id}" if item.optional_vars else ""
        yield f"{indent}with {self._expressions.text(item.context_expr)}{named}:"
        yield from self.block(node.body, indent + "  ")

    def _pass(self, node: ast.Pass, indent: str) -> Iterator[str]:
        del node
        yield f"{indent}pass"


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
    return _assigned(node) == "op_version_set" and isinstance(getattr(node, "value", None), ast.Constant)


def _assigned(node: ast.stmt) -> str | None:
    """The name that is assigned to, and nothing else is."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


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
    name = _assigned(node)
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
        name, value = _assigned(one), getattr(one, "value", None)
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


def _is_reserved(node: ast.Attribute) -> bool:
    return (dotted(node) or "").partition(".")[0] in RESERVED


def _variables(node: ast.FunctionDef, defined: Mapping[str, Definition]) -> tuple[set[str], set[str]]:
    """What a function assigns to, and of that what always is a function of the archive."""
    functions: set[str] = set()
    others = {one.arg for one in node.args.args}
    for one in _statements(node.body):
        name = _assigned(one)
        found = defined.get(dotted(one.value) or "") if isinstance(one, ast.Assign) and name else None
        if name is not None and found is not None and found.kind == "function":
            functions.add(name)
        else:
            others.update(_stored(one))
    return functions | others, functions - others


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a function, also those in others."""
    for one in body:
        yield one
        if isinstance(one, ast.If | ast.For | ast.While | ast.With):
            yield from _statements(one.body)
            yield from _statements(getattr(one, "orelse", ()))


def _stored(node: ast.stmt) -> Iterator[str]:
    """The variables that a statement itself assigns to."""
    targets: list[ast.expr | None] = []
    if isinstance(node, ast.Assign):
        targets += node.targets
    elif isinstance(node, ast.AnnAssign | ast.For):
        targets.append(node.target)
    elif isinstance(node, ast.With):
        targets += [item.optional_vars for item in node.items]
    for target in targets:
        inner = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (one.id for one in inner if isinstance(one, ast.Name))
