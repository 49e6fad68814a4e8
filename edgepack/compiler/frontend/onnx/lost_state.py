"""Refuses exports of PyTorch modules that write to their buffers: ONNX files have no state.

``torch.onnx.export`` keeps what a module returns and drops what it writes to its buffers (caches, streaming
states). Its files hold the program's signature as text, which names these buffers
(torch/onnx/_internal/exporter/_core.py, ``pkg.torch.export.ExportedProgram.graph_signature``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["refuse_lost_state"]

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_WRITTEN = re.compile(r"^\S+: BUFFER_MUTATION target='([^'\n]+)'", re.MULTILINE)
_MOST = 10


def refuse_lost_state(model: onnx.ModelProto) -> None:
    """Raise ModelError, which names the buffers, for a model whose metadata say that state was dropped."""
    texts = (one.value for one in model.graph.metadata_props if one.key == _SIGNATURE)
    names = list(dict.fromkeys(name for text in texts for name in _WRITTEN.findall(text)))
    if not names:
        return
    listed = ", ".join(names[:_MOST]) + (" ..." if len(names) > _MOST else "")
    raise ModelError(
        f"The model was exported from a PyTorch module that writes to its buffers {listed}, and ONNX keeps "
        "no state: each run would be the first.",
        hint="Give edgepack.pack the module itself, or its .pt2 file: what it writes to becomes inputs and "
        "outputs. A module whose state is to stay as it is must not write to it when it is exported.",
    )
