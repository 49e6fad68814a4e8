"""Constants of a program that are its buffers under another name become these buffers.

A module may keep its state in an object that is no module (transformers' StaticCache), and register the same
tensors as buffers. PyTorch's exporter sees two tensors then, a constant that is written to and a buffer that
is not, and cannot make such a program functional.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["join_shared"]


def join_shared(program: ExportedProgram) -> None:
    """Let what reads or writes such a constant use the buffer, in place."""
    from torch.export.graph_signature import InputKind

    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    buffers: dict[Any, str] = {}
    for spec in signature.input_specs:
        if spec.kind == InputKind.BUFFER and spec.target is not None:
            value = program.state_dict.get(spec.target, program.constants.get(spec.target))
            if value is not None and value.numel():
                buffers.setdefault(_place(value), spec.arg.name)
    kept = []
    for spec in signature.input_specs:
        value = program.constants.get(spec.target) if spec.kind == InputKind.CONSTANT_TENSOR else None
        buffer = buffers.get(_place(value)) if value is not None and value.numel() else None
        if buffer is None:
            kept.append(spec)
            continue
        constant = nodes[spec.arg.name]
        constant.replace_all_uses_with(nodes[buffer])
        program.graph.erase_node(constant)
        del program.constants[spec.target]
    if len(kept) < len(signature.input_specs):
        signature.input_specs[:] = kept
        program.graph_module.recompile()


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, and how: two with the same are one."""
    return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
