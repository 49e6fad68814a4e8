"""``torch.compile(model, backend="edgepack")``: subgraphs of PyTorch's compiled for this machine.

PyTorch finds :func:`backend` by the entry point group ``torch_dynamo_backends``. Importing this imports
``torch``, which the rest of edgepack does without (docs/pytorch.md).
"""

from edgepack.torch.backend import backend
from edgepack.torch.explain import ExplainedSubgraph, Explanation, explain
from edgepack.torch.tvm_library import TvmLibrary, export_library

__all__ = ["ExplainedSubgraph", "Explanation", "TvmLibrary", "backend", "explain", "export_library"]
