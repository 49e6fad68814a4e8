"""Models that are objects in memory (``onnx.ModelProto``): each becomes a private file, which is a model like
any other.

The process that has the object writes the file, so the worker needs nothing that made it. What is kept in the
cache goes by the file's contents: the same model saved by the user is found there.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from edgepack.errors import ConfigError, EdgepackError, ModelError
from edgepack.registry import MODEL_OBJECTS, object_kind
from edgepack.system.disk_errors import writing_to
from edgepack.system.temporary import temporary_folder

__all__ = ["ONNX", "ModelObject", "file_stem", "model_file", "without_folder"]

#: What exporters call every graph, so that it says nothing of the model.
_SAY_NOTHING = {"", "graph", "main", "main_graph", "tf2onnx", "torch_jit", "torch-jit-export"}
_LONGEST_NAME = 48
#: ``TensorProto.EXTERNAL``.
_EXTERNAL = 1


class ModelObject(Protocol):
    """A kind of objects that are models, and how a file is made of one."""

    #: Of the files, which says what reads them (``.onnx``).
    suffix: str

    def name(self, model: Any) -> str:
        """What the model calls itself; "" for nothing."""
        ...

    def write(self, model: Any, path: Path) -> None:
        """Write the file, the same bytes for the same model.

        Raises:
            ModelError: it cannot become one file.
        """
        ...


@contextmanager
def model_file(model: Any, name: str | None = None) -> Iterator[Path]:
    """The file of a model: its own where ``model`` is a path, otherwise a private one that is removed with
    the ``with`` block. Errors that leave the block name it without its folder (:func:`without_folder`).

    Args:
        model: a path, or an object of a kind that :data:`edgepack.registry.MODEL_OBJECTS` has.
        name: of the model, where the user chose one; the file's stem.

    Raises:
        ConfigError: it is neither.
        ModelError: the object cannot become one file.
    """
    if isinstance(model, str | os.PathLike):
        yield Path(model)
        return
    kind = object_kind(model)
    if not kind:
        raise ConfigError(f"A model is a path or a known object, not one of {type(model).__name__}.")
    form: ModelObject = MODEL_OBJECTS.find(kind)
    with temporary_folder() as folder:
        path = folder / f"{file_stem(name or form.name(model))}{form.suffix}"
        with writing_to({"temporary folder": Path(tempfile.gettempdir())}):
            form.write(model, path)
        try:
            yield path
        except EdgepackError as error:
            for text in ("message", "hint", "detail"):
                setattr(error, text, without_folder(getattr(error, text), model, path))
            raise


def without_folder(text: str, model: Any, file: Path) -> str:
    """A text about the ``file`` of a model: where the model is an object, without the folder of the file,
    which nobody but :func:`model_file` knows."""
    return text if isinstance(model, str | os.PathLike) else text.replace(str(file), file.name)


def file_stem(name: str) -> str:
    """A name as a file's: letters, digits, ``-`` and ``_`` of ASCII."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")[:_LONGEST_NAME]
    return "model" if plain in _SAY_NOTHING else plain


class _Onnx:
    """``onnx.ModelProto``, without importing ``onnx``: who has one has done so."""

    suffix = ".onnx"

    def name(self, model: Any) -> str:
        return str(model.graph.name)

    def write(self, model: Any, path: Path) -> None:
        for tensor in _tensors(model.graph):
            if tensor.data_location == _EXTERNAL:
                raise ModelError(
                    f"The model's weights are not in memory: tensor {tensor.name!r} is in an external file.",
                    hint="Load them too (onnx.load(path) does), or give the path of the model's file.",
                )
        try:
            data = model.SerializeToString(deterministic=True)
        except Exception as error:  # protocol buffers' own classes, which differ between their versions
            raise ModelError(
                f"The model cannot be written as one ONNX file: {error or type(error).__name__}.",
                hint="One of more than 2 GB cannot: save it with its weights beside it "
                "(onnx.save_model(model, path, save_as_external_data=True)), and give the path.",
            ) from error
        path.write_bytes(data)


def _tensors(graph: Any) -> Iterator[Any]:
    """All tensors of a graph, and of the graphs in its nodes."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)


ONNX = _Onnx()
