"""Sizes that open dimensions usually have: what a hint proposes, by a dimension's name and place, and by what
reads the input."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgepack.compiler.frontend.onnx.input_use import InputUse
from edgepack.plan.model_summary import Dim

__all__ = ["grows", "image_side", "is_length", "is_state", "says_nothing", "usual_size"]

_IMAGE, _TOKENS, _FRAMES, _SAMPLES, _FEATURES = 224, 128, 100, 16000, 64

#: Words in a dimension's name, what it then is, and the size; the first that is found counts. A second of
#: sound at 16 kHz.
_NAMED = (
    (r"batch|^bs$|^b$|^n$", "batch", 1),
    (r"height|width|image|pixel|^h$|^w$|^[hw]_?(in|out)?$", "pixels", _IMAGE),
    (r"channel|^c$|rgb", "channels", 3),
    (r"sample|audio|wave", "length", _SAMPLES),
    (r"frame|^t$|time|mel", "length", _FRAMES),
    (r"seq|token|length|^len$|^l$|^s$|word|text|phoneme|past|cache", "length", _TOKENS),
)
#: Names that exporters number (tf2onnx, PyTorch, ONNX Runtime, PaddlePaddle): they say nothing.
_NUMBERED = re.compile(
    r"unk__\d+|[sud]\d+|.*dynamic_axes_\d+|dynamicdimension\.?\d*|dim_?\d+|sym(bol)?_?\d+|none_?\d*|_?\d+|"
    r".*_dim_?\d+|free_dim\w*|p2o\.dynamicdimension\.\d+"
)
#: Places in an input of a rank whose dimensions say nothing: an image, a clip, features of a sequence.
_PLACED: dict[int, tuple[int, ...]] = {
    2: (1, _TOKENS),
    3: (1, _TOKENS, _FEATURES),
    4: (1, 3, _IMAGE, _IMAGE),
    5: (1, 3, 16, 112, 112),
}


def says_nothing(name: str) -> bool:
    """Whether a dimension's name is one that an exporter has numbered."""
    return _NUMBERED.fullmatch(name.lower()) is not None


def is_length(name: str) -> bool:
    """Whether a dimension's name says that it is a length (of a text, of sound), and so no batch."""
    return _of_name(name)[0] == "length"


def grows(shape: Sequence[Dim], index: int) -> bool:
    """Whether an open dimension of an input is a length or of an image, which may be larger: neither a batch
    nor channels."""
    name = shape[index]
    kind = _of_name(name)[0] if isinstance(name, str) else ""
    if kind:
        return kind in ("length", "pixels")
    return usual_size(shape, index, "") not in (1, 3) and not (index == 1 and is_state(shape))


def image_side(shape: Sequence[Dim], index: int) -> int | None:
    """0 for the height of an image, 1 for its width; None for any other dimension of an input of rank 4."""
    if len(shape) != 4:
        return None
    last = shape[3] in {1, 3, 4} and shape[1] not in {1, 3, 4}
    sides = (1, 2) if last else (2, 3)
    return sides.index(index) if index in sides and usual_size(shape, index, "") == _IMAGE else None


def usual_size(
    shape: Sequence[Dim], index: int, dtype: str, use: InputUse = "", *, streams: bool = False
) -> int:
    """A sensible size for the open dimension ``index`` of an input.

    Args:
        shape: the whole shape; names and None are open.
        dtype: integers of rank 1 and 2 are tokens.
        use: what the input is by its readers.
        streams: the model has a state beside it, so that a run is of a short piece.
    """
    name = shape[index]
    kind, size = _of_name(name) if isinstance(name, str) else ("", 0)
    tokens = use == "tokens" or (dtype.startswith(("int", "uint")) and len(shape) <= 2)
    if kind in ("batch", "channels", "pixels"):
        return size
    if index == 1 and is_state(shape):
        return 1
    if kind and tokens:
        return _TOKENS
    sound = use == "sound" and not streams and index == len(shape) - 1 and len(shape) <= 3
    if kind:
        return _SAMPLES if sound else size
    if len(shape) == 4 and shape[3] in {1, 3, 4} and shape[1] not in {1, 3, 4}:
        return (1, _IMAGE, _IMAGE, 3)[index]  # channels last
    if index > 0 and len(shape) <= 3 and (tokens or sound):
        return _SAMPLES if sound else _TOKENS
    if len(shape) == 2 and index == 1 and dtype == "float32":
        return _FEATURES
    return _PLACED.get(len(shape), (1,) * len(shape))[index]


def _of_name(name: str) -> tuple[str, int]:
    """What a dimension's name says that it is, and its usual size; "" and 0 where that is nothing."""
    return next(((kind, size) for word, kind, size in _NAMED if re.search(word, name.lower())), ("", 0))


def is_state(shape: Sequence[Dim]) -> bool:
    """Whether it is that of a recurrent layer's state: layers or directions, batch, features."""
    return (
        len(shape) == 3
        and isinstance(shape[0], int)
        and 1 < shape[0] <= 16
        and not isinstance(shape[1], int)
        and isinstance(shape[2], int)
    )
