"""Expressions of TorchScript's printed code: checked against what its printer writes, and written again.

What a call reaches is known by its form alone: an operator of the list (``torch.add(...)``,
``ops.prim.dtype(x)``), a function, class or method that the archive defines, or one of the printer's own
words (``annotate``). A variable is called only where it stands for a function of the archive; nothing else
can hold one.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Mapping

from edgepack.compiler.frontend.torch.script.operators import is_allowed
from edgepack.compiler.frontend.torch.script.types import Definition, Refused, dotted, read_type

__all__ = ["RESERVED", "Expressions", "quoted"]

#: Names that stand for namespaces and for the compiler's own forms, which no variable may have.
RESERVED = {
    *("torch", "ops", "CONSTANTS", "__torch__", "fork", "awaitable", "annotate", "unchecked_cast"),
    *("uninitialized", "getattr", "hasattr", "isinstance"),
}
#: Conversions that the printer writes by their names alone.
_CONVERSIONS = {"int", "float", "bool", "str", "complex", "sorted"}
_MOST_INTEGER = 1 << 63
_PRINTABLE = {chr(code): chr(code) for code in range(0x20, 0x7F)} | {'"': '\\"', "\\": "\\\\"}
_PRINTABLE |= {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str, line: int | None = None) -> str:
    """A text as PyTorch's lexer reads it: printable characters, and bytes as three octal digits."""
    try:
        return '"' + "".join(_PRINTABLE.get(one) or f"\\{one.encode('latin-1')[0]:03o}" for one in text) + '"'
    except UnicodeEncodeError:
        raise Refused("a text that is not ASCII", line) from None


class Expressions:
    """Checks and writes the expressions of one function.

    Args:
        defined: what the archive defines, by whole names.
        attributes, methods: the names of these in all of its classes.
        bound: what the function assigns to, its arguments too.
        functions: of these, those that stand for a function of the archive wherever they are assigned.
    """

    def __init__(
        self,
        defined: Mapping[str, Definition],
        attributes: Collection[str],
        methods: Collection[str],
        bound: Collection[str] = (),
        functions: Collection[str] = (),
    ) -> None:
        self.defined = defined
        self.attributes = attributes
        self.methods = methods
        self.bound = bound
        self.functions = functions
        self._forms: dict[type[ast.expr], Callable[..., str]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.Tuple: self._tuple,
            ast.List: self._list,
            ast.Dict: self._dict,
            ast.UnaryOp: self._minus,
        }

    def text(self, node: ast.expr) -> str:
        """The expression, written again. Raises Refused for what is no form of the printer's."""
        form = self._forms.get(type(node))
        if form is None:
            raise Refused(
                f"an expression of a form ({type(node).__name__}) that PyTorch does not write", node.lineno
            )
        return form(node)

    def type(self, node: ast.expr) -> str:
        """A type, written again."""
        return str(read_type(node, self.defined))

    def constant(self, node: ast.expr) -> str:
        """A value that is known when the code is read: a default, a class's constant."""
        for one in ast.walk(node):
            if isinstance(one, ast.Call) and not self._makes_constant(one):
                raise Refused("a call in the place of a constant", node.lineno)
        return self.text(node)

    def _makes_constant(self, call: ast.Call) -> bool:
        name = dotted(call.func)
        return name in {"torch.device", "annotate"} or self._kind(name) == "NamedTuple"

    def _kind(self, name: str | None) -> str:
        found = self.defined.get(name or "")
        return found.kind if found else ""

    def _constant(self, node: ast.Constant) -> str:
        value = node.value
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, int) and value < _MOST_INTEGER:
            return str(value)
        if isinstance(value, float) and math.isfinite(value):
            return repr(value)
        if isinstance(value, complex) and not value.real and math.isfinite(value.imag):
            return f"{value.imag!r}j"
        if isinstance(value, str):
            return quoted(value, node.lineno)
        raise Refused(f"the constant {ast.unparse(node)!r:.40}, which PyTorch does not write", node.lineno)

    def _name(self, node: ast.Name) -> str:
        if node.id in RESERVED:
            raise Refused(f"{node.id!r} in the place of a value", node.lineno)
        return node.id

    def _attribute(self, node: ast.Attribute) -> str:
        name = dotted(node) or ""
        space, _, own = name.partition(".")
        if space == "CONSTANTS" and own[:1] == "c" and own[1:].isdecimal():
            return name
        if space == "__torch__":
            prefix, _, member = name.rpartition(".")
            if self._kind(prefix) == "Enum" and member in self.defined[prefix].constants:
                return name
        if space in RESERVED:
            raise Refused(f"{name!r:.80} in the place of a value", node.lineno)
        if node.attr not in self.attributes and node.attr not in {"name", "value"}:
            raise Refused(f"the attribute {node.attr!r:.80}, which no class of it has", node.lineno)
        return f"{self._inner(node.value)}.{node.attr}"

    def _inner(self, node: ast.expr) -> str:
        return self.text(node) if isinstance(node, ast.Name) else f"({self.text(node)})"

    def _call(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Name):
            return self._word(node, node.func.id)
        if not isinstance(node.func, ast.Attribute):
            raise Refused("a call of what is no function's name", node.lineno)
        name = dotted(node.func) or ""
        space = name.partition(".")[0]
        if space in {"torch", "ops"}:
            return f"{self._operator(node, name)}({self._arguments(node)})"
        if space == "__torch__":
            return self._own(node, name)
        if space in RESERVED:
            raise Refused(f"a call of {name!r:.80}", node.lineno)
        return self._method(node, node.func)

    def _operator(self, node: ast.Call, name: str) -> str:
        parts = name.split(".")
        whole = f"aten::{parts[1]}" if parts[0] == "torch" and len(parts) == 2 else ""
        if parts[0] == "ops" and len(parts) == 3:
            whole = f"{parts[1]}::{parts[2]}"
        if not is_allowed(whole):
            raise Refused(f"a call of {name:.80}, which is no arithmetic on tensors that edgepack knows",
                          node.lineno)  # fmt: skip
        return name

    def _own(self, node: ast.Call, name: str) -> str:
        kind = self._kind(name)
        if kind in {"function", "NamedTuple", "class"}:
            return f"{name}({self._arguments(node)})"
        made, _, new = name.rpartition(".")
        alone = len(node.args) == 1 and not node.keywords and dotted(node.args[0]) == made
        if new == "__new__" and self._kind(made) == "class" and alone:
            return f"{name}({made})"
        raise Refused(f"a call of {name!r:.80}, which it does not define", node.lineno)

    def _method(self, node: ast.Call, method: ast.Attribute) -> str:
        if method.attr == "tolist" and not node.args and not node.keywords:
            return f"{self._inner(method.value)}.tolist()"
        if method.attr not in self.methods:
            raise Refused(f"a call of the method {method.attr!r:.80}, which no class of it has", node.lineno)
        return f"{self._inner(method.value)}.{method.attr}({self._arguments(node)})"

    def _word(self, node: ast.Call, word: str) -> str:
        """A call by a name alone: of a function in a variable, or one of the printer's words."""
        count = len(node.args)
        if node.keywords and word not in self.functions:
            raise Refused(f"a call of {word!r:.80} with keywords", node.lineno)
        if word in self.bound:
            if word in self.functions:
                return f"{word}({self._arguments(node)})"
        elif word in _CONVERSIONS:
            return f"{word}({self._arguments(node)})"
        elif word in {"annotate", "unchecked_cast"} and count == 2:
            return f"{word}({self.type(node.args[0])}, {self.text(node.args[1])})"
        elif word == "uninitialized" and count == 1:
            return f"{word}({self.type(node.args[0])})"
        elif word == "isinstance" and count == 2:
            asked = node.args[1]
            types = asked.elts if isinstance(asked, ast.Tuple) else [asked]
            listed = ", ".join(self.type(one) for one in types)
            return f"isinstance({self.text(node.args[0])}, ({listed},))"
        elif word == "getattr" and count == 2:
            return self._getattr(node)
        raise Refused(f"a call of {word!r:.80}", node.lineno)

    def _getattr(self, node: ast.Call) -> str:
        name = node.args[1]
        if not isinstance(name, ast.Constant) or name.value not in self.attributes:
            raise Refused("getattr of what is no attribute of its classes", node.lineno)
        return f"getattr({self.text(node.args[0])}, {quoted(str(name.value), node.lineno)})"

    def _arguments(self, node: ast.Call) -> str:
        given = [self.text(one) for one in node.args]
        for one in node.keywords:
            if one.arg is None:
                raise Refused("a call with arguments of a dict", node.lineno)
            given.append(f"{one.arg}={self.text(one.value)}")
        return ", ".join(given)

    def _subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            index = ":".join(self.text(end) if end else "" for end in ends).removesuffix(":")
        else:
            index = self.text(node.slice)
        return f"{self._inner(node.value)}[{index}]"

    def _tuple(self, node: ast.Tuple) -> str:
        items = ", ".join(self.text(one) for one in node.elts)
        return f"({items},)" if len(node.elts) == 1 else f"({items})"

    def _list(self, node: ast.List) -> str:
        return f"[{', '.join(self.text(one) for one in node.elts)}]"

    def _dict(self, node: ast.Dict) -> str:
        pairs = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise Refused("a dict in a dict", node.lineno)
            pairs.append(f"{self.text(key)}: {self.text(value)}")
        return "{" + ", ".join(pairs) + "}"

    def _minus(self, node: ast.UnaryOp) -> str:
        number = isinstance(node.operand, ast.Constant) and type(node.operand.value) in {int, float, complex}
        if not isinstance(node.op, ast.USub) or not (number or isinstance(node.operand, ast.Name)):
            raise Refused("a sign before what is no number", node.lineno)
        if isinstance(node.operand, ast.Constant) and node.operand.value == _MOST_INTEGER:
            return f"-{_MOST_INTEGER}"
        return f"-{self.text(node.operand)}"
