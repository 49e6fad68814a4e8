"""Statements of TorchScript's printed code: the few forms that its printer writes, written again."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from edgepack.compiler.frontend.torch.script.expressions import RESERVED, Expressions
from edgepack.compiler.frontend.torch.script.types import Definition, Refused, dotted, read_type

__all__ = ["Statements", "assigned", "variables"]

#: Calls that say something on a terminal and compute nothing: left out.
_SAYS = {"print", "torch.warn"}


class Statements:
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


def assigned(node: ast.stmt) -> str | None:
    """The name that is assigned to, and nothing else is."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _is_reserved(node: ast.Attribute) -> bool:
    return (dotted(node) or "").partition(".")[0] in RESERVED


def variables(node: ast.FunctionDef, defined: Mapping[str, Definition]) -> tuple[set[str], set[str]]:
    """What a function assigns to, and of that what always is a function of the archive."""
    functions: set[str] = set()
    others = {one.arg for one in node.args.args}
    for one in _statements(node.body):
        name = assigned(one)
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
