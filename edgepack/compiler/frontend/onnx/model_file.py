"""Reads ONNX files: what is wrong with a file is said here, before anything else looks at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.recognise import IR_VERSION_TAG
from edgepack.compiler.frontend.onnx.structure import check_structure, raw_bytes, tensors_of
from edgepack.compiler.frontend.onnx.unread import drop_unread_constants
from edgepack.compiler.memory import check_room
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["default_opset", "external_files", "read_model"]

#: Of an offset or a length: files have less than 2^63 bytes.
_DIGITS = 19


def read_model(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """The model in ``path``; if ``weights``, with its external data and without constants that nothing reads.

    Raises:
        ModelError: the file is missing, is a directory, is not ONNX, is truncated, or its external data is
            missing, too short, or not what its tensors need.
        MemoryError: its weights take more memory than there is.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not path.exists():
        raise ModelError(f"There is no model file {path}.", hint="Check the path.")
    if path.is_dir():
        raise ModelError(f"{path} is a directory, not an ONNX file.", hint=_files_in(path))
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is empty (0 bytes).", hint="Export or download the model again.")
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise _undecodable(path) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not model.HasField("graph"):
        raise _undecodable(path)
    if not model.opset_import and model.ir_version >= 3:
        raise ModelError(
            f"{path} names no operator set: the file is truncated or its exporter is broken.",
            hint="Export or download the model again.",
        )
    check_structure(path, model)
    _check_external_data(path, model)
    if weights:
        drop_unread_constants(model)
        _load_external_data(path, model)
    return model


def default_opset(model: onnx.ModelProto) -> int:
    """Version of the standard operator set that the model uses (1 if it names none)."""
    versions = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    return int(versions[0]) if versions else 1


def external_files(path: Path) -> tuple[Path, ...]:
    """External data files of the model in ``path``, sorted, each once.

    Raises:
        ModelError: as :func:`read_model`.
    """
    model = read_model(path, weights=False)
    locations = {_external_fields(tensor).get("location", "") for tensor in _external_tensors(model)}
    return tuple(path.parent / location for location in sorted(locations))


def _undecodable(path: Path) -> ModelError:
    with path.open("rb") as stream:
        head = stream.read(64)
    again = "Export or download the model again."
    if head.startswith(b"version https://git-lfs"):
        return ModelError(f"{path} is a Git LFS pointer, not the model itself.", hint="Run `git lfs pull`.")
    if len(head) > 1 and head[0] == IR_VERSION_TAG and 0 < head[1] < 64:
        return ModelError(
            f"{path} is truncated or damaged: it begins as an ONNX file, then breaks off.", hint=again
        )
    return ModelError(
        f"{path} is not an ONNX file.",
        hint="edgepack reads ONNX; export the model with torch.onnx.export, tf2onnx or the like.",
    )


def _files_in(path: Path) -> str:
    names = sorted(file.name for file in path.glob("*.onnx"))
    if names:
        return f"It holds {', '.join(names[:5])}: name one of them."
    return "Name the .onnx file itself."


def _external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    import onnx

    for tensor in tensors_of(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _external_fields(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _check_external_data(path: Path, model: onnx.ModelProto) -> None:
    for tensor in _external_tensors(model):
        fields = _external_fields(tensor)
        location = fields.get("location", "")
        file = path.parent / location
        if not location or "\0" in location or Path(location).is_absolute() or ".." in Path(location).parts:
            raise ModelError(
                f"{path} keeps tensor {tensor.name!r} in {location!r}, outside of the model's folder.",
                hint="Save the model with its external data beside it (onnx.save_model(..., location=NAME)).",
            )
        if not os.path.isfile(file):  # False, and no OSError, for a name that is too long  # noqa: PTH113
            raise ModelError(
                f"{path} keeps weights in the external data file {location}, which is missing "
                f"(first needed for tensor {tensor.name!r}).",
                hint=f"Put {location} beside the model, in {path.parent}.",
            )
        offset, length = (_number(path, tensor, fields, key) for key in ("offset", "length"))
        needed = _external_bytes(path, tensor)
        if length and length != needed:
            raise ModelError(
                f"{path} is damaged: tensor {tensor.name!r} needs {needed} bytes, and has {length} in the "
                f"external data file {location}.",
                hint="Export or download the model again.",
            )
        end = offset + needed
        if end > file.stat().st_size:
            raise ModelError(
                f"The external data file {location} of {path} is truncated: tensor {tensor.name!r} ends at "
                f"byte {end}, the file at {file.stat().st_size}.",
                hint="Export or download the external data again.",
            )


def _external_bytes(path: Path, tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor's external data. ModelError for one of texts, which have no size."""
    import onnx

    if tensor.data_type == onnx.TensorProto.STRING:
        raise ModelError(
            f"{path} keeps tensor {tensor.name!r} of texts in external data, which ONNX does not allow.",
            hint="Export the model again.",
        )
    return raw_bytes(tensor.data_type, prod(tensor.dims))


def _number(path: Path, tensor: onnx.TensorProto, fields: dict[str, str], key: str) -> int:
    """The offset or length of external data, in bytes; 0 where it is not given."""
    text = fields.get(key, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ModelError(
            f"{path} is damaged: the {key} of the external data of tensor {tensor.name!r} is {text[:40]!r}, "
            "not a number of bytes.",
            hint="Export or download the model again.",
        )
    return int(text)


def _load_external_data(path: Path, model: onnx.ModelProto) -> None:
    """Reads what the tensors need, and nothing else: a file may have any size, and several tensors the same
    bytes of it."""
    import onnx
    from onnx import external_data_helper

    check_room(sum(_external_bytes(path, tensor) for tensor in _external_tensors(model)))
    try:
        for tensor in _external_tensors(model):
            fields = _external_fields(tensor) | {"length": str(_external_bytes(path, tensor))}
            del tensor.external_data[:]
            for key, value in fields.items():
                tensor.external_data.add(key=key, value=value)
            # Without a length, or with 0, onnx reads all of the file.
            if fields["length"] == "0":
                tensor.raw_data = b""
            else:
                external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    except MemoryError:
        raise
    except Exception as error:  # onnx raises its checker's errors, ValueError and OSError here
        raise ModelError(f"The external data of {path} cannot be read: {error}") from error
