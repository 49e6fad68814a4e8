"""Where in a module, and in which line of Python, a call of an exported program comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["module_of", "place_of"]

_LINE = re.compile(r'File "([^"]+)", line (\d+)')
#: In the paths of PyTorch's own files.
_OWN = re.compile(r"[/\\]torch[/\\]")


def module_of(node: torch.fx.Node) -> str:
    """The path of the module that a node is of (``encoder.layer.0.norm``); "" for the outermost one."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]) if paths else ""


def place_of(node: torch.fx.Node) -> str:
    """Module and line of a node, for messages: ``encoder.norm, net.py:12``; the innermost line that is not of
    PyTorch's own files. A program that was saved has lines, where the one who exported it had them."""
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    outer = [line for line in lines if not _OWN.search(line[0])] or lines
    module = module_of(node) or "the module itself"
    return f"{module}, {outer[-1][0]}:{outer[-1][1]}" if outer else module
