"""Sizes that open dimensions usually have: what a hint proposes, by a dimension's name and place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgepack.plan.model_summary import Dim

__all__ = ["usual_size"]

_IMAGE, _TOKENS, _FRAMES, _SAMPLES = 224, 128, 100, 16000

#: Words in a dimension's name, and the size; the first that is found counts. A second of sound at 16 kHz.
_NAMED = (
    (r"batch|^bs$|^b$|^n$", 1),
    (r"height|width|image|pixel|^h$|^w$|^[hw]_?(in|out)?$", _IMAGE),
    (r"channel|^c$|rgb", 3),
    (r"sample|audio|wave", _SAMPLES),
    (r"frame|^t$|time|mel", _FRAMES),
    (r"seq|token|length|^len$|^l$|^s$|word|text|past|cache", _TOKENS),
)
#: Places in an input of a rank whose dimensions say nothing: an image, a clip, features of a sequence.
_PLACED: dict[int, tuple[int, ...]] = {
    2: (1, _TOKENS),
    3: (1, _TOKENS, 64),
    4: (1, 3, _IMAGE, _IMAGE),
    5: (1, 3, 16, 112, 112),
}


def usual_size(shape: Sequence[Dim], index: int, dtype: str) -> int:
    """A sensible size for the open dimension ``index`` of an input.

    Args:
        shape: the whole shape; names and None are open.
        dtype: integers of rank 2 are tokens.
    """
    name = shape[index]
    if isinstance(name, str):
        for pattern, size in _NAMED:
            if re.search(pattern, name.lower()):
                return size
    if len(shape) == 4 and shape[3] in {1, 3, 4} and shape[1] not in {1, 3, 4}:
        return (1, _IMAGE, _IMAGE, 3)[index]  # channels last
    if len(shape) == 2 and index == 1 and dtype == "float32":
        return _SAMPLES if isinstance(name, str) else 64
    return _PLACED.get(len(shape), (1,) * len(shape))[index]
