"""One params file for several plans: the variants of a library, each for another kind of CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgepack.errors import InternalError
from edgepack.plan.types import ALIGNMENT, Constant, Plan

__all__ = ["share_params"]


def share_params(plans: Sequence[Plan], names: Sequence[str], blobs: Sequence[Path], out: Path) -> list[Plan]:
    """Put the params of all plans behind each other; what has the same bytes in two of them is stored once.

    Args:
        plans: of the same model.
        names: of the variants, for the names of their tensors in the file's table.
        blobs: the params data of each.
        out: where the common data go.

    Returns:
        the plans, with its size, and the offsets of their constants in ``out``. The last one has the
        constants of all, behind its own: its table is the file's.

    Raises:
        InternalError: a blob does not have the bytes that its plan says.
    """
    stored: dict[tuple[str, int], int] = {}
    moved: list[tuple[Constant, ...]] = []
    others: list[Constant] = []
    size = 0
    with out.open("wb") as file:
        for plan, name, blob in zip(plans, names, blobs, strict=True):
            constants = []
            with blob.open("rb") as data:
                for constant in plan.constants:
                    key = (constant.sha256, constant.nbytes)
                    if key not in stored:
                        data.seek(constant.offset)
                        content = data.read(constant.nbytes)
                        if len(content) != constant.nbytes:
                            raise InternalError(f"The params of {name!r} end within {constant.name!r}.")
                        file.write(bytes(-size % ALIGNMENT) + content)
                        stored[key] = size + -size % ALIGNMENT
                        size = stored[key] + constant.nbytes
                        if plan is not plans[-1]:
                            label = f"{constant.name} ({name})"
                            others.append(replace(constant, name=label, offset=stored[key]))
                    constants.append(replace(constant, offset=stored[key]))
            moved.append(tuple(constants))
        file.write(bytes(-size % ALIGNMENT))
        size += -size % ALIGNMENT
    moved[-1] = (*moved[-1], *others)
    return [
        replace(
            plan,
            constants=constants,
            params_bytes=size,
            params_growth=plan.params_growth + size - plan.params_bytes,
        )
        for plan, constants in zip(plans, moved, strict=True)
    ]
