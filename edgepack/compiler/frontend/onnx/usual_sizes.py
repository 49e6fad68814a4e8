"""Sizes that open dimensions usually have: what a hint proposes, by a dimension's name and place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgepack.plan.model_summary import Dim

__all__ = ["is_length", "usual_size"]

_IMAGE, _TOKENS, _FRAMES, _SAMPLES = 224, 128, 100, 16000

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
#: Places in an input of a rank whose dimensions say nothing: an image, a clip, features of a sequence.
_PLACED: dict[int, tuple[int, ...]] = {
    2: (1, _TOKENS),
    3: (1, _TOKENS, 64),
    4: (1, 3, _IMAGE, _IMAGE),
    5: (1, 3, 16, 112, 112),
}


def is_length(name: str) -> bool:
    """Whether a dimension's name says that it is a length (of a text, of sound), and so no batch."""
    return _of_name(name)[0] == "length"


def usual_size(shape: Sequence[Dim], index: int, dtype: str) -> int:
    """A sensible size for the open dimension ``index`` of an input.

    Args:
        shape: the whole shape; names and None are open.
        dtype: integers of rank 1 and 2 are tokens.
    """
    name = shape[index]
    kind, size = _of_name(name) if isinstance(name, str) else ("", 0)
    if kind:
        tokens = dtype.startswith(("int", "uint")) and len(shape) <= 2
        return _TOKENS if tokens and kind == "length" else size
    if index == 1 and _is_state(shape):
        return 1
    if len(shape) == 4 and shape[3] in {1, 3, 4} and shape[1] not in {1, 3, 4}:
        return (1, _IMAGE, _IMAGE, 3)[index]  # channels last
    if len(shape) == 2 and index == 1 and dtype == "float32":
        return _SAMPLES if isinstance(name, str) else 64
    return _PLACED.get(len(shape), (1,) * len(shape))[index]


def _of_name(name: str) -> tuple[str, int]:
    """What a dimension's name says that it is, and its usual size; "" and 0 where that is nothing."""
    return next(((kind, size) for word, kind, size in _NAMED if re.search(word, name.lower())), ("", 0))


def _is_state(shape: Sequence[Dim]) -> bool:
    """Whether it is that of a recurrent layer's state: layers or directions, batch, features."""
    return (
        len(shape) == 3
        and isinstance(shape[0], int)
        and 1 < shape[0] <= 16
        and not isinstance(shape[1], int)
        and isinstance(shape[2], int)
    )
